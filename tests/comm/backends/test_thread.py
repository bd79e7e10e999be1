"""The thread transport: the conformance checks, and what is its own."""

from typing import ClassVar

import pytest

from ddpflow.comm.backends.thread import ThreadBackend
from ddpflow.testing import run_ranks
from tests.comm.conformance import Conformance


class TestThread(Conformance):
    """Ranks that are threads."""

    backend: ClassVar[str] = "thread"


def test_rooms_are_not_kept():
    """Once a world of threads has ended, nothing of it stays in the process."""
    import gc

    from ddpflow.comm.backends import thread

    run_ranks(lambda rank: None, 2)
    gc.collect()
    assert len(thread._rooms) == 0
    assert ThreadBackend.devices == ("cpu",)


def test_worlds_do_not_mix():
    """A failing world of threads does not disturb the next."""
    with pytest.raises(ZeroDivisionError):
        run_ranks(lambda rank: 1 // rank, 2)
    assert run_ranks(lambda rank: rank * 2, 3) == [0, 2, 4]
