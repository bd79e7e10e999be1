"""Registered memory: found again by its place, seen by the peers, given back with the last array."""

import gc
import mmap
import os

import numpy as np
import pytest

from ddpflow.comm.backends.shm_arena import Arena, PeerArenas, address_of
from ddpflow.comm.backends.shm_control import ControlLayout
from ddpflow.comm.backends.shm_segment import HUGE_BYTES, SharedFile, create_file
from ddpflow.errors import CommError

FLOAT = np.dtype("float32")


@pytest.fixture
def file():
    """A shared file for two ranks, and its layout."""
    layout = ControlLayout(2)
    return layout, SharedFile(create_file(layout.total_bytes))


def make(file, rank=0, size=None):
    """Returns a rank's own memory and its view of the others'."""
    layout, shared = file
    return Arena(shared, layout.arena(rank), size or layout.arena_bytes), PeerArenas(shared, layout)


def test_a_peer_sees_the_array(file):
    """What a rank writes into its registered array, a peer reads at the published place, and the other way round."""
    (arena, _), (_, peers) = make(file, 1), make(file, 0)
    for n in (1, 1000, 3_000_000):
        array = arena.empty(n, FLOAT)
        array[:] = np.arange(n)
        view = peers.view(1, arena.offset_of(array), n, FLOAT)
        assert np.array_equal(view, np.arange(n, dtype=np.float32))
        view[n // 2] = -1
        assert array[n // 2] == -1


def test_offsets(file):
    """Slices, reshapes and other dtypes of a registered array are found; everything else is not registered."""
    arena, _ = make(file)
    first, second = arena.empty(100, FLOAT), arena.empty(50, np.dtype("complex128"))
    assert arena.offset_of(first[10:20]) == arena.offset_of(first) + 40
    assert arena.offset_of(second.reshape(5, 10)[2]) == arena.offset_of(second) + 20 * 16
    assert arena.offset_of(first.view(np.uint8)[7:9]) == arena.offset_of(first) + 7
    assert arena.offset_of(np.ones(3)) == -1
    assert arena.offset_of(np.ones(30)[5:9]) == -1
    other, _ = make(file, 1)
    assert other.offset_of(first) == -1


@pytest.mark.parametrize("dtype", ["bool", "float16", "int64", "complex128"])
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_arrays_are_arrays(file, n, dtype):
    """Empty gives a writable, aligned, contiguous array of the length and dtype asked for."""
    array = make(file)[0].empty(n, np.dtype(dtype))
    assert (array.size, array.dtype) == (n, np.dtype(dtype))
    assert array.flags.carray
    array[:] = 1
    assert array.all()


def test_memory_comes_back(file):
    """With the last view the memory goes back to the system, and its place is used again; a view keeps it."""
    _, shared = file
    arena, _ = make(file)
    blocks = os.fstat(shared.fileno()).st_blocks
    array = arena.empty(1 << 20, FLOAT)
    place, view = arena.offset_of(array), array[5:6]
    assert os.fstat(shared.fileno()).st_blocks - blocks >= 8192
    view[0] = 3.5
    del array
    gc.collect()
    assert view[0] == 3.5
    del view
    gc.collect()
    assert os.fstat(shared.fileno()).st_blocks - blocks < 100
    again = arena.empty(1 << 20, FLOAT)
    assert arena.offset_of(again) == place
    assert not again.any()


def test_many_arrays_do_not_overlap(file):
    """However arrays come and go, no two living ones share memory, and large ones begin where large pages can."""
    arena, _ = make(file, size=64 << 20)
    draw = np.random.default_rng(3)
    living: list[np.ndarray] = []
    for step in range(300):
        if living and draw.random() < 0.5:
            del living[draw.integers(len(living))]
        else:
            n = int(draw.integers(1, 600_000))
            try:
                living.append(arena.empty(n, FLOAT))
            except CommError:
                living.clear()
                continue
            if n * 4 >= HUGE_BYTES:
                assert arena.offset_of(living[-1]) % HUGE_BYTES == 0
        spans = sorted((arena.offset_of(a), arena.offset_of(a) + a.nbytes) for a in living)
        assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False)), step


def test_full_arena(file):
    """More memory than the arena has, or the system has, is an error that says so; afterwards all works as before."""
    arena, _ = make(file, size=16 * mmap.PAGESIZE)
    keep = arena.empty(10 * mmap.PAGESIZE // 4, FLOAT)
    with pytest.raises(CommError, match=f"limited to {16 * mmap.PAGESIZE} bytes"):
        arena.empty(7 * mmap.PAGESIZE // 4, FLOAT)
    assert arena.empty(6 * mmap.PAGESIZE // 4, FLOAT).size
    assert keep.size


def test_no_memory(file, monkeypatch):
    """Where the system has no memory left, empty says how much was asked for, and the place is free again."""
    arena, _ = make(file)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(CommError, match=r"no shared memory for 5000 elements of float32 \(20480 bytes\).*No space"):
            arena.empty(5000, FLOAT)
    assert arena.offset_of(arena.empty(5000, FLOAT)) == 0


def test_a_broken_group_does_not_recycle(file):
    """After a failure a peer may still write to old places: they are not used again, but their memory comes back."""
    _, shared = file
    arena, _ = make(file)
    blocks = os.fstat(shared.fileno()).st_blocks
    array = arena.empty(100_000, FLOAT)
    arena.recycle = False
    place = arena.offset_of(array)
    del array
    gc.collect()
    assert os.fstat(shared.fileno()).st_blocks == blocks
    assert arena.offset_of(arena.empty(10, FLOAT)) != place


def test_views_are_kept_and_bounded(file, monkeypatch):
    """The same place gives the same array object; windows grow without losing what was seen through the old one."""
    from ddpflow.comm.backends import shm_arena

    monkeypatch.setattr(shm_arena, "_SMALLEST_WINDOW", 4 * mmap.PAGESIZE)
    monkeypatch.setattr(shm_arena, "_MOST_VIEWS", 5)
    (arena, _), (_, peers) = make(file, 1), make(file, 0)
    arrays = [arena.empty(1000, FLOAT) for _ in range(12)]
    views = []
    for i, array in enumerate(arrays):
        array[:] = i
        views.append(peers.view(1, arena.offset_of(array), 1000, FLOAT))
        assert peers.view(1, arena.offset_of(array), 1000, FLOAT) is views[-1]
    assert len(peers._views) <= 5
    assert [view[999] for view in views] == list(range(12))


def test_addresses():
    """address_of is where the first element lies."""
    array = np.arange(10.0)
    assert address_of(array[3:]) == address_of(array) + 24
