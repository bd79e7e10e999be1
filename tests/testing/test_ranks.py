"""run_ranks, with threads and with processes."""

import os
import threading

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import ConfigError, PeerError, ValueRangeError
from ddpflow.testing import run_ranks


def total(rank: int, start: float = 0.0) -> float:
    """A sum over the ranks."""
    x = np.array([rank + start])
    dist.all_reduce(x)
    return float(x[0])


def fail_in_one(rank: int) -> None:
    """Rank 1 raises, the others wait for it."""
    if rank == 1:
        raise ZeroDivisionError("on purpose")
    dist.barrier()


@pytest.mark.parametrize("backend", ["thread", "shm"])
class TestBoth:
    """What holds for both kinds of ranks."""

    def test_results(self, backend):
        """Results come in order of rank, arguments go to every rank."""
        assert run_ranks(total, 3, backend) == [3.0] * 3
        assert run_ranks(total, 2, backend, args=(0.5,)) == [2.0] * 2
        assert run_ranks(total, 1, backend) == [0.0]

    def test_root_cause(self, backend):
        """The exception that is raised is the first rank's own, with its rank and traceback as a note."""
        with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
            run_ranks(fail_in_one, 3, backend)
        notes = "\n".join(caught.value.__notes__)
        assert "raised by rank 1" in notes and "fail_in_one" in notes
        assert run_ranks(total, 3, backend) == [3.0] * 3

    def test_exceptions_as_results(self, backend):
        """On request every rank's exception is returned."""
        errors = run_ranks(fail_in_one, 3, backend, return_exceptions=True)
        assert [type(e) for e in errors] == [PeerError, ZeroDivisionError, PeerError]

    def test_without_init(self, backend):
        """Ranks may join by themselves."""
        assert run_ranks(joined, 2, backend, init=False) == [False, False]

    def test_number_of_ranks(self, backend):
        """There is at least one."""
        with pytest.raises(ValueRangeError, match="at least one rank"):
            run_ranks(total, 0, backend)


def joined(rank: int) -> bool:
    """Whether the world exists already."""
    return dist.is_initialized()


def where(rank: int) -> tuple[int, int]:
    """Process and thread of a rank."""
    return os.getpid(), threading.get_ident()


def test_kinds():
    """Threads share this process; processes are others, and are used again."""
    threads = run_ranks(where, 2)
    assert {pid for pid, _ in threads} == {os.getpid()} and len({ident for _, ident in threads}) == 2
    first = {pid for pid, _ in run_ranks(where, 2, "shm")}
    assert len(first) == 2 and os.getpid() not in first
    assert {pid for pid, _ in run_ranks(where, 2, "shm")} == first


def test_unknown_backend():
    """A wrong name is told before anything starts."""
    with pytest.raises(ConfigError, match="no backend"):
        run_ranks(total, 2, "gloo")
