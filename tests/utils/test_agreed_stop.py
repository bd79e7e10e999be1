"""A signal to any rank becomes a stop of all ranks at one step."""

import signal

import pytest

from ddpflow.errors import ValueRangeError
from ddpflow.testing import run_ranks
from ddpflow.utils import AgreedStop


def _train(rank, every):
    with AgreedStop(every=every) as stop:
        for step in range(12):
            if (rank, step) in ((1, 4), (0, 5)):
                stop.request()
            if stop.agreed():
                return step, stop.signal
    return None


@pytest.mark.parametrize(("every", "step"), [(1, 4), (3, 5), (4, 7)])
@pytest.mark.parametrize("backend", ["thread", "shm"])
def test_all_ranks_stop_at_one_step(backend, every, step):
    """The first asking after the first request, whoever made it."""
    assert run_ranks(_train, 3, backend=backend, args=(every,)) == [(step, 0)] * 3


def _signalled(rank):
    found = []
    with AgreedStop() as stop:
        for step in range(3):
            if rank == 1 and step == 1:
                signal.raise_signal(signal.SIGTERM)
            found.append(stop.agreed())
    return found, stop.signal


def test_a_signal_to_one_rank():
    """Once agreed it stays so, and all ranks know which signal it was."""
    assert run_ranks(_signalled, 2, backend="shm") == [([False, True, True], signal.SIGTERM)] * 2


def test_handlers_are_put_back():
    """The handlers of before are in force again, after an exception too; a number below 1 is refused."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        with pytest.raises(KeyError), AgreedStop([signal.SIGUSR1]) as stop:
            signal.raise_signal(signal.SIGUSR1)
            assert stop.agreed() and stop.signal == signal.SIGUSR1 and not heard
            raise KeyError
        signal.raise_signal(signal.SIGUSR1)
        assert heard == [1]
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ValueRangeError, match="every"):
        AgreedStop(every=0)
