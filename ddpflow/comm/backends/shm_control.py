"""The layout of a group's control segment, and how ranks signal each other through it.

Every rank owns one area and is the only one to write there; peers read. All signals are 8-byte words that only grow, so
nothing is ever reset and no lock is needed:

    header   STATE, COMPLETED (collectives finished), POSTED / REDUCED / CONSUMED (chunks of staged transfers),
             then a text: why this rank failed
    slots    a ring; the slot of collective s holds its fingerprint and how far this rank has come with it
    inline   a small buffer per slot, for messages that fit
    staging  chunks through which large arrays outside of registered memory pass
    mailbox  per sender a ring of chunks for send and receive

The file is sparse: a rank reserves its header, slots and inline buffers when it joins, staging and mailboxes on first use.

**Memory order.** A word is one aligned 8-byte item of a `memoryview` cast to "q": CPython copies it with a fixed-size
`memcpy`, which compilers turn into a single load or store, so it cannot tear. Data must be visible before the word that
announces it, and must not be read before that word was seen. x86 keeps stores in order and loads in order, and the
interpreter between two statements keeps the compiler from swapping them, so nothing more is needed there (libc's
non-temporal copies end with a store fence). Other CPUs (aarch64) reorder both: there `fence()` is a full barrier and is
called before each announcing store and after each successful wait. See `memory_fence`.
"""

import ctypes
import json
import mmap
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpflow.comm.backends.shm_segment import Segment, page_align
from ddpflow.errors import BackendUnavailable

__all__ = ["ControlLayout", "Failure", "memory_fence", "read_failure", "write_failure"]

# Words of the header, each on a cache line pair of its own where peers poll it.
STATE, FAILED_AT, TEXT_LENGTH = 0, 1, 2
COMPLETED, POSTED, REDUCED, CONSUMED = 16, 32, 48, 64
_HEADER_WORDS = 80
# Values of STATE.
JOINING, ALIVE, LEFT, FAILED = 0, 1, 2, 3

# Words of a slot. ARRIVED, READY and DONE hold the collective's number plus one.
SLOT_WORDS = 16
ARRIVED, SIGNATURE, COUNT, PLACE, STEPS, READY, DONE, STATUS = range(8)

# Words of a mailbox: chunks written by the sender, chunks read by the receiver, and the message's header.
MAIL_WRITTEN, MAIL_READ, MAIL_HEADER = 0, 16, 32
_MAIL_WORDS = 64

_TEXT_BYTES = 3072
_X86 = {"x86_64", "amd64", "i386", "i486", "i586", "i686", "x86"}
_SYS_MEMBARRIER = {"aarch64": 283, "arm64": 283, "riscv64": 283, "loongarch64": 283, "ppc64le": 365, "s390x": 356}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 2, 4
_SEQ_CST = 5


def memory_fence(machine: str | None = None) -> Callable[[], Any] | None:
    """Returns a full memory barrier for this CPU, or None where its own ordering (x86) is enough.

    A mutex is not one (what surrounds a lock-unlock pair may still move into it), and Python has none. Taken, in this
    order: C11's `atomic_thread_fence` from libatomic, a few nanoseconds plus the call; the `membarrier` system call with
    MEMBARRIER_CMD_GLOBAL_EXPEDITED, whose contract is that all registered processes, the caller included, pass a barrier.

    Args:
        machine: name of the architecture as `platform.machine()` gives it, which is the default.

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
        f"the shm backend needs a memory barrier on {machine}: install libatomic (libatomic1), or use Linux 4.16 or later"
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
        mail_bytes: size of a mailbox chunk; a mailbox has two.
    """

    size: int
    ring: int = 16
    inline_bytes: int = 8192
    chunk_bytes: int = 256 << 10
    n_chunks: int = 4
    mail_bytes: int = 32 << 10

    @property
    def slots_at(self) -> int:
        """Offset of the slots in a rank's area; the header's text lies before them."""
        return _HEADER_WORDS * 8 + _TEXT_BYTES

    @property
    def inline_at(self) -> int:
        """Offset of the inline buffers in a rank's area."""
        return page_align(self.slots_at + self.ring * SLOT_WORDS * 8)

    @property
    def staging_at(self) -> int:
        """Offset of the staging chunks in a rank's area."""
        return self.inline_at + page_align(self.ring * self.inline_bytes)

    @property
    def mail_at(self) -> int:
        """Offset of the mailboxes, one for each receiver, in the sender's area."""
        return self.staging_at + self.n_chunks * self.chunk_bytes

    @property
    def mailbox_bytes(self) -> int:
        """Size of one mailbox: a page of words and two chunks."""
        return mmap.PAGESIZE + page_align(2 * self.mail_bytes)

    @property
    def area_bytes(self) -> int:
        """Size of a rank's area."""
        return self.mail_at + self.size * self.mailbox_bytes

    @property
    def total_bytes(self) -> int:
        """Size of the segment."""
        return self.size * self.area_bytes

    def header(self, rank: int) -> int:
        """Returns the index of a rank's first header word."""
        return rank * self.area_bytes // 8

    def slots(self, rank: int) -> int:
        """Returns the index of the first word of a rank's slots."""
        return (rank * self.area_bytes + self.slots_at) // 8

    def mailbox(self, sender: int, receiver: int) -> int:
        """Returns the offset in bytes of the mailbox from one rank to another."""
        return sender * self.area_bytes + self.mail_at + receiver * self.mailbox_bytes


@dataclass(frozen=True)
class Failure:
    """Why a rank gave its group up.

    Attributes:
        kind: "exception" (its own fault), "peer", "timeout", "mismatch" or "error".
        text: the message, whole.
        ranks: the global ranks at fault, where that is known.
    """

    kind: str
    text: str
    ranks: tuple[int, ...] = ()


def write_failure(
    segment: Segment, words: memoryview, layout: ControlLayout, rank: int, at: int, failure: Failure
) -> None:
    """Publishes a failure in the rank's own area; the first one stands."""
    header = layout.header(rank)
    if words[header + STATE] == FAILED:
        return
    text = failure.text.encode()[: _TEXT_BYTES - 1024].decode(errors="ignore")
    data = json.dumps({"kind": failure.kind, "text": text, "ranks": failure.ranks[:64]}, ensure_ascii=False).encode()
    if len(data) > _TEXT_BYTES:  # a text full of characters that JSON escapes
        data = json.dumps({"kind": failure.kind, "text": text[:400], "ranks": failure.ranks[:64]}).encode()
    start = (header + _HEADER_WORDS) * 8
    segment.bytes[start : start + len(data)] = memoryview(data)
    words[header + TEXT_LENGTH] = len(data)
    words[header + FAILED_AT] = at


def read_failure(segment: Segment, words: memoryview, layout: ControlLayout, rank: int) -> Failure:
    """Reads the failure that a peer in state FAILED has published."""
    header = layout.header(rank)
    start = (header + _HEADER_WORDS) * 8
    data = segment.bytes[start : start + min(words[header + TEXT_LENGTH], _TEXT_BYTES)].tobytes()
    try:
        fields = json.loads(data)
        return Failure(str(fields["kind"]), str(fields["text"]), tuple(int(r) for r in fields["ranks"]))
    except (ValueError, KeyError, TypeError):
        return Failure("error", "gave up without a readable reason")
