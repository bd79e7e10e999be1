"""The array work of collectives, carried out for all ranks in one process on plain buffers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpflow.comm.backends.shm_moves import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
    shard,
)
from ddpflow.comm.reduce import ReduceOp


def by_pieces(moves, room):
    """Does a move on all ranks piece by piece, ``room`` elements a piece."""
    n = max(move.n for move in moves)
    if isinstance(moves[0], AllToAll):
        n = -(-n // room) * room
    for start in range(0, n, room):
        stop = min(start + room, n)
        buffers = [np.full(room * move.width, -99, move.array.dtype) for move in moves]
        for move, buffer in zip(moves, buffers, strict=True):
            if move.fills:
                move.fill(buffer, start, stop)
        for move in moves:
            move.drain(buffers, start, stop)


def shared_out(moves, room):
    """Does an all-reduce on all ranks by shards of pieces; no rank reads what was not offered to it."""
    n = moves[0].n
    for start in range(0, n, room):
        stop = min(start + room, n)
        buffers = [np.full(room, -99, move.array.dtype) for move in moves]
        for move, buffer in zip(moves, buffers, strict=True):
            move.offer_shards(buffer, start, stop)
        for move in moves:
            move.reduce_shard(buffers, start, stop)
        for move, buffer in zip(moves, buffers, strict=True):
            move.collect_shards(buffer, start, stop)


def directly(moves):
    """Does a move on all ranks from the arrays where they lie; each rank reads what it names as its sources."""
    for move in moves:
        if not (isinstance(move, Broadcast | Gather | Reduce) and not move.sources):
            move.direct([moves[rank].array for rank in move.sources])


WAYS = [lambda moves: by_pieces(moves, 3), lambda moves: by_pieces(moves, 100), directly]


def inputs(size, n, dtype="float64"):
    """Returns one array for each rank."""
    return [(np.arange(n) * 7 % 23 + 10.0 * rank).astype(dtype) for rank in range(size)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_moves(way, size):
    """Each move gives on each rank what its collective promises, whole or in pieces, and leaves other inputs alone."""
    n, root = 10, size - 1
    xs = inputs(size, n)
    arrays = [x.copy() for x in xs]
    way([AllReduce(a, ReduceOp.SUM, size, r) for r, a in enumerate(arrays)])
    assert all(np.array_equal(a, sum(xs)) for a in arrays)

    arrays = [x.copy() for x in xs]
    way([Reduce(a, ReduceOp.MAX, root, size, r) for r, a in enumerate(arrays)])
    assert np.array_equal(arrays[root], np.max(xs, axis=0))
    assert all(np.array_equal(arrays[r], xs[r]) for r in range(size) if r != root)

    arrays = [x.copy() for x in xs]
    way([Broadcast(a, root, size, r) for r, a in enumerate(arrays)])
    assert all(np.array_equal(a, xs[root]) for a in arrays)

    outs = [np.zeros(n * size) for _ in xs]
    way([AllGather(x, outs[r], size, r) for r, x in enumerate(xs)])
    assert all(np.array_equal(out, np.concatenate(xs)) for out in outs)

    out = np.zeros(n * size)
    way([Gather(x, out if r == root else None, root, size, r) for r, x in enumerate(xs)])
    assert np.array_equal(out, np.concatenate(xs))

    wide = inputs(size, n * size)
    outs = [np.zeros(n) for _ in wide]
    way([ReduceScatter(x, outs[r], ReduceOp.SUM, size, r) for r, x in enumerate(wide)])
    assert np.array_equal(np.concatenate(outs), sum(wide))

    outs = [np.zeros(n) for _ in wide]
    way([Scatter(wide[root] if r == root else outs[r], outs[r], root, size, r) for r in range(size)])
    assert np.array_equal(np.concatenate(outs), wide[root])


@pytest.mark.parametrize("room", [1, 3, 50])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_to_all(size, room):
    """Parts of any length, none included, arrive in order of the senders."""
    counts = [[(3 * s + 5 * r) % 7 for r in range(size)] for s in range(size)]
    xs = [np.arange(sum(counts[s])) + 1000.0 * s for s in range(size)]
    moves, outs = [], []
    for r in range(size):
        out_counts = [counts[s][r] for s in range(size)]
        outs.append(np.zeros(sum(out_counts)))
        moves.append(AllToAll(xs[r], outs[r], counts[r], out_counts, size, r))
    by_pieces(moves, room)
    for r in range(size):
        parts = [np.split(xs[s], np.cumsum(counts[s])[:-1])[r] for s in range(size)]
        assert np.array_equal(outs[r], np.concatenate(parts))


@given(st.integers(0, 5000), st.integers(1, 17), st.sampled_from([1, 2, 4, 8, 16]))
def test_shards_cover_everything_once(n, size, itemsize):
    """Shards follow each other without gap, begin on cache lines, and differ by one line at most."""
    shards = [shard(n, size, rank, itemsize) for rank in range(size)]
    assert shards[0][0] == 0
    assert shards[-1][1] == n
    assert all(last == first for (_, last), (first, _) in zip(shards, shards[1:], strict=False))
    assert all(first * itemsize % 128 == 0 for first, last in shards if first < last)
    lengths = [last - first for first, last in shards]
    assert max(lengths) - min(lengths) <= 2 * 128 // itemsize


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_way_gives_the_same_bits(size, dtype):
    """Reducing whole pieces, shards of pieces or the arrays where they lie adds in rank order, to the last bit."""
    draw = np.random.default_rng(size)
    xs = [(draw.standard_normal(3001) * 10.0 ** draw.integers(-3, 3, 3001)).astype(dtype) for _ in range(size)]
    results = []
    for way in ("pieces", "shards", "direct"):
        arrays = [x.copy() for x in xs]
        moves = [AllReduce(a, ReduceOp.AVG, size, r) for r, a in enumerate(arrays)]
        if way == "pieces":
            by_pieces(moves, 700)
        elif way == "direct":
            directly(moves)
        else:
            shared_out(moves, 700)
        results += [a.tobytes() for a in arrays]
    assert len(set(results)) == 1
