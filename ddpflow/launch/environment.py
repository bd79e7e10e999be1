"""The environment that each rank starts with."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["THREAD_VARIABLES", "Placement", "rank_environment"]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# Large NumPy temporaries then come from the heap and go back to it; by default glibc maps and unmaps each of them, and
# the page faults of that cost a third of a training step. Freed memory stays with the process.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(16 << 20)}
# Before 2.35, glibc ignores a threshold above 32 MiB.
_MMAP_THRESHOLD, _OLD_MMAP_THRESHOLD = str(1 << 30), str(1 << 25)


@dataclass(frozen=True)
class Placement:
    """What all ranks of one host have in common, for one attempt of the job.

    Attributes:
        node_rank: Number of this host.
        n_nodes: Number of hosts.
        first_rank: Global rank of local rank 0.
        local_world_size: Number of ranks on this host.
        world_size: Number of ranks of the job.
        master_addr: Host where rank 0's store listens.
        master_port: Port of that store.
        token: Secret of this attempt, in hexadecimal.
        run_id: Name of this attempt.
        run_dir: Private directory of this attempt on this host.
        restart_count: How many attempts came before.
    """

    node_rank: int
    n_nodes: int
    first_rank: int
    local_world_size: int
    world_size: int
    master_addr: str
    master_port: int
    token: str
    run_id: str
    run_dir: str
    restart_count: int


def rank_environment(
    base: Mapping[str, str],
    place: Placement,
    local_rank: int,
    store_fd: int | None,
    threads: int | None,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Returns the environment of one rank.

    Args:
        base: The launcher's own environment.
        place: What the host's ranks share.
        local_rank: Number of the rank on this host.
        store_fd: Listening socket that the rank inherits, or None.
        threads: Number of threads that BLAS may use, or None to leave the user's settings alone.
        extra: Variables that the user gave on the command line; they win.
    """
    environment = dict(base)
    environment.pop("DDPFLOW_STORE_FD", None)
    if threads is not None:
        environment.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    for name, value in _malloc_settings().items():
        environment.setdefault(name, value)
    environment.update(
        RANK=str(place.first_rank + local_rank),
        WORLD_SIZE=str(place.world_size),
        LOCAL_RANK=str(local_rank),
        LOCAL_WORLD_SIZE=str(place.local_world_size),
        GROUP_RANK=str(place.node_rank),
        GROUP_WORLD_SIZE=str(place.n_nodes),
        MASTER_ADDR=place.master_addr,
        MASTER_PORT=str(place.master_port),
        DDPFLOW_STORE_ADDR=f"{place.master_addr}:{place.master_port}",
        DDPFLOW_JOB_TOKEN=place.token,
        DDPFLOW_RUN_ID=place.run_id,
        DDPFLOW_RUN_DIR=place.run_dir,
        DDPFLOW_RESTART_COUNT=str(place.restart_count),
    )
    if store_fd is not None:
        environment["DDPFLOW_STORE_FD"] = str(store_fd)
    environment.update(extra)
    return environment


def _malloc_settings() -> dict[str, str]:
    """Returns what keeps glibc from handing large arrays back to the kernel; nothing on other C libraries."""
    try:
        _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (AttributeError, ValueError, OSError):
        return {}
    modern = [int(part) for part in version.split(".")[:2]] >= [2, 35]
    return {**_MALLOC, "MALLOC_MMAP_THRESHOLD_": _MMAP_THRESHOLD if modern else _OLD_MMAP_THRESHOLD}
