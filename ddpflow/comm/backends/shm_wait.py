"""How a rank waits for its peers: a short spin, then yields, then sleeps with back-off; and who is still alive.

Polling one shared word costs some 40 ns, so a peer that is about to answer is seen at once; a peer that is not is
waited for at a few per cent of one core at most. Where ranks outnumber cores a spinning rank only keeps the one it
waits for from running: it yields at once.
"""

import os
import select
import time
import weakref

from ddpflow.comm.backends.shm_handshake import PeerHandle
from ddpflow.comm.backends.shm_segment import process_start_time

__all__ = ["PeerProcess", "Peers", "Waiter"]

_MOST_SPINS = 2000  # 50 to 100 microseconds
_FEWEST_SPINS = 60
_GLANCES = 300  # some 10 microseconds
_YIELDS = 1000
_YIELDS_IN_A_CROWD = 20  # a rank that yields to ranks that wait as well helps nobody; one that sleeps does
_YIELD_S = 1e-3
_SHORTEST_SLEEP_S = 50e-6
_LONGEST_SLEEP_S = 4e-3
# A sleep is this part of what was waited so far: it delays a late answer by at most this part as well.
_SLEEP_PART = 1 / 16


def usable_cores() -> int:
    """Returns the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))


class Waiter:
    """Waits for single words of shared memory.

    Args:
        words: shared memory as 8-byte words.
        ranks_here: ranks that compete for the cores of this host.

    Attributes:
        may_spin: whether each rank can have a core.
    """

    __slots__ = ("_spins", "_words", "_yields", "may_spin")

    def __init__(self, words: memoryview, ranks_here: int) -> None:
        self._words = words
        self.may_spin = ranks_here <= usable_cores()
        self._spins = _MOST_SPINS if self.may_spin else 0
        self._yields = _YIELDS if self.may_spin else _YIELDS_IN_A_CROWD

    def glance(self, index: int, value: int) -> bool:
        """Waits some microseconds for word ``index`` to reach ``value``; returns whether it has."""
        words = self._words
        for _ in range(min(self._spins, _GLANCES)):
            if words[index] >= value:
                return True
        return False

    def spin(self, index: int, value: int) -> bool:
        """Waits up to a millisecond for word ``index`` to reach ``value``; returns whether it has.

        How long it spins before it yields depends on what has helped before: next to other programs two ranks may share
        a core, and then a rank that spins only keeps the one it waits for from running.
        """
        words, spins = self._words, self._spins
        for _ in range(spins):
            if words[index] >= value:
                self._spins = min(2 * spins, _MOST_SPINS)
                return True
        self._spins = max(spins // 2, _FEWEST_SPINS) if spins else 0
        sched_yield, clock = os.sched_yield, time.monotonic
        until = clock() + _YIELD_S
        for _ in range(self._yields):
            if words[index] >= value:
                return True
            sched_yield()
            if clock() >= until:  # next to other programs one yield may take milliseconds
                break
        reached: bool = words[index] >= value
        return reached

    def sleep(self, waited_s: float) -> None:
        """Sleeps for a small part of the time waited so far."""
        time.sleep(min(max(waited_s * _SLEEP_PART, _SHORTEST_SLEEP_S), _LONGEST_SLEEP_S))


class PeerProcess:
    """Another process of this host; one object per process, however many groups it shares with this one."""

    _known: "weakref.WeakValueDictionary[tuple[int, int], PeerProcess]" = weakref.WeakValueDictionary()

    def __init__(self, handle: PeerHandle) -> None:
        self.pid, self.start_time = handle.pid, handle.start_time
        self._pidfd = handle.pidfd

    @classmethod
    def of(cls, handle: PeerHandle) -> "PeerProcess":
        """Returns the object of a process, and takes the handle's pidfd over."""
        key = (handle.pid, handle.start_time)
        known = cls._known.get(key)
        if known is None:
            known = cls._known[key] = cls(handle)
        elif handle.pidfd is not None:
            os.close(handle.pidfd)
        return known

    def is_alive(self) -> bool:
        """Whether the process still runs (a stopped one does, a zombie does not)."""
        if self._pidfd is not None:
            poll = select.poll()  # not kept: one must not be used by two threads at once
            poll.register(self._pidfd, select.POLLIN)
            return not poll.poll(0)
        return process_start_time(self.pid) == self.start_time and self._letter() not in ("Z", "X")

    def is_stopped(self) -> bool:
        """Whether the process is stopped by a signal or a debugger."""
        return self._letter() in ("T", "t")

    def _letter(self) -> str:
        """Returns the kernel's letter for the state of the process, or "" where it is not visible."""
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                text = file.read()
        except OSError:
            return ""
        return text[text.rindex(")") + 2 :][:1]

    def __del__(self) -> None:
        """Closes the pidfd."""
        pidfd, self._pidfd = getattr(self, "_pidfd", None), None
        if pidfd is not None:
            os.close(pidfd)


class Peers:
    """The processes of a group.

    Attributes:
        processes: the process of each rank by index in the group.

    Args:
        handles: handle of each rank's process by index in the group.
    """

    def __init__(self, handles: dict[int, PeerHandle]) -> None:
        self.processes = {r: PeerProcess.of(h) for r, h in sorted(handles.items())}
