"""The process's place in its job, read from the environment; nothing else in ddpflow reads these variables.

Understood, in this order: torchrun's variables (which ``ddprun`` sets as well), Open MPI's, Slurm's, MPICH's (Hydra's).
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ddpflow.errors import ConfigError

__all__ = ["CommSettings", "ProcessContext"]

_REQUIRED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class _Reader:
    """Reads variables, and gathers every problem so that one error can name them all."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        """Returns the variable, or None where it is unset or empty."""
        return self.environ.get(name, "").strip() or None

    def number(self, name: str, low: int, high: int | None = None) -> int | None:
        """Returns the variable as an integer in [low, high], or None, noting what is wrong with it."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]+", text):
            self.problems.append(f"{name}={text!r} is not an integer")
            return None
        value = int(text)
        if value < low or (high is not None and value > high):
            span = f"at least {low}" if high is None else f"between {low} and {high}"
            self.problems.append(f"{name}={value} must be {span}")
            return None
        return value

    def seconds(self, name: str, default: float) -> float:
        """Returns the variable as a positive number of seconds."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            self.problems.append(f"{name}={text!r} must be a positive number of seconds")
            return default
        return value

    def finish(self) -> None:
        """Raises one ConfigError that lists every problem found."""
        if self.problems:
            raise ConfigError(
                "the launcher variables cannot be used: " + "; ".join(self.problems) + ". Start the script with "
                "`ddprun --nproc-per-node N script.py`, or set them all, or none for a single process."
            )


@dataclass(frozen=True)
class CommSettings:
    """Defaults of the communication layer that a user may set in the environment.

    Attributes:
        timeout_s: Deadline of each collective where neither the call nor the group sets one (``DDPFLOW_TIMEOUT_S``).
        stall_warning_s: A wait this long prints one line that says who is missing (``DDPFLOW_STALL_WARNING_S``).
        chunk_bytes: Largest piece that the MPI transport hands to one MPI call (``DDPFLOW_CHUNK_BYTES``).
        shared_gpus: Whether NCCL was asked to put several ranks on one GPU (``NCCL_MULTI_RANK_GPU_ENABLE``).
    """

    timeout_s: float = 300.0
    stall_warning_s: float = 10.0
    chunk_bytes: int = 64 << 20
    shared_gpus: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "CommSettings":
        """Reads the settings.

        Raises:
            ConfigError: A value is not a positive number; all such values are named.
        """
        read = _Reader(environ)
        settings = cls(
            timeout_s=read.seconds("DDPFLOW_TIMEOUT_S", cls.timeout_s),
            stall_warning_s=read.seconds("DDPFLOW_STALL_WARNING_S", cls.stall_warning_s),
            chunk_bytes=read.number("DDPFLOW_CHUNK_BYTES", 1) or cls.chunk_bytes,
            shared_gpus=read.text("NCCL_MULTI_RANK_GPU_ENABLE") not in (None, "0"),
        )
        read.finish()
        return settings


@dataclass(frozen=True)
class ProcessContext:
    """One process's place in its job.

    Attributes:
        rank: Number of this process, 0 to world_size - 1.
        world_size: Number of processes of the job.
        local_rank: Number of this process on its host.
        local_world_size: Number of processes on this host.
        node_rank: Number of this host.
        n_nodes: Number of hosts.
        master_addr: Host of rank 0, where the store listens; "" where the launcher (mpiexec) does not say.
        master_port: Port of the store; 0 where the launcher does not say.
        store_fd: Descriptor of a listening socket on which rank 0 serves the store, or None.
        token: Secret of the job, with which the store's clients prove that they belong to it.
        run_id: Name of this run of the job.
        run_dir: Private directory in which ranks of this host publish failures, or None.
        restart_count: How often the launcher has restarted the job.
        launcher: "ddprun", "torchrun", "slurm", "openmpi", "mpich", "env" (variables set by hand) or "none".
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    n_nodes: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    store_fd: int | None = None
    token: bytes = b""
    run_id: str = ""
    run_dir: str | None = None
    restart_count: int = 0
    launcher: str = "none"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "ProcessContext":
        """Reads the place of this process from its launcher's variables; without any, it is a world of one.

        Raises:
            ConfigError: Variables are missing, malformed or contradict each other; all of them are named.
        """
        read = _Reader(environ)
        launcher = _launcher(read)
        if launcher == "none":
            context = cls(token=_token(read, "single", "", 0))
        elif launcher in ("ddprun", "torchrun", "env"):
            context = _from_torchrun(read, launcher)
        elif launcher == "slurm":
            context = _from_slurm(read)
        else:
            context = _from_mpi(read, launcher)
        read.finish()
        return context

    @classmethod
    def from_env_for(
        cls, rank: int, world_size: int, meets_elsewhere: bool, environ: Mapping[str, str] = os.environ
    ) -> "ProcessContext":
        """As ``from_env``, for a process that gets rank and size as arguments (-1: not): the variables may lack them.

        Args:
            rank: Rank, or -1.
            world_size: Number of ranks, or -1.
            meets_elsewhere: Whether the ranks meet at an address or store that is an argument as well.
            environ: The environment.
        """
        if rank >= 0 and world_size >= 1 and not (environ.get("RANK") and environ.get("WORLD_SIZE")):
            if meets_elsewhere:
                environ = {name: text for name, text in environ.items() if name not in _REQUIRED}
            else:
                given = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
                environ = {"LOCAL_WORLD_SIZE": str(world_size), **environ, **given}
        return cls.from_env(environ)

    def with_rank(self, rank: int, world_size: int, master_addr: str, master_port: int) -> "ProcessContext":
        """Returns the context of an explicit ``rank`` and ``world_size``, as passed to ``init_process_group``.

        Where the environment describes another place, or none, all ranks are taken to be on one host.
        """
        same = (rank, world_size) == (self.rank, self.world_size) and self.launcher != "none"
        local = (self.local_rank, self.local_world_size) if same else (rank, world_size)
        token = self.token
        if not same or (master_addr, master_port) != (self.master_addr, self.master_port):
            token = _token(_Reader(os.environ), self.run_id, master_addr, master_port)
        return replace(
            self,
            rank=rank,
            world_size=world_size,
            local_rank=local[0],
            local_world_size=local[1],
            node_rank=self.node_rank if same else 0,
            n_nodes=self.n_nodes if same else 1,
            master_addr=master_addr,
            master_port=master_port,
            # The launcher's socket listens at the launcher's address only.
            store_fd=self.store_fd if (master_addr, master_port) == (self.master_addr, self.master_port) else None,
            token=token,
            launcher=self.launcher if same else "env",
        )


