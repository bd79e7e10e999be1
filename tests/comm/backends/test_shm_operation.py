"""A collective in flight: its stages, its order among others, and the ways that data takes."""

import numpy as np
import pytest

from ddpflow.comm.backends import shm_control
from ddpflow.comm.backends.shm_operation import pack_signature, unpack_signature
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Call, Kind, Signature
from ddpflow.errors import CollectiveTimeout, MismatchError
from tests.comm.backends.shm_world import at_once, call, make_world

SMALL = {"chunk_bytes": 4096, "n_chunks": 2, "inline_bytes": 128, "ring": 4}


@pytest.mark.parametrize(
    "signature", [(1, 41, 12, 10**12, 7, -1), (9, 2**31 - 1, 0, 0, -1, -1), (2, 1, 15, 5, -1, 999)]
)
def test_signatures_survive_packing(signature):
    """All fields of a fingerprint come out of the words as they went in."""
    wanted = Signature(*signature)
    packed = pack_signature(Call(Kind(wanted.kind), wanted.seq, "", 1.0, wanted.root), wanted.dtype, wanted.op)
    assert -(1 << 63) <= packed < 1 << 63
    assert unpack_signature(packed, wanted.length) == wanted


def sum_of(n, size, seq):
    """Returns the sum over all ranks of what ``values`` gives."""
    return sum(np.arange(n) * (rank + 1.0) + seq for rank in range(size))


def values(n, rank, seq):
    """Returns what a rank brings to a collective."""
    return np.arange(n) * (rank + 1.0) + seq


@pytest.mark.parametrize("n", [0, 1, 16, 17, 511, 512, 513, 5000])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_way_and_size(n, size):
    """Messages below and above the limits of slots and chunks are summed, registered or not, or on some ranks only."""
    world = make_world(size, **SMALL)
    for seq, registered in enumerate([range(0), range(size), range(1), range(1, size)], start=1):
        arrays = [b.empty(n, np.dtype(float)) if r in registered else np.empty(n) for r, b in enumerate(world)]
        for rank, array in enumerate(arrays):
            array[:] = values(n, rank, seq)
        works = [b.all_reduce(a, ReduceOp.SUM, call(seq)) for b, a in zip(world, arrays, strict=True)]
        at_once(*[work.wait for work in works])
        for array, work in zip(arrays, works, strict=True):
            assert np.array_equal(array, sum_of(n, size, seq))
            assert work.result() is array


def test_nothing_moves_by_itself():
    """A launched operation ends only when somebody calls progress, wait or a later collective."""
    first, second = make_world(2)
    a, b = np.full(5, 1.0), np.full(5, 2.0)
    one = first.all_reduce(a, ReduceOp.SUM, call(1))
    assert not one.progress()
    assert a.tolist() == [1.0] * 5
    two = second.all_reduce(b, ReduceOp.SUM, call(1))
    assert two.is_completed()
    assert b.tolist() == [3.0] * 5
    assert a.tolist() == [1.0] * 5
    assert one.progress()
    assert a.tolist() == [3.0] * 5
    assert one.exception() is None


@pytest.mark.parametrize("registered", [False, True])
def test_many_in_flight(registered):
    """More operations than the ring has slots may be launched; they end in order, and with the right results."""
    first, second = make_world(2, **SMALL)
    sizes = [3, 700, 16, 2000, 1, 0, 513, 90, 4000, 5]

    def launch(backend, rank):
        arrays = [backend.empty(n, np.dtype(float)) if registered else np.empty(n) for n in sizes]
        works = []
        for seq, array in enumerate(arrays, start=1):
            array[:] = values(array.size, rank, seq)
            works.append(backend.all_reduce(array, ReduceOp.SUM, call(seq)))
        ended = [work.is_completed() for work in reversed(works)]
        assert ended == sorted(ended)
        works[-1].wait()
        assert all(work.is_completed() for work in works)
        return arrays

    for arrays in at_once(lambda: launch(first, 0), lambda: launch(second, 1)):
        for seq, array in enumerate(arrays, start=1):
            assert np.array_equal(array, sum_of(array.size, 2, seq))


