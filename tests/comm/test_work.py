"""Work objects that are made of others."""

from datetime import timedelta

import pytest

from ddpflow.comm.work import COMPLETED, ChainedWork, CompletedWork, GroupedWork, Work, seconds
from ddpflow.errors import CommError, ValueRangeError


class Steps(Work):
    """Ends after a number of polls, well or with an error."""

    def __init__(self, polls: int, error: Exception | None = None) -> None:
        self.polls, self.error = polls, error

    def wait(self, timeout=None):
        """Ends at once."""
        self.polls = 0
        if self.error is not None:
            raise self.error
        return True

    def progress(self):
        """Counts one poll."""
        self.polls -= self.polls > 0
        return self.polls == 0

    def exception(self):
        """The error, at the end."""
        return self.error if self.polls == 0 else None


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), True, "2"])
def test_seconds_refuses(value):
    """A time-out is a positive number."""
    with pytest.raises(ValueRangeError, match="positive"):
        seconds(value, 1.0)


def test_seconds():
    """Numbers, timedeltas and the default."""
    assert [seconds(v, 7.0) for v in (2, 0.5, timedelta(minutes=1), None)] == [2.0, 0.5, 60.0, 7.0]


def test_completed():
    """An operation that was over at once."""
    work = CompletedWork("result", 3)
    assert work.wait() and work.is_completed() and work.is_success()
    assert (work.result(), work.source_rank(), work.exception()) == ("result", 3, None)
    assert COMPLETED.wait(timedelta(seconds=1)) and COMPLETED.source_rank() == -1
    with pytest.raises(ValueRangeError):
        work.wait(-1)


def test_grouped():
    """A group of operations ends with its last, and polls all of them."""
    works = [Steps(1), Steps(3), Steps(2)]
    grouped = GroupedWork(works)
    assert not grouped.progress() and [w.polls for w in works] == [0, 2, 1]
    assert not grouped.is_completed()
    assert grouped.is_completed() and grouped.is_success() and grouped.wait()
    failing = GroupedWork([Steps(0), Steps(0, CommError("x"))])
    assert isinstance(failing.exception(), CommError) and not failing.is_success()
    with pytest.raises(CommError):
        failing.wait()


def test_chained_runs_its_step_once():
    """The last step runs once, whether the end is seen by polling or by waiting."""
    calls = []
    work = ChainedWork(Steps(2), lambda: calls.append(1) or "done")
    assert not work.progress() and calls == []
    assert work.progress() and calls == [1] and work.result() == "done"
    assert work.wait() and work.is_completed() and calls == [1]


def test_chained_errors():
    """Neither a failed operation nor a failing step is lost."""
    calls = []
    work = ChainedWork(Steps(0, CommError("lost")), lambda: calls.append(1))
    assert work.progress() and calls == [] and isinstance(work.exception(), CommError)
    with pytest.raises(CommError, match="lost"):
        work.wait()
    work = ChainedWork(Steps(0), lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        work.wait()
    assert isinstance(work.exception(), ZeroDivisionError) and not work.is_success()
