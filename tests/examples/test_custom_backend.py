"""The example of a transport of one's own: it runs, and the group's promises hold on it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import CollectiveTimeout, MismatchError
from ddpflow.testing import run_ranks
from tests.comm import bodies

SCRIPT = Path(__file__).parents[2] / "examples" / "custom_backend.py"


@pytest.mark.parametrize("launcher", [[], ["-m", "ddpflow.launch", "--nproc-per-node", "3"]])
def test_the_script(launcher):
    """It runs alone and as three ranks."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT)], env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert f"{3 if launcher else 1} ranks over 'store'" in done.stdout


def join() -> None:
    """Joins the world over the example's transport."""
    dist.register_backend("store", "examples.custom_backend:StoreBackend")
    dist.init_process_group("store", timeout=15)


def collectives(rank: int) -> None:
    """All dtypes and ops."""
    join()
    bodies.reductions(rank)
    bodies.asynchronous(rank)
    bodies.layouts(rank)
    bodies.coalesced(rank)
    bodies.agreement(rank)


def test_collectives():
    """What the transport does not bring itself is derived, and all dtypes work."""
    run_ranks(collectives, 3, "shm", init=False, timeout_s=60)


def mismatch(rank: int) -> None:
    """Different lengths."""
    join()
    dist.all_reduce(np.zeros(3 + rank))


def missing(rank: int) -> None:
    """Rank 1 comes too late."""
    join()
    if rank == 1:
        time.sleep(1.5)
    else:
        dist.all_reduce(np.zeros(3), timeout=0.3)


def test_errors():
    """Errors read as those of any transport."""
    for error in run_ranks(mismatch, 2, "shm", init=False, return_exceptions=True):
        assert isinstance(error, MismatchError) and "float64[3]" in str(error) and "float64[4]" in str(error)
    error = run_ranks(missing, 2, "shm", init=False, return_exceptions=True)[0]
    assert isinstance(error, CollectiveTimeout)
    assert str(error) == "rank 0: all_reduce #1 got no answer from rank 1 in 0.3 s"
