"""The layout of a group's control segment, and how ranks signal each other through it.

Every rank owns one area and is the only one to write there; peers read. (The one exception: a peer that has reduced
what it found in a staging chunk of an all-reduce leaves the result there.) All signals are 8-byte words that only grow,
so nothing is ever reset and no lock is needed:

    header   STATE, COMPLETED (collectives finished), POSTED (own staging chunks filled), CONSUMED (pieces of staged
             transfers for which this rank is done with its peers' chunks), then a text: why this rank failed
    slots    a ring; the slot of collective s holds its fingerprint and how far this rank has come with it
    mail     for each peer: what was sent to it and read from it
    inline   a small buffer per slot, for messages that fit
    staging  chunks through which large arrays outside of registered memory pass
    boxes    for each peer a ring of chunks, the messages sent to it

Behind the areas, in the same file, lies each rank's arena of registered memory (``shm_arena.py``). The file is sparse:
a rank reserves everything up to its inline buffers when it joins, and the rest when it first uses it.

**Memory order.** A word is one aligned 8-byte item of a ``memoryview`` cast to "q": CPython copies it with a fixed-size
``memcpy``, which compilers turn into a single load or store, so it cannot tear. Data must be visible before the word
that announces it, and must not be read before that word was seen. x86 keeps stores in order and loads in order, and the
interpreter between two statements keeps the compiler from swapping them, so nothing more is needed there (libc's
non-temporal copies end with a store fence). Other CPUs (aarch64) reorder both: there ``fence()`` is a full barrier and
is called before each announcing store and after each successful wait. See ``memory_fence``.
"""

import ctypes
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ddpflow.comm.backends.shm_segment import HUGE_BYTES, SharedFile, page_align
from ddpflow.errors import BackendUnavailable

__all__ = ["Control", "ControlLayout", "Failure", "memory_fence"]

# Words of the header, each on a cache line pair of its own where peers poll it.
STATE, FAILED_AT, TEXT_LENGTH = 0, 1, 2
COMPLETED, POSTED, CONSUMED = 16, 32, 48
_HEADER_WORDS = 64
# Values of STATE.
JOINING, ALIVE, LEFT, FAILED = 0, 1, 2, 3

# Words of a slot. ARRIVED, READY and DONE hold the collective's number plus one.
SLOT_WORDS = 16
ARRIVED, SIGNATURE, COUNT, PLACE, STEPS, READY, DONE, STATUS = range(8)

# Words about one peer: chunks sent to it, chunks read from it, elements for it in the all_to_all under way, and the
# headers of the chunks sent.
MAIL_SENT, MAIL_READ, MAIL_COUNT, MAIL_HEADERS = 0, 16, 24, 32
MAIL_CHUNKS, MAIL_HEADER_WORDS = 4, 8
_MAIL_WORDS = MAIL_HEADERS + MAIL_CHUNKS * MAIL_HEADER_WORDS

_TEXT_BYTES = 4096
_X86 = {"x86_64", "amd64", "i386", "i486", "i586", "i686", "x86"}
_SYS_MEMBARRIER = {"aarch64": 283, "arm64": 283, "riscv64": 283, "loongarch64": 283, "ppc64le": 365, "s390x": 356}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 2, 4
_SEQ_CST = 5


def memory_fence(machine: str | None = None) -> Callable[[], Any] | None:
    """Returns a full memory barrier for this CPU, or None where its own ordering (x86) is enough.

    A mutex is not one (what surrounds a lock-unlock pair may still move into it), and Python has none. Taken, in this
    order: C11's ``atomic_thread_fence`` from libatomic, a few nanoseconds plus the call; the ``membarrier`` system call
    with MEMBARRIER_CMD_GLOBAL_EXPEDITED, whose contract is that all registered processes, the caller included, pass a
    barrier.

    Args:
        machine: name of the architecture as ``platform.machine()`` gives it, which is the default.

    Raises:
        BackendUnavailable: neither exists on a CPU that needs one.
    """
    machine = (machine or platform.machine()).lower()
    if machine in _X86:
        return None
    for name in ("libatomic.so.1", "libatomic.so"):
        try:
            function = ctypes.CDLL(name).atomic_thread_fence
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = [ctypes.c_int], None
        return lambda: function(_SEQ_CST)
    number = _SYS_MEMBARRIER.get(machine)
    if number is not None:
        system_call = ctypes.CDLL(None, use_errno=True).syscall
        if system_call(number, _REGISTER_GLOBAL_EXPEDITED, 0) == 0:
            return lambda: system_call(number, _GLOBAL_EXPEDITED, 0)
    raise BackendUnavailable(
        f"backend 'shm' needs a memory barrier on {machine}: install libatomic (libatomic1), or use Linux 4.16 or later"
    )


