"""What ranks print, on its way to terminal and files: whole lines, each with its rank, nothing held back or lost."""

import contextlib
import os
import select
import stat
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from ddpflow.launch.loop import Loop, Timer

__all__ = ["RECENT", "Console", "Stream", "rank_prefix"]

_CHUNK = 65536
# A pipe that poll() calls writable takes this much without blocking (PIPE_BUF).
_ATOMIC = 4096
# Above this, the ranks are made to wait until the reader of our output has caught up.
_HIGH_WATER = 1 << 20
_LONGEST_LINE = 8 << 20
# How much of a stream's end is kept for the report on a failure.
RECENT = 16384
_PROMPT_S = 0.1
_COLOURS = (36, 33, 32, 35, 34, 31)


def rank_prefix(rank: int, colour: bool) -> bytes:
    """Returns the mark in front of each line of a rank."""
    if colour:
        return b"\x1b[%dm[rank %d]\x1b[0m " % (_COLOURS[rank % len(_COLOURS)], rank)
    return b"[rank %d] " % rank


class Console:
    """The launcher's own standard output or error, which takes whole lines and one progress bar below them.

    Writing never blocks on a pipe: what its reader does not take yet is kept, and ranks are made to wait beyond 1 MiB.

    Args:
        loop: Event loop that writes what is kept.
        fd: Descriptor to write to.
        on_closed: Called once, with the reason, when nothing can be written any more: the reader has gone, say.
    """

    def __init__(self, loop: Loop, fd: int, on_closed: Callable[[OSError], None]) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self._waiting: list[Callable[[], None]] = []
        self._loop = loop
        self._on_closed = on_closed
        self._closed = False
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._bar: bytes | None = None
        mode = os.fstat(fd).st_mode
        self._never_blocks = stat.S_ISREG(mode)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting to be written that ranks must wait."""
        return self._queued > _HIGH_WATER

    def when_drained(self, call: Callable[[], None]) -> None:
        """Calls ``call`` once, when there is room again."""
        self._waiting.append(call)

    def write(self, lines: bytes) -> None:
        """Prints whole lines, above the progress bar if one stands on the last line."""
        if self._bar is None:
            self._put(lines)
        elif self.is_terminal:
            self._put(b"\r\x1b[K" + lines + self._bar)
        else:
            self._put(b"\n" + lines)
            self._bar = None

    def write_bar(self, bar: bytes) -> None:
        """Prints an unfinished line, over the one that was there; nothing wipes that out."""
        if not bar:
            if self._bar is not None:
                self._put(b"\r\x1b[K" if self.is_terminal else b"\r" + b" " * len(self._bar) + b"\r")
                self._bar = None
            return
        start = b"\r" if self._bar is not None else b""
        self._put(start + bar + (b"\x1b[K" if self.is_terminal else b""))
        self._bar = bar

    def finish_bar(self, line: bytes) -> None:
        """Prints the final state of the progress bar, a whole line."""
        start = b"\r" if self._bar is not None else b""
        self._bar = None
        self._put(start + line)

    @property
    def is_idle(self) -> bool:
        """Whether everything has been written."""
        return not self._queue

    def finish(self) -> None:
        """Ends the line that a progress bar stands on."""
        if self._bar is not None:
            self._bar = None
            self._put(b"\n")

    def _put(self, data: bytes) -> None:
        if self._closed:
            return
        if self._never_blocks and not self._queue:
            self._queue.append(data)
            self._queued += len(data)
            while self._queue and not self._closed:
                self._write_some()
            return
        was_empty = not self._queue
        for start in range(0, len(data), _ATOMIC):
            self._queue.append(data[start : start + _ATOMIC])
        self._queued += len(data)
        while was_empty and self._queue and not self._closed and self._poll.poll(0):
            self._write_some()
        if was_empty and self._queue:
            self._loop.add_writer(self.fd, self._write_ready)

    def _write_ready(self) -> None:
        self._write_some()
        if not self._queue:
            self._loop.remove_writer(self.fd)
        self._wake()

    def _wake(self) -> None:
        if not self.is_full:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def _write_some(self) -> None:
        data = self._queue.popleft()
        try:
            written = os.write(self.fd, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._closed = True
            self._queue.clear()
            self._queued = 0
            self._loop.remove_writer(self.fd)
            self._wake()
            self._on_closed(error)
            return
        self._queued -= written
        if written < len(data):
            self._queue.appendleft(data[written:])


class Stream:
    """One rank's standard output or error: reads the pipe, cuts lines, feeds the console and the log file.

    Args:
        loop: Event loop that says when there is something to read.
        fd: Reading end of the pipe; this object closes it.
        console: Where lines go, or None to show nothing.
        prefix: Put in front of each line.
        file: Gets every byte as it came, or None.
        live: Whether unfinished lines are shown: progress bars at once, prompts on a terminal after a moment. At most
            one rank's should be.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        console: Console | None,
        prefix: bytes,
        file: BinaryIO | None = None,
        live: bool = False,
    ) -> None:
        self.fd = fd
        self.is_open = True
        self.recent = b""
        self._loop, self._console, self._prefix, self._file, self._live = loop, console, prefix, file, live
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._has_bar = False
        self._prompt: Timer | None = None
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read_ready)

    def drain(self) -> None:
        """Reads what is there now, without waiting for the end of the stream, and closes it."""
        while self.is_open and self._read():
            pass
        self._end()

    def _read_ready(self) -> None:
        self._read()
        if self._console is not None and self._console.is_full:
            self._loop.remove_reader(self.fd)
            self._console.when_drained(self._resume)

    def _resume(self) -> None:
        if self.is_open:
            self._loop.add_reader(self.fd, self._read_ready)

    def _read(self) -> bool:
        """Takes one piece; returns whether there was one."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:
                self._file = None
                if self._console is not None:
                    self._console.write(b"ddprun: a log file is cut short: %s\n" % str(error).encode())
        self.recent = (self.recent + data)[-RECENT:]
        if self._console is not None:
            self._show(data, self._console)
        return True

    def _show_prompt(self) -> None:
        """Shows an unfinished line that waits for an answer, perhaps."""
        if self._tail and self._console is not None:
            self._has_bar = True
            self._console.write_bar(self._prefix + b"".join(self._tail))

    def _show(self, data: bytes, console: Console) -> None:
        if self._prompt is not None:
            self._prompt.cancel()
        cut = data.rfind(b"\n") + 1
        if cut:
            self._tail.append(data[:cut])
            lines = b"".join(self._tail)
            self._tail = [data[cut:]] if cut < len(data) else []
            self._tail_size = len(data) - cut
            self._show_lines(lines, console)
        else:
            self._tail.append(data)
            self._tail_size += len(data)
        if self._live and self._tail and (self._has_bar or b"\r" in data[cut:]):
            self._tail = [b"".join(self._tail).rpartition(b"\r")[2]]
            self._tail_size = len(self._tail[0])
            self._has_bar = True
            # A bar that its program has wiped out (blanks, and back) leaves no prefix behind.
            console.write_bar(self._prefix + self._tail[0] if self._tail[0].strip() else b"")
        elif self._tail_size > _LONGEST_LINE:
            self._show_lines(b"".join(self._tail) + b"\n", console)
            self._tail, self._tail_size = [], 0
        elif self._live and self._tail and console.is_terminal:
            self._prompt = self._loop.call_later(_PROMPT_S, self._show_prompt)

    def _show_lines(self, lines: bytes, console: Console) -> None:
        if self._has_bar:
            # The first line ends the progress bar: of its states only the last is news.
            first, _, lines = lines.partition(b"\n")
            self._has_bar = False
            last = first.rstrip(b"\r").rpartition(b"\r")[2]
            if last.strip():
                console.finish_bar(self._prefix + last + b"\n")
        if lines:
            body = lines[:-1].replace(b"\n", b"\n" + self._prefix) if self._prefix else lines[:-1]
            console.write(self._prefix + body + b"\n")

    def _end(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self._prompt is not None:
            self._prompt.cancel()
        if self._tail and self._console is not None:
            self._show_lines(b"".join(self._tail) + b"\n", self._console)
            self._tail = []
        self._loop.remove_reader(self.fd)
        os.close(self.fd)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
