"""Worlds of threads: closures, and ranks that do not end."""

import threading

import pytest

import ddpflow.comm as dist
from ddpflow.testing import run_ranks
from ddpflow.testing.threads import run_threads


def test_closures():
    """Any function will do."""
    seen = []
    run_ranks(lambda rank: seen.append(rank), 3)
    assert sorted(seen) == [0, 1, 2]


def test_a_rank_that_does_not_end():
    """After the deadline the error shows which ranks are stuck, and where."""
    stop = threading.Event()

    def stuck_here(rank: int) -> None:
        if rank == 1:
            stop.wait(30)

    with pytest.raises(TimeoutError, match=r"ranks \[1\] of 2 did not end in 0.2 s") as caught:
        run_ranks(stuck_here, 2, timeout_s=0.2)
    assert "stuck_here" in str(caught.value) and "rank 0" not in str(caught.value)
    stop.set()


def test_outcomes():
    """Each rank's outcome has its number, value and error."""
    outcomes = run_threads(lambda rank, x: x + rank, 2, "thread", (10,), 5.0, 5.0, True)
    assert [(o.rank, o.value, o.error) for o in outcomes] == [(0, 10, None), (1, 11, None)]
    assert not dist.is_initialized()