@dataclass(frozen=True)
class ControlLayout:
    """Where everything lies in the control segment of a group, in bytes.

    Attributes:
        size: ranks of the group.
        ring: collectives that may be under way at once.
        inline_bytes: capacity of a slot's own buffer, a multiple of 64.
        chunk_bytes: size of a staging chunk, a multiple of the page size.
        n_chunks: staging chunks of each rank.
        mail_bytes: size of a message chunk; a box has MAIL_CHUNKS of them.
        arena_bytes: most registered memory that a rank can have in this group; address space of the file only.
    """

    size: int
    ring: int = 16
    inline_bytes: int = 16384
    chunk_bytes: int = 256 << 10
    n_chunks: int = 4
    mail_bytes: int = 64 << 10
    arena_bytes: int = 1 << 38

    @cached_property
    def slots_at(self) -> int:
        """Offset of the slots in a rank's area; the header's text lies before them."""
        return _HEADER_WORDS * 8 + _TEXT_BYTES

    @cached_property
    def mail_at(self) -> int:
        """Offset of the words about peers in a rank's area."""
        return self.slots_at + self.ring * SLOT_WORDS * 8

    @cached_property
    def inline_at(self) -> int:
        """Offset of the inline buffers in a rank's area."""
        return page_align(self.mail_at + self.size * _MAIL_WORDS * 8)

    @cached_property
    def staging_at(self) -> int:
        """Offset of the staging chunks in a rank's area."""
        return self.inline_at + page_align(self.ring * self.inline_bytes)

    @cached_property
    def boxes_at(self) -> int:
        """Offset of the boxes, one for each receiver, in the sender's area."""
        return self.staging_at + self.n_chunks * self.chunk_bytes

    @cached_property
    def box_bytes(self) -> int:
        """Size of one box."""
        return page_align(MAIL_CHUNKS * self.mail_bytes)

    @cached_property
    def area_bytes(self) -> int:
        """Size of a rank's area."""
        return self.boxes_at + self.size * self.box_bytes

    @cached_property
    def control_bytes(self) -> int:
        """Size of all areas: what every rank maps; a multiple of the size of large pages."""
        return -(-self.size * self.area_bytes // HUGE_BYTES) * HUGE_BYTES

    @cached_property
    def total_bytes(self) -> int:
        """Size of the file."""
        return self.control_bytes + self.size * self.arena_bytes

    def arena(self, rank: int) -> int:
        """Returns the offset of a rank's arena in the file."""
        return self.control_bytes + rank * self.arena_bytes

    def header(self, rank: int) -> int:
        """Returns the index of a rank's first header word."""
        return rank * self.area_bytes // 8

    def slots(self, rank: int) -> int:
        """Returns the index of the first word of a rank's slots."""
        return (rank * self.area_bytes + self.slots_at) // 8

    def mail(self, rank: int, peer: int) -> int:
        """Returns the index of the first of a rank's words about a peer."""
        return (rank * self.area_bytes + self.mail_at) // 8 + peer * _MAIL_WORDS

    def box(self, sender: int, receiver: int) -> int:
        """Returns the offset in bytes of the box from one rank to another."""
        return sender * self.area_bytes + self.boxes_at + receiver * self.box_bytes


@dataclass(frozen=True)
class Failure:
    """Why a rank gave its group up.

    Attributes:
        kind: "exception" (its own fault), "mismatch", "peer", "timeout", or "error" for an unreadable one.
        text: the message, whole.
        ranks: the global ranks at fault, where that is known.
    """

    kind: str
    text: str
    ranks: tuple[int, ...] = ()


class Control:
    """One rank's handle on the control segment.

    Attributes:
        file: the group's shared file.
        bytes: the control part of the file, mapped.
        words: the same as 8-byte words.
        layout: where what lies.
        index: own place in the group, 0 to size - 1.
        fence: full memory barrier, or None where the CPU needs none.
    """

    __slots__ = ("bytes", "fence", "file", "index", "layout", "words")

    def __init__(self, file: SharedFile, layout: ControlLayout, index: int) -> None:
        self.file, self.layout, self.index = file, layout, index
        self.fence = memory_fence()
        mapping = file.map(0, layout.control_bytes)
        self.bytes, self.words = mapping.bytes, mapping.words()
        start = index * layout.area_bytes
        file.reserve(start, start + layout.staging_at)

    def announce(self, word: int, value: int) -> None:
        """Stores a word after everything that was written before."""
        if self.fence is not None:
            self.fence()
        self.words[word] = value

    def state(self, rank: int) -> int:
        """Returns the STATE of a rank."""
        state: int = self.words[self.layout.header(rank) + STATE]
        if self.fence is not None:
            self.fence()
        return state

    def set_state(self, state: int, at: int = 0) -> None:
        """Sets the own STATE, and the collective at which it was reached."""
        header = self.layout.header(self.index)
        self.words[header + FAILED_AT] = at
        self.announce(header + STATE, state)

    def state_at(self, rank: int) -> int:
        """Returns the number of the collective that a rank stood at when it left or failed."""
        at: int = self.words[self.layout.header(rank) + FAILED_AT]
        return at

    def publish_failure(self, failure: Failure, at: int) -> None:
        """Publishes why this rank gives up; the first failure stands."""
        header = self.layout.header(self.index)
        if self.words[header + STATE] == FAILED:
            return
        data = _encode(failure, failure.text)
        if len(data) > _TEXT_BYTES:
            data = _encode(failure, failure.text[: _TEXT_BYTES // 8])  # JSON writes a character in at most 6 bytes
        start = (header + _HEADER_WORDS) * 8
        self.bytes[start : start + len(data)] = memoryview(data)
        self.words[header + TEXT_LENGTH] = len(data)
        self.set_state(FAILED, at)

    def failure_of(self, rank: int) -> Failure:
        """Reads the failure that a rank in state FAILED has published."""
        header = self.layout.header(rank)
        start = (header + _HEADER_WORDS) * 8
        length = max(0, min(self.words[header + TEXT_LENGTH], _TEXT_BYTES))
        try:
            fields = json.loads(self.bytes[start : start + length].tobytes())
            return Failure(str(fields["kind"]), str(fields["text"]), tuple(int(r) for r in fields["ranks"]))
        except (ValueError, KeyError, TypeError):
            return Failure("error", "a peer failed without a readable reason")


def _encode(failure: Failure, text: str) -> bytes:
    return json.dumps({"kind": failure.kind, "text": text, "ranks": failure.ranks[:64]}).encode()
