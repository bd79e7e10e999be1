"""The environment of ranks: places, threads, memory settings, and what the user said."""

import dataclasses
import os

import pytest

from ddpflow.launch.environment import Placement, rank_environment
from tests.launch.conftest import PROGRAM, Starter

PLACE = Placement(
    node_rank=1,
    n_nodes=2,
    first_rank=3,
    local_world_size=2,
    world_size=5,
    master_addr="10.0.0.1",
    master_port=4321,
    token="ab" * 16,
    run_id="r",
    run_dir="/tmp/r",
    restart_count=2,
)


def test_place_of_a_rank():
    """Global and local numbers, address, secret and restart count appear under torchrun's names and ours."""
    made = rank_environment({"HOME": "/h", "DDPFLOW_STORE_FD": "9"}, PLACE, 1, None, 4, {})
    assert made["HOME"] == "/h"
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    assert [made[name] for name in names.split()] == ["4", "1", "5", "2", "1", "2", "10.0.0.1", "4321"]
    assert made["DDPFLOW_JOB_TOKEN"] == "ab" * 16
    assert made["DDPFLOW_RESTART_COUNT"] == "2"
    assert "DDPFLOW_STORE_FD" not in made
    first = rank_environment({}, dataclasses.replace(PLACE, first_rank=0), 0, 7, 4, {})
    assert (first["RANK"], first["DDPFLOW_STORE_FD"]) == ("0", "7")


def test_users_word_counts():
    """What the user has set stays: threads where None says so, malloc settings, and --env above all."""
    base = {"OMP_NUM_THREADS": "3", "MALLOC_TRIM_THRESHOLD_": "1"}
    made = rank_environment(base, PLACE, 0, None, None, {"RANK": "77", "MINE": "x"})
    assert made["OMP_NUM_THREADS"] == "3" and "MKL_NUM_THREADS" not in made
    assert made["MALLOC_TRIM_THRESHOLD_"] == "1"
    assert (made["RANK"], made["MINE"]) == ("77", "x")


@pytest.mark.parametrize(("version", "threshold"), [("glibc 2.36", 1 << 30), ("glibc 2.28", 1 << 25), ("musl", None)])
def test_memory_settings_fit_the_c_library(monkeypatch, version, threshold):
    """Old glibc takes no threshold above 32 MiB, and other C libraries get none."""
    monkeypatch.setattr(os, "confstr", lambda name: version)
    made = rank_environment({}, PLACE, 0, None, 1, {})
    assert made.get("MALLOC_MMAP_THRESHOLD_") == (None if threshold is None else str(threshold))
    assert ("MALLOC_TRIM_THRESHOLD_" in made) == (threshold is not None)


def test_threads_are_shared_out(ddprun: Starter):
    """Ranks share the cores that the launcher may use; a number given by flag or environment wins; one line tells."""
    script = ddprun.script("print(os.environ['OMP_NUM_THREADS'], os.environ.get('OPENBLAS_NUM_THREADS'))")
    cores = sorted(os.sched_getaffinity(0))[:2]
    program = ("taskset", "-c", ",".join(map(str, cores)), *PROGRAM)

    def threads(*flags: object, env: dict[str, str] | None = None) -> set[str]:
        result = ddprun.start(*flags, script, program=program, env=env).result()
        assert result.code == 0, result.err
        return {line.rpartition("] ")[2] for line in result.out.splitlines()}

    assert threads("-n", 2) == {"1 1"}
    assert threads("-n", 1) == {f"{len(cores)} {len(cores)}"}
    assert threads("-n", 2, "--threads-per-rank", 3, env={"OMP_NUM_THREADS": "5"}) == {"3 3"}
    assert threads("-n", 2, env={"OMP_NUM_THREADS": "5"}) == {"5 None"}
    assert "2 ranks, 1 BLAS thread each" in ddprun.start("-n", 2, script, program=program).result().err


def test_ranks_are_bound_to_their_cores(ddprun: Starter):
    """--bind cores gives each rank cores of its own, as far as there are enough."""
    result = ddprun.run("print(*sorted(os.sched_getaffinity(0)))", "-n", 2, "--bind", "cores", "--show-ranks", "1")
    cores = sorted(os.sched_getaffinity(0))
    assert result.out == f"[rank 1] {' '.join(map(str, cores[len(cores) // 2 :] if len(cores) > 1 else cores))}\n"
