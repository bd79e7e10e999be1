"""What a rank is doing, for ``ddprun --status``: a small file in the run directory, written like memory.

The file ``progress.<rank>`` holds 64 words of 8 bytes: see the constants below for the first, and UTF-8 text from word
16 on. Counting a collective is one assignment to a memoryview, about 40 ns; text is written only by a wait that has
become slow, so that the hot path never formats any.
"""

import contextlib
import mmap
import os
import struct
import time
from dataclasses import dataclass

__all__ = ["COLLECTIVES", "STEPS", "Progress", "Snapshot", "read_progress"]

# Words of the file.
_MAGIC, COLLECTIVES, STEPS, _WAITING_SINCE, _TEXT_LENGTH = range(5)
_MAGIC_WORD = int.from_bytes(b"ddpflow1", "little")
_SIZE, _TEXT = 512, 128


class Progress:
    """One rank's own record.

    ``words[COLLECTIVES]`` is the number of the latest collective, ``words[STEPS]`` that of finished backward passes;
    both may be assigned at any time by anyone who knows better.

    Args:
        run_dir: The launcher's run directory, or None: then the record is kept, but nobody sees it.
        rank: Global rank.
    """

    def __init__(self, run_dir: str | None, rank: int) -> None:
        memory: mmap.mmap | bytearray = bytearray(_SIZE)
        if run_dir is not None:
            with contextlib.suppress(OSError):
                memory = _map(os.path.join(run_dir, f"progress.{rank}"))
        self._bytes = memoryview(memory)
        self.words = self._bytes.cast("Q")
        self.words[_MAGIC] = _MAGIC_WORD

    def waiting(self, text: str, waited_s: float = 0.0) -> None:
        """Says what this rank has waited for since ``waited_s``; for slow waits, with ``resumed`` at their end."""
        data = text.encode()[: _SIZE - _TEXT]
        self.words[_WAITING_SINCE] = 0
        self._bytes[_TEXT : _TEXT + len(data)] = data
        self.words[_TEXT_LENGTH] = len(data)
        self.words[_WAITING_SINCE] = time.monotonic_ns() - int(waited_s * 1e9)

    def resumed(self) -> None:
        """Says that the wait is over."""
        self.words[_WAITING_SINCE] = 0


@dataclass(frozen=True)
class Snapshot:
    """What a rank's record says.

    Attributes:
        collectives: Number of the latest collective.
        steps: Number of finished backward passes.
        waiting_for: What the rank is waiting for, or "".
        waited_s: For how long.
    """

    collectives: int
    steps: int
    waiting_for: str
    waited_s: float


def read_progress(run_dir: str, rank: int) -> Snapshot | None:
    """Returns what a rank of this host has published, or None where there is nothing."""
    try:
        with open(os.path.join(run_dir, f"progress.{rank}"), "rb") as file:
            data = file.read(_SIZE)
    except OSError:
        return None
    if len(data) != _SIZE:
        return None
    magic, collectives, steps, since, length = struct.unpack_from("5Q", data)
    if magic != _MAGIC_WORD:
        return None
    text = data[_TEXT : _TEXT + length].decode(errors="replace") if since else ""
    return Snapshot(collectives, steps, text, max(0.0, (time.monotonic_ns() - since) / 1e9) if since else 0.0)


def _map(path: str) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Space is reserved here: a full disk must not kill the rank by SIGBUS later.
        os.posix_fallocate(fd, 0, _SIZE)
        return mmap.mmap(fd, _SIZE)
    finally:
        os.close(fd)
