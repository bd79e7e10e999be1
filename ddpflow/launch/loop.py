"""A small event loop on poll(): descriptors, timers and signals in one thread, asleep until something happens."""

import heapq
import itertools
import os
import select
import signal
import time
from collections.abc import Callable, Iterable

__all__ = ["Loop", "Timer"]

READ, WRITE = select.POLLIN, select.POLLOUT
# poll() also reports hang-ups and errors; a reader learns of them by reading.
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Timer:
    """A call that is due at a time of the monotonic clock, and can be cancelled."""

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due, self.call = due, call
        self.cancelled = False

    def cancel(self) -> None:
        """Forgets the call."""
        self.cancelled = True


class Loop:
    """Waits for descriptors, timers and signals, and calls what was registered for them."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._wakeup: tuple[int, int] | None = None
        self._previous: dict[int, object] = {}

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        """Calls ``call`` whenever ``fd`` can be read or was hung up."""
        self._readers[fd] = call
        self._register(fd)

    def add_writer(self, fd: int, call: Callable[[], None]) -> None:
        """Calls ``call`` whenever ``fd`` can be written."""
        self._writers[fd] = call
        self._register(fd)

    def remove_reader(self, fd: int) -> None:
        """Stops watching ``fd`` for reading; unknown descriptors are passed over."""
        if self._readers.pop(fd, None):
            self._register(fd)

    def remove_writer(self, fd: int) -> None:
        """Stops watching ``fd`` for writing; unknown descriptors are passed over."""
        if self._writers.pop(fd, None):
            self._register(fd)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Calls ``call`` once, ``delay_s`` seconds from now, unless the returned timer is cancelled."""
        timer = Timer(time.monotonic() + delay_s, call)
        heapq.heappush(self._timers, (timer.due, next(self._count), timer))
        return timer

    def handle_signals(self, numbers: Iterable[int], call: Callable[[int], None]) -> None:
        """Calls ``call(number)`` from the loop for each of these signals; ``close`` restores what was there before.

        A signal that was ignored when the process started (nohup) stays ignored.
        """
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wakeup = (reader, writer)
        wanted = set(numbers)
        for number in wanted:
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            # The handler itself does nothing: the number arrives through the wake-up descriptor, in order.
            self._previous[number] = signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def read() -> None:
            for number in os.read(reader, 512):
                if number in wanted:
                    call(number)

        self.add_reader(reader, read)

    def close(self) -> None:
        """Restores the signal handlers."""
        if self._wakeup is None:
            return
        signal.set_wakeup_fd(-1)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self.remove_reader(self._wakeup[0])
        for fd in self._wakeup:
            os.close(fd)
        self._wakeup = None

    def run_until(self, done: Callable[[], bool]) -> None:
        """Serves events until ``done()`` is true; it is asked after each round."""
        while not done():
            self.run_once()

    def run_once(self, timeout_s: float | None = None) -> None:
        """Waits for the next event, at most ``timeout_s``, and serves all that are ready."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if self._timers:
            until = max(0.0, self._timers[0][0] - time.monotonic())
            timeout_s = until if timeout_s is None else min(timeout_s, until)
        # Rounded up: a timer must not spin through its last fraction of a millisecond.
        ready = self._poll.poll(None if timeout_s is None else int(timeout_s * 1000) + (timeout_s > 0))
        for fd, events in ready:
            if events & _READABLE and (reader := self._readers.get(fd)):
                reader()
            if events & (WRITE | select.POLLERR | select.POLLHUP) and (writer := self._writers.get(fd)):
                writer()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.call()

    def _register(self, fd: int) -> None:
        events = (READ if fd in self._readers else 0) | (WRITE if fd in self._writers else 0)
        if events:
            self._poll.register(fd, events)
        else:
            self._poll.unregister(fd)
