"""Registered memory: arrays that live in the group's shared file, where every peer can reach them.

Each rank has an arena, a range of the (sparse) file, and hands out pieces of it by itself: ``empty`` is no collective,
and no descriptor travels after the group is made. A peer learns a piece's place in the arena from the slot of a
collective that uses it, and maps the arena up to there the first time. A piece goes back to the system when its last
array is gone.
"""

import itertools
import os
import weakref
from collections import deque
from typing import Any

import numpy as np

from ddpflow.comm.backends.shm_control import ControlLayout
from ddpflow.comm.backends.shm_segment import HUGE_BYTES, Mapping, SharedFile, page_align
from ddpflow.errors import CommError

__all__ = ["Arena", "PeerArenas", "address_of"]

_SMALLEST_WINDOW = 64 << 20
_MOST_VIEWS = 1024


class Arena:
    """This rank's registered memory.

    Args:
        file: the group's shared file.
        start: where the arena begins in it.
        size: bytes of the arena.
    """

    def __init__(self, file: SharedFile, start: int, size: int) -> None:
        self._file, self._start, self._size = file, start, size
        self._free: list[tuple[int, int]] = [(0, size)]
        self._returned: deque[tuple[int, int]] = deque()  # a finalizer may run anywhere: it only appends
        self._pieces: dict[int, tuple[int, int, int]] = {}  # id of the root array -> address, offset, bytes
        self.recycle = True  # false once the group has failed: a peer may still write where an array was
        self._pid = os.getpid()

    def empty(self, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns a new array of ``n`` elements in the arena.

        Raises:
            CommError: the shared memory is not there.
        """
        n_bytes = page_align(max(1, n * dtype.itemsize))
        offset = self._take(n_bytes)
        try:
            self._file.reserve(self._start + offset, self._start + offset + n_bytes)
            mapping = self._file.map(self._start + offset, self._start + offset + n_bytes)
        except OSError as error:
            self._returned.append((offset, offset + n_bytes))
            raise CommError(f"no shared memory for {n} elements of {dtype.name} ({n_bytes} bytes): {error}") from error
        mapping.map_in(0, n_bytes)
        root = mapping.array(n, dtype)
        key = id(root)
        self._pieces[key] = (address_of(root), offset, n_bytes)
        weakref.finalize(root, self._release, key, mapping).atexit = False
        return root

    def offset_of(self, array: np.ndarray) -> int:
        """Returns where an array lies in the arena, in bytes, or -1 where it does not."""
        pieces = self._pieces
        piece = pieces.get(id(array))
        if piece is not None:
            return piece[1]
        piece = pieces.get(id(array.base))
        if piece is None:
            return -1
        address, offset, n_bytes = piece
        inside = address_of(array) - address
        return offset + inside if 0 <= inside and inside + array.nbytes <= n_bytes else -1

    def _take(self, n_bytes: int) -> int:
        """Returns the offset of a free range, the lowest that fits; large ones start where a large page could."""
        while self._returned:
            self._free.append(self._returned.popleft())
        self._free = _merge(self._free)
        for i, (start, stop) in enumerate(self._free):
            begin = -(-start // HUGE_BYTES) * HUGE_BYTES if n_bytes >= HUGE_BYTES else start
            if begin + n_bytes <= stop:
                rest = [(start, begin), (begin + n_bytes, stop)]
                self._free[i : i + 1] = [r for r in rest if r[0] < r[1]]
                return begin
        raise CommError(f"a rank's registered memory in one group is limited to {self._size} bytes")

    def _release(self, key: int, mapping: Mapping) -> None:
        """Takes back the piece of an array that is gone."""
        _, offset, n_bytes = self._pieces.pop(key)
        if os.getpid() != self._pid:  # a forked child drops its copy of the array; the parent goes on using it
            return
        mapping.give_back()
        if self.recycle:
            self._returned.append((offset, offset + n_bytes))


class PeerArenas:
    """The peers' registered memory, mapped as far as it was needed so far."""

    def __init__(self, file: SharedFile, layout: ControlLayout) -> None:
        self._file, self._layout = file, layout
        self._windows: dict[int, Mapping] = {}
        self._views: dict[tuple[int, int, int, np.dtype[Any]], np.ndarray] = {}

    def view(self, rank: int, offset: int, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns ``n`` elements at ``offset`` bytes of a rank's arena as an array."""
        key = (rank, offset, n, dtype)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._make(rank, offset, n, dtype)
        return view

    def clear(self) -> None:
        """Unmaps everything that no array uses."""
        self._views.clear()
        self._windows.clear()

    def _make(self, rank: int, offset: int, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        end = offset + n * dtype.itemsize
        window = self._windows.get(rank)
        if len(self._views) >= _MOST_VIEWS:
            self._views.clear()
        if window is None or end > window.bytes.size:
            size = next(s for s in (_SMALLEST_WINDOW << i for i in itertools.count()) if s >= end)
            start = self._layout.arena(rank)
            window = self._windows[rank] = self._file.map(start, start + min(size, self._layout.arena_bytes))
            self._views = {k: v for k, v in self._views.items() if k[0] != rank}  # they keep the old window alive
        window.map_in(offset, end)
        return window.bytes[offset:end].view(dtype)


def address_of(array: np.ndarray) -> int:
    """Returns the address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the ranges in order, neighbours joined."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged
