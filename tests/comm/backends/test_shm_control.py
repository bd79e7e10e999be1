"""The control segment: nothing overlaps, failures can be read by the peers, weakly ordered CPUs get a barrier."""

import ctypes
import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpflow.comm.backends import shm_control
from ddpflow.comm.backends.shm_control import (
    ALIVE,
    FAILED,
    MAIL_CHUNKS,
    SLOT_WORDS,
    Control,
    ControlLayout,
    Failure,
    memory_fence,
)
from ddpflow.comm.backends.shm_segment import HUGE_BYTES, SharedFile, create_file
from ddpflow.errors import BackendUnavailable


def make_controls(n: int) -> list[Control]:
    """Returns the handles of all ranks on one control segment."""
    layout = ControlLayout(n)
    fd = create_file(layout.total_bytes)
    file = SharedFile(fd)
    return [Control(file, layout, i) for i in range(n)]


@given(
    st.integers(1, 20), st.sampled_from([1, 2, 16]), st.sampled_from([64, 8192]), st.integers(1, 5), st.integers(1, 9)
)
def test_nothing_overlaps(size, ring, inline_bytes, chunk_pages, n_chunks):
    """Every part of every rank's area has memory of its own, words on 8 bytes, chunks and arenas on pages."""
    layout = ControlLayout(size, ring, inline_bytes, chunk_pages * mmap.PAGESIZE, n_chunks)
    spans = []
    for rank in range(size):
        start = rank * layout.area_bytes
        slots = layout.slots(rank) * 8
        spans += [
            (layout.header(rank) * 8, slots),
            (slots, slots + ring * SLOT_WORDS * 8),
            (start + layout.inline_at, start + layout.inline_at + ring * inline_bytes),
            (start + layout.staging_at, start + layout.boxes_at),
            (layout.arena(rank), layout.arena(rank) + layout.arena_bytes),
        ]
        for peer in range(size):
            mail = layout.mail(rank, peer) * 8
            spans.append((mail, mail + 8 * (32 + 8 * MAIL_CHUNKS)))
            spans.append((layout.box(rank, peer), layout.box(rank, peer) + MAIL_CHUNKS * layout.mail_bytes))
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    assert spans[-1][1] <= layout.total_bytes
    assert layout.staging_at % mmap.PAGESIZE == layout.boxes_at % mmap.PAGESIZE == 0
    assert layout.arena(0) % HUGE_BYTES == 0


@pytest.mark.parametrize(
    "text", ["rank 1 raised ValueError: bad batch", "", "ü" * 9000, '"\\\n' * 5000, "\x00\x1f" * 4000]
)
def test_failures_are_read_as_they_were_written(text):
    """Kind, ranks and (the beginning of) the text arrive, whatever characters they have; the first failure stands."""
    first, second = make_controls(2)
    assert second.state(0) == 0
    first.set_state(ALIVE)
    first.publish_failure(Failure("peer", text, (3, 5)), at=41)
    first.publish_failure(Failure("timeout", "another"), at=42)
    assert second.state(0) == FAILED
    assert second.state_at(0) == 41
    failure = second.failure_of(0)
    assert (failure.kind, failure.ranks) == ("peer", (3, 5))
    assert text.startswith(failure.text)
    assert failure.text == text or len(failure.text) >= 400


def test_an_unreadable_failure_is_still_a_failure():
    """Garbage in a dead rank's area does not stop its peers from reporting it."""
    first, second = make_controls(2)
    first.publish_failure(Failure("peer", "some text"), at=1)
    first.bytes[first.layout.header(0) * 8 + shm_control._HEADER_WORDS * 8] = 200
    assert second.failure_of(0).kind == "error"


def test_x86_needs_no_fence():
    """Strongly ordered CPUs pay nothing."""
    assert memory_fence("x86_64") is None
    assert memory_fence("AMD64") is None


def test_other_cpus_get_a_barrier(monkeypatch):
    """aarch64 gets C11's fence from libatomic, or else the membarrier system call; a CPU without either is refused."""
    called = []

    class Library:
        def __init__(self, name, use_errno=False):
            if name is not None and "atomic" in name and not self.has_atomic:
                raise OSError("no such library")
            self.atomic_thread_fence = self.function("fence")
            self.syscall = self.function("membarrier")

        has_atomic = True

        def function(self, name):
            def run(*args):
                called.append((name, *args))
                return 0

            return run

    monkeypatch.setattr(ctypes, "CDLL", Library)
    fence = memory_fence("aarch64")
    assert fence is not None
    fence()
    assert called == [("fence", 5)]
    Library.has_atomic = False
    called.clear()
    fence = memory_fence("aarch64")
    assert fence is not None
    fence()
    assert called == [("membarrier", 283, 4, 0), ("membarrier", 283, 2, 0)]
    with pytest.raises(BackendUnavailable, match="libatomic"):
        memory_fence("sparc64")