def _launcher(read: _Reader) -> str:
    if any(read.text(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        if read.text("DDPFLOW_RUN_ID"):
            return "ddprun"
        return "torchrun" if read.text("TORCHELASTIC_RUN_ID") else "env"
    if read.text("OMPI_COMM_WORLD_RANK"):
        return "openmpi"
    pmi, slurm = read.text("PMI_RANK"), read.text("SLURM_PROCID") if read.text("SLURM_STEP_NUM_TASKS") else None
    # Hydra may start its proxies with srun: then Slurm's numbers are the proxies', not the ranks'.
    if slurm and (pmi is None or (pmi, read.text("PMI_SIZE")) == (slurm, read.text("SLURM_STEP_NUM_TASKS"))):
        return "slurm"
    if pmi:
        return "mpich"
    return "env" if read.text("MASTER_ADDR") or read.text("MASTER_PORT") else "none"


def _token(read: _Reader, run_id: str, addr: str, port: int) -> bytes:
    """Returns the job's secret, or, where the launcher gives none, a name of the job that tells jobs apart."""
    text = read.text("DDPFLOW_JOB_TOKEN")
    if text is None:
        return hashlib.sha256(f"ddpflow {run_id} {addr} {port}".encode()).digest()
    if not re.fullmatch(r"([0-9a-fA-F]{2}){8,}", text):
        read.problems.append("DDPFLOW_JOB_TOKEN must be an even number of at least 16 hexadecimal digits")
        return b""
    return bytes.fromhex(text)


def _from_torchrun(read: _Reader, launcher: str) -> ProcessContext:
    rank, world = read.number("RANK", 0), read.number("WORLD_SIZE", 1)
    local_rank, local_world = read.number("LOCAL_RANK", 0), read.number("LOCAL_WORLD_SIZE", 1)
    node, nodes = read.number("GROUP_RANK", 0), read.number("GROUP_WORLD_SIZE", 1)
    addr, port = read.text("MASTER_ADDR"), read.number("MASTER_PORT", 1, 65535)
    store = read.text("DDPFLOW_STORE_ADDR") if launcher == "ddprun" else None
    if store is not None:  # scripts written for torch.multiprocessing.spawn set an address of their own
        addr, _, digits = store.rpartition(":")
        port = int(digits) if digits.isdigit() else port
    derivable = world == 1 or local_world is not None
    missing = [n for n in _REQUIRED if read.text(n) is None and not (n == "LOCAL_RANK" and derivable)]
    if missing:
        given = ", ".join(n for n in _REQUIRED if read.text(n))
        read.problems.append(f"{', '.join(missing)} not set although {given} {'is' if ',' not in given else 'are'}")
    if rank is not None and world is not None and rank >= world:
        read.problems.append(f"RANK={rank} must be below WORLD_SIZE={world}")
    if local_world is not None and world is not None and local_world > world:
        read.problems.append(f"LOCAL_WORLD_SIZE={local_world} must not exceed WORLD_SIZE={world}")
    if local_rank is not None and local_rank >= (local_world or world or local_rank + 1):
        limit = f"LOCAL_WORLD_SIZE={local_world}" if local_world else f"WORLD_SIZE={world}"
        read.problems.append(f"LOCAL_RANK={local_rank} must be below {limit}")
    if node is not None and nodes is not None and node >= nodes:
        read.problems.append(f"GROUP_RANK={node} must be below GROUP_WORLD_SIZE={nodes}")
    rank, world = rank or 0, world or 1
    if local_world is None:
        local_world = world // nodes if nodes and world % nodes == 0 else world
    run_id = read.text("DDPFLOW_RUN_ID") or read.text("TORCHELASTIC_RUN_ID") or ""
    return ProcessContext(
        rank=rank,
        world_size=world,
        local_rank=rank % local_world if local_rank is None else local_rank,
        local_world_size=local_world,
        node_rank=rank // local_world if node is None else node,
        n_nodes=-(-world // local_world) if nodes is None else nodes,
        master_addr=addr or "",
        master_port=port or 0,
        store_fd=read.number("DDPFLOW_STORE_FD", 0),
        token=_token(read, run_id, addr or "", port or 0),
        run_id=run_id,
        run_dir=read.text("DDPFLOW_RUN_DIR"),
        restart_count=read.number("DDPFLOW_RESTART_COUNT", 0) or read.number("TORCHELASTIC_RESTART_COUNT", 0) or 0,
        launcher=launcher,
    )


def _from_mpi(read: _Reader, launcher: str) -> ProcessContext:
    """Reads the variables of mpiexec, which names neither a master address nor a secret."""
    names = {
        "openmpi": (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
        "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    }[launcher]
    rank, world = read.number(names[0], 0), read.number(names[1], 1)
    local_rank, local_world = read.number(names[2], 0), read.number(names[3], 1)
    if world is None:
        read.problems.append(f"{names[1]} not set although {names[0]} is")
    elif rank is not None and rank >= world:
        read.problems.append(f"{names[0]}={rank} must be below {names[1]}={world}")
    rank, world = rank or 0, world or 1
    local_world = min(local_world or world, world)
    addr, port = read.text("MASTER_ADDR") or "", read.number("MASTER_PORT", 1, 65535) or 0
    return ProcessContext(
        rank=rank,
        world_size=world,
        local_rank=rank % local_world if local_rank is None else local_rank,
        local_world_size=local_world,
        node_rank=rank // local_world,
        n_nodes=-(-world // local_world),
        master_addr=addr,
        master_port=port,
        token=_token(read, "mpi", addr, port),
        run_id=read.text("PMI_ID") or "",
        launcher=launcher,
    )


def _from_slurm(read: _Reader) -> ProcessContext:
    rank, world = read.number("SLURM_PROCID", 0) or 0, read.number("SLURM_STEP_NUM_TASKS", 1) or 1
    node, nodes = read.number("SLURM_NODEID", 0) or 0, read.number("SLURM_STEP_NUM_NODES", 1) or 1
    counts = _expand_counts(read.text("SLURM_STEP_TASKS_PER_NODE") or "")
    local_world = counts[node] if node < len(counts) else -(-world // nodes)
    job = read.number("SLURM_JOB_ID", 0) or 0
    addr = read.text("MASTER_ADDR") or _first_host(read.text("SLURM_STEP_NODELIST") or "") or "127.0.0.1"
    port = read.number("MASTER_PORT", 1, 65535) or 20000 + job % 20000
    if rank >= world:
        read.problems.append(f"SLURM_PROCID={rank} must be below SLURM_STEP_NUM_TASKS={world}")
    run_id = f"slurm-{job}.{read.text('SLURM_STEP_ID') or '0'}"
    local_rank = read.number("SLURM_LOCALID", 0)
    return ProcessContext(
        rank=rank,
        world_size=world,
        local_rank=rank % local_world if local_rank is None else local_rank,
        local_world_size=local_world,
        node_rank=node,
        n_nodes=nodes,
        master_addr=addr,
        master_port=port,
        token=_token(read, run_id, addr, port),
        run_id=run_id,
        restart_count=read.number("SLURM_RESTART_COUNT", 0) or 0,
        launcher="slurm",
    )


def _expand_counts(text: str) -> list[int]:
    """Expands Slurm's "2(x3),1" to [2, 2, 2, 1]."""
    return [int(n) for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]


def _first_host(nodelist: str) -> str:
    """Returns the first host of Slurm's "node[03-05,9],login1"."""
    match = re.match(r"([^\[,]+)(?:\[([0-9]+))?", nodelist)
    return match.group(1) + (match.group(2) or "") if match else ""