@pytest.mark.parametrize("n", [4, 3000])
@pytest.mark.parametrize("registered", [False, True])
def test_the_same_memory_twice_in_flight(n, registered):
    """Operations in flight on the same or overlapping memory see each other's results, in order."""
    world = make_world(2, **SMALL)

    def run(backend, rank):
        array = backend.empty(n, np.dtype(float)) if registered else np.empty(n)
        array[:] = values(n, rank, 1)
        works = [
            backend.all_reduce(array, ReduceOp.SUM, call(1)),
            backend.all_reduce(array[: n // 2], ReduceOp.SUM, call(2)),
            backend.broadcast(array, call(3, Kind.BROADCAST, root=1)),
            backend.all_reduce(array, ReduceOp.SUM, call(4)),
        ]
        for work in works:
            work.wait()
        return array

    expected = sum_of(n, 2, 1)
    expected[: n // 2] *= 2
    expected *= 2
    for array in at_once(*[lambda b=b, r=r: run(b, r) for r, b in enumerate(world)]):
        assert np.array_equal(array, expected)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "broadcast", "gather", "scatter", "reduce"])
@pytest.mark.parametrize("registered", [False, True])
def test_input_may_change_after_wait(kind, registered):
    """Once an operation has ended on a rank, changing its input there does not reach a slower peer."""
    n, size = 2000, 2
    first, second = make_world(size, **SMALL)
    wide = kind in ("reduce_scatter", "scatter")

    def run(backend, rank):
        array = backend.empty(n * (size if wide else 1), np.dtype(float)) if registered else np.empty(n * (1 + wide))
        array[:] = values(array.size, rank, 0)
        out = np.empty(n if wide else n * size)
        calls = {
            "all_gather": lambda c: backend.all_gather(out, array, c),
            "reduce_scatter": lambda c: backend.reduce_scatter(out, array, ReduceOp.SUM, c),
            "broadcast": lambda c: backend.broadcast(array, c),
            "gather": lambda c: backend.gather(out if rank == 0 else None, array, c),
            "scatter": lambda c: backend.scatter(out, array if rank == 0 else None, c),
            "reduce": lambda c: backend.reduce(array, ReduceOp.SUM, c),
        }
        has_root = kind not in ("all_gather", "reduce_scatter")
        work = calls[kind](call(1, Kind[kind.upper()], root=0 if has_root else -1))
        work.wait()
        result = (array if kind in ("broadcast", "reduce") else out).copy()
        array[:] = -1
        return result

    one, two = at_once(lambda: run(first, 0), lambda: run(second, 1))
    if kind == "all_gather":
        expected = np.concatenate([values(n, 0, 0), values(n, 1, 0)])
        assert np.array_equal(one, expected)
        assert np.array_equal(two, expected)
    elif kind == "reduce_scatter":
        assert np.array_equal(np.concatenate([one, two]), sum_of(2 * n, 2, 0))
    elif kind == "broadcast":
        assert np.array_equal(two, values(n, 0, 0))
    elif kind == "gather":
        assert np.array_equal(one, np.concatenate([values(n, 0, 0), values(n, 1, 0)]))
    elif kind == "scatter":
        assert np.array_equal(np.concatenate([one, two]), values(2 * n, 0, 0))
    else:
        assert np.array_equal(one, sum_of(n, 2, 0))
        assert np.array_equal(two, values(n, 1, 0))


def test_pieces_follow_each_other_without_a_gap():
    """Staged operations share the chunks: the chunk numbers go on from one to the next on all ranks."""
    world = make_world(3, **SMALL)
    for seq in range(1, 8):
        n = 400 * seq
        arrays = [values(n, rank, seq) for rank in range(3)]
        works = [b.all_reduce(a, ReduceOp.SUM, call(seq)) for b, a in zip(world, arrays, strict=True)]
        at_once(*[work.wait for work in works])
        assert all(np.array_equal(a, sum_of(n, 3, seq)) for a in arrays)
        assert len({b._engine.next_chunk for b in world}) == 1
    assert world[0]._engine.next_chunk > 7 * 2


def test_a_rank_that_comes_too_late_takes_no_part():
    """Data of a rank that has given up is not used: the late rank gets an error, not half of a result."""
    first, second = make_world(2)
    work = first.all_reduce(np.ones(3), ReduceOp.SUM, call(1, timeout_s=0.1))
    with pytest.raises(CollectiveTimeout, match="no answer from rank 1"):
        work.wait()
    late = np.full(3, 5.0)
    with pytest.raises(Exception, match="came too late"):
        second.all_reduce(late, ReduceOp.SUM, call(1)).wait()
    assert late.tolist() == [5.0] * 3


def test_an_all_to_all_that_does_not_fit():
    """A receiver that expects another count than is sent gets both numbers, and so does the sender."""
    first, second = make_world(2)
    one = first.all_to_all(np.empty(3), np.arange(3.0), [1, 2], [1, 2], call(1, Kind.ALL_TO_ALL))
    two = second.all_to_all(np.empty(4), np.arange(4.0), [3, 1], [3, 1], call(1, Kind.ALL_TO_ALL))
    for error in at_once(one.wait, two.wait):
        assert isinstance(error, MismatchError)
        assert "expects" in str(error)
        assert "but gets" in str(error)


def test_a_full_ring_waits_for_the_slowest():
    """A launch that finds its slot in use waits for the rank that still needs it, and names it in the end."""
    first, _ = make_world(2, ring=2)
    for seq in (1, 2):
        first.barrier(call(seq, Kind.BARRIER))
    with pytest.raises(CollectiveTimeout, match=r"barrier #1 .*no answer from rank 1"):
        first.barrier(call(3, Kind.BARRIER, timeout_s=0.1))


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("n", [4, 3000])
def test_with_a_fence(monkeypatch, n, registered):
    """On CPUs that need it, a barrier stands before each announcement and after each sight of one."""
    order = []

    class Words:
        """Notes what happens to the words of one rank's view of the control segment."""

        def __init__(self, words):
            self.words = words

        def __getitem__(self, index):
            return self.words[index]

        def __setitem__(self, index, value):
            order.append(index)
            self.words[index] = value

    monkeypatch.setattr(shm_control, "memory_fence", lambda: lambda: order.append("fence"))
    first, second = make_world(2, **SMALL)
    second._engine.words = second._engine.control.words = Words(second._engine.words)
    layout, arrays = first._engine.layout, []
    for rank, backend in enumerate((first, second)):
        array = backend.empty(n, np.dtype(float)) if registered else np.empty(n)
        array[:] = values(n, rank, 1)
        arrays.append(array)
    works = [b.all_reduce(a, ReduceOp.SUM, call(1)) for b, a in zip((first, second), arrays, strict=True)]
    for _ in range(100):
        ended = [work.progress() for work in works]
        if all(ended):
            break
    assert all(np.array_equal(array, sum_of(n, 2, 1)) for array in arrays)
    slot, header = layout.slots(1), layout.header(1)
    announcing = [slot + shm_control.READY, slot + shm_control.DONE]
    announcing += [header + w for w in (shm_control.POSTED, shm_control.CONSUMED, shm_control.COMPLETED)]
    seen = [i for i, index in enumerate(order) if index in announcing]
    assert len(seen) >= 2
    for i in seen:
        before = order[i - 1] if order[i - 1] != slot + shm_control.ARRIVED else order[i - 2]
        assert before == "fence", (order[i], order)
