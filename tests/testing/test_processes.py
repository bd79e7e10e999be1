"""Worlds of processes: dead ranks, stuck ranks, and what may be sent to them."""

import functools
import os
import signal
import sys
import time
import warnings

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import LaunchError, PeerError
from ddpflow.testing import FaultPlan, RankDied, run_ranks
from ddpflow.testing.workers import end_idle_workers


def loop(rank: int, plan: FaultPlan) -> int:
    """Steps of a training loop, with a planned fault."""
    for step in range(6):
        plan.at(rank, step)
        dist.all_reduce(np.ones(1000))
    return step


@pytest.mark.parametrize(
    ("kind", "text"), [("kill", "was killed by SIGKILL"), ("exit", "exited with code 0"), ("raise", "InjectedError")]
)
def test_a_rank_that_dies(kind, text):
    """The others end within seconds, name the rank and how it ended; the result is RankDied or the exception."""
    start = time.monotonic()
    errors = run_ranks(loop, 3, "shm", args=(FaultPlan(kind, 1, 3),), return_exceptions=True)
    assert time.monotonic() - start < 10
    assert text in str(errors[1]) or text in type(errors[1]).__name__
    if kind != "raise":
        assert isinstance(errors[1], RankDied)
        assert (errors[1].rank, errors[1].signal) == (1, 9 if kind == "kill" else None)
    for rank in (0, 2):
        assert isinstance(errors[rank], PeerError), errors[rank]
        assert "rank 1" in str(errors[rank]) and "all_reduce #4" in str(errors[rank])


def test_a_stopped_rank():
    """A rank that is stopped answers no more: the others' deadline names it."""
    errors = run_ranks(
        loop, 2, "shm", args=(FaultPlan("stop", 1, 2),), group_timeout_s=1.0, timeout_s=3.0, return_exceptions=True
    )
    assert "got no answer from rank 1 in 1 s" in str(errors[0])
    assert isinstance(errors[1], TimeoutError)


def test_a_delay_is_no_fault():
    """A rank that is merely slow is waited for."""
    assert run_ranks(loop, 2, "shm", args=(FaultPlan("delay", 0, 2),)) == [5, 5]


def stuck_here(rank: int) -> None:
    """Rank 1 sleeps."""
    if rank == 1:
        time.sleep(60)


def test_a_rank_that_does_not_end():
    """After the deadline the error shows the stacks of the ranks that are stuck."""
    with pytest.raises(TimeoutError, match=r"ranks \[1\] of 2 did not end in 1 s") as caught:
        run_ranks(stuck_here, 2, "shm", timeout_s=1.0)
    assert "stuck_here" in str(caught.value)


def noisy(rank: int) -> None:
    """Prints, warns and dies."""
    print("these are my last words")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


def test_output_of_a_dead_rank():
    """What a rank printed before it died is in the error."""
    with pytest.raises(RankDied, match=r"(?s)rank 0 was killed by SIGTERM.*last words"):
        run_ranks(noisy, 1, "shm")


def test_functions():
    """Functions at the top of a module and partials of them can be sent; others are refused with the reason."""
    assert run_ranks(functools.partial(max, 10), 2, "shm") == [10, 10]
    with pytest.raises(LaunchError, match="at the top of a module"):
        run_ranks(lambda rank: rank, 2, "shm")


def unpicklable(rank: int) -> object:
    """A result that cannot be sent back."""
    return lambda: rank


def odd_error(rank: int) -> None:
    """An exception that cannot be sent back."""

    class Local(Exception):
        pass

    raise Local("the text stays")


def test_what_cannot_be_sent_back():
    """Results and exceptions that cannot be pickled are told, with their text."""
    with pytest.raises((AttributeError, TypeError, RuntimeError), match="lambda"):
        run_ranks(unpicklable, 1, "shm")
    with pytest.raises(RuntimeError, match="Local: the text stays"):
        run_ranks(odd_error, 1, "shm")


def clean_variables(rank: int) -> dict[str, str]:
    """The launcher's variables that a rank sees."""
    return {k: v for k, v in os.environ.items() if k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMP_NUM_THREADS")}


def test_variables(monkeypatch):
    """Ranks see their own place, not that of the test's process, and one BLAS thread."""
    monkeypatch.setenv("WORLD_SIZE", "77")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    end_idle_workers()
    seen = run_ranks(clean_variables, 2, "shm")
    assert [s["RANK"] for s in seen] == ["0", "1"] and {s["WORLD_SIZE"] for s in seen} == {"2"}
    assert {s["OMP_NUM_THREADS"] for s in seen} == {"1"}


def test_ending_the_pool():
    """The pool can be ended at any time, and starts again."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        end_idle_workers()
    assert run_ranks(clean_variables, 1, "shm")[0]["RANK"] == "0"
