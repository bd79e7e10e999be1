"""What each collective copies and combines: pure array work on buffers that somebody else has made ready.

A move goes over ``n`` elements in pieces [start, stop). For a piece, each rank that contributes fills its own buffer;
when all have, each drains all ranks' buffers. A buffer holds ``width`` elements for each element of the piece: one, or
one per destination. A move can also read all of the peers' data where it lies, in registered memory (``direct``).

Large all-reduces are shared out: each rank offers the others their shards of a piece in its own buffer, reduces its own
shard of all ranks' straight into its array, puts the result where it found the peers' data, and collects what the
others have put into its buffer.

Overflow does not warn where a move runs: see ``Engine.quietly``.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ddpflow.comm.reduce import ReduceOp, combine_in_rank_order

__all__ = ["AllGather", "AllReduce", "AllToAll", "Broadcast", "Gather", "Move", "Reduce", "ReduceScatter", "Scatter"]

# A direct reduction works through its shard in blocks of this size: all ranks' blocks stay in the cache for the copies.
_BLOCK_BYTES = 128 << 10
# Shards begin on cache lines of their own, so that no two ranks write to one.
_LINE_BYTES = 128


class Move(ABC):
    """One collective's array work on one rank.

    Attributes:
        array: own input (and output, where a collective works in place).
        out: own output, or None where it is ``array`` or nowhere.
        n: elements to go over.
        width: elements in a buffer for each of them.
        fills: whether this rank contributes.
        origins: ranks that contribute at all; the same on all ranks.
        sources: ranks whose data this rank reads.
        readers: ranks that read or write this rank's data.
    """

    __slots__ = ("array", "fills", "index", "n", "origins", "out", "readers", "size", "sources", "width")

    array: np.ndarray
    out: np.ndarray | None
    origins: Sequence[int]
    sources: Sequence[int]
    readers: Sequence[int]

    def __init__(self, array: np.ndarray, out: np.ndarray | None, size: int, index: int) -> None:
        self.array, self.out, self.size, self.index = array, out, size, index
        self.n, self.width, self.fills = array.size, 1, True
        self.origins = self.sources = self.readers = range(size)

    def _from_root(self, root: int) -> None:
        """Only the root contributes."""
        self.fills, self.origins = self.index == root, (root,)
        self.sources = () if self.fills else (root,)
        self.readers = range(self.size) if self.fills else ()

    def _to_root(self, root: int) -> None:
        """Only the root receives."""
        self.readers = (root,)
        self.sources = range(self.size) if self.index == root else ()

    def fill(self, buffer: np.ndarray, start: int, stop: int) -> None:
        """Copies the own contribution to a piece into the own buffer."""
        buffer[: stop - start] = self.array[start:stop]

    @abstractmethod
    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Takes a piece's result from all ranks' buffers."""

    @abstractmethod
    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Takes the whole result from the arrays of ``sources``, in that order."""


class AllReduce(Move):
    """Reduction in place on all ranks."""

    __slots__ = ("op",)

    def __init__(self, array: np.ndarray, op: ReduceOp, size: int, index: int) -> None:
        # Spelled out, not super().__init__: this is the path of every small message.
        self.array, self.out, self.size, self.index = array, None, size, index
        self.n, self.width, self.fills, self.op = array.size, 1, True, op
        self.origins = self.sources = self.readers = range(size)

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Reduces the whole piece: for little data reading it all is cheaper than a second round."""
        n, target = stop - start, self.array[start:stop]
        sources = [b[:n] for b in buffers]
        if self.index < 2:  # the own data is still in place; in a later source, the result would overwrite it too early
            sources[self.index] = target
        combine_in_rank_order(sources, target, self.op)

    def offer_shards(self, buffer: np.ndarray, start: int, stop: int) -> None:
        """Copies the peers' shards of the piece into the own buffer."""
        first, last = shard(stop - start, self.size, self.index, self.array.itemsize)
        if first:
            buffer[:first] = self.array[start : start + first]
        if last < stop - start:
            buffer[last : stop - start] = self.array[start + last : stop]

    def reduce_shard(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Reduces the own shard of the piece where it is used, and writes the result over what the peers offered."""
        first, last = shard(stop - start, self.size, self.index, self.array.itemsize)
        blocks = [buffer[first:last] for buffer in buffers]
        blocks[self.index] = self.array[start + first : start + last]
        self._reduce_everywhere(blocks)

    def collect_shards(self, buffer: np.ndarray, start: int, stop: int) -> None:
        """Copies the peers' reduced shards of the piece from the own buffer."""
        first, last = shard(stop - start, self.size, self.index, self.array.itemsize)
        if first:
            self.array[start : start + first] = buffer[:first]
        if last < stop - start:
            self.array[start + last : stop] = buffer[last : stop - start]

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Reduces the own shard where it lies and writes it into every rank's array: nothing else is copied."""
        first, last = shard(self.n, self.size, self.index, self.array.itemsize)
        step = _BLOCK_BYTES // self.array.itemsize
        for start in range(first, last, step):
            self._reduce_everywhere([view[start : min(start + step, last)] for view in views])

    def _reduce_everywhere(self, blocks: Sequence[np.ndarray]) -> None:
        """Replaces all ranks' blocks by their reduction."""
        target, *others = blocks
        combine_in_rank_order(blocks, target, self.op)
        for block in others:
            block[:] = target


class Reduce(AllReduce):
    """Reduction in place on the root; the others' arrays stay."""

    __slots__ = ("root",)

    def __init__(self, array: np.ndarray, op: ReduceOp, root: int, size: int, index: int) -> None:
        super().__init__(array, op, size, index)
        self.root = root
        self._to_root(root)

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Reduces the piece on the root."""
        if self.index == self.root:
            super().drain(buffers, start, stop)

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Reduces everything on the root."""
        if self.index == self.root:
            combine_in_rank_order(views, self.array, self.op)


class Broadcast(Move):
    """Copy of the root's array into all others."""

    __slots__ = ("root",)

    def __init__(self, array: np.ndarray, root: int, size: int, index: int) -> None:
        super().__init__(array, None, size, index)
        self.root = root
        self._from_root(root)

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Copies the piece from the root's buffer."""
        if not self.fills:
            self.array[start:stop] = buffers[self.root][: stop - start]

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Copies the root's array."""
        if not self.fills:
            self.array[:] = views[0]


class AllGather(Move):
    """Concatenation of all ranks' arrays, on all ranks."""

    __slots__ = ()

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Copies the piece of each rank to its place."""
        if self.out is not None:
            n = self.n
            for rank, buffer in enumerate(buffers):
                self.out[rank * n + start : rank * n + stop] = buffer[: stop - start]

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Copies each rank's array to its place."""
        if self.out is not None:
            n = self.n
            for rank, view in enumerate(views):
                self.out[rank * n : (rank + 1) * n] = view


class Gather(AllGather):
    """Concatenation of all ranks' arrays on the root; ``out`` is None elsewhere."""

    __slots__ = ()

    def __init__(self, array: np.ndarray, out: np.ndarray | None, root: int, size: int, index: int) -> None:
        super().__init__(array, out, size, index)
        self._to_root(root)


class _ToEach(Move):
    """Moves whose input has one part of ``n`` elements for each rank: a piece has that part of every destination."""

    __slots__ = ()

    def __init__(self, array: np.ndarray, out: np.ndarray, size: int, index: int) -> None:
        super().__init__(array, out, size, index)
        self.n, self.width = out.size, size

    def fill(self, buffer: np.ndarray, start: int, stop: int) -> None:
        """Copies the piece of every destination's part, one after the other."""
        if self.fills:
            n = stop - start
            buffer[: self.size * n].reshape(self.size, n)[:] = self.array.reshape(self.size, self.n)[:, start:stop]

    def _own(self, buffer: np.ndarray, n: int) -> np.ndarray:
        """Returns what a buffer holds for this rank."""
        return buffer[self.index * n : (self.index + 1) * n]


class ReduceScatter(_ToEach):
    """Reduction of all ranks' parts for this rank."""

    __slots__ = ("op",)

    def __init__(self, array: np.ndarray, out: np.ndarray, op: ReduceOp, size: int, index: int) -> None:
        super().__init__(array, out, size, index)
        self.op = op

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Reduces the piece that is for this rank."""
        assert self.out is not None
        combine_in_rank_order([self._own(b, stop - start) for b in buffers], self.out[start:stop], self.op)

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Reduces the parts where they lie."""
        assert self.out is not None
        combine_in_rank_order([self._own(view, self.n) for view in views], self.out, self.op)


class Scatter(_ToEach):
    """Copy of the root's part for this rank; ``array`` is only looked at on the root."""

    __slots__ = ("root",)

    def __init__(self, array: np.ndarray, out: np.ndarray, root: int, size: int, index: int) -> None:
        super().__init__(array, out, size, index)
        self.root = root
        self._from_root(root)
        self.sources = (root,)  # the root takes its own part as well

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Copies the piece that is for this rank."""
        assert self.out is not None
        self.out[start:stop] = self._own(buffers[self.root], stop - start)

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Copies the part where it lies."""
        assert self.out is not None
        self.out[:] = self._own(views[0], self.n)


class AllToAll(Move):
    """Exchange of parts of any length between all ranks; ``n`` is the longest part that this rank sends."""

    __slots__ = ("counts", "out_counts", "out_starts", "starts")

    def __init__(
        self,
        array: np.ndarray,
        out: np.ndarray,
        counts: Sequence[int],
        out_counts: Sequence[int],
        size: int,
        index: int,
    ) -> None:
        super().__init__(array, out, size, index)
        self.counts, self.out_counts = counts, out_counts
        self.starts, self.out_starts = _starts(counts), _starts(out_counts)
        self.n, self.width = max(counts), size

    def fill(self, buffer: np.ndarray, start: int, stop: int) -> None:
        """Copies the piece of every destination's part, each to where full parts would lie."""
        n = stop - start
        for rank, (begin, count) in enumerate(zip(self.starts, self.counts, strict=True)):
            m = min(stop, count) - start
            if m > 0:
                buffer[rank * n : rank * n + m] = self.array[begin + start : begin + start + m]

    def drain(self, buffers: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Copies the piece of what each rank sends to this one."""
        assert self.out is not None
        n = stop - start
        for buffer, begin, count in zip(buffers, self.out_starts, self.out_counts, strict=True):
            m = min(stop, count) - start
            if m > 0:
                self.out[begin + start : begin + start + m] = buffer[self.index * n : self.index * n + m]

    def direct(self, views: Sequence[np.ndarray]) -> None:
        """Never called: where a part begins in a peer's array is known to that peer only."""
        raise AssertionError


@functools.lru_cache(1024)
def shard(n: int, size: int, rank: int, itemsize: int) -> tuple[int, int]:
    """Returns the range of ``n`` elements that a rank reduces: whole cache lines, near ``n / size`` of them."""
    line = max(1, _LINE_BYTES // itemsize)
    lines = -(-n // line)
    return min(n, lines * rank // size * line), min(n, lines * (rank + 1) // size * line)


def _starts(counts: Sequence[int]) -> list[int]:
    starts, total = [], 0
    for count in counts:
        starts.append(total)
        total += count
    return starts
