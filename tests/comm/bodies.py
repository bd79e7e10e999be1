"""What the ranks of the conformance tests do: functions of the rank, so that they also run in processes."""

import threading
import time
from typing import Any

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm import ReduceOp
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError
from tests.comm.reference import DTYPES, dtype_of, is_defined, reduced, same, values


def all_values(name: str, shape: Any = 7) -> list[np.ndarray]:
    """What each rank of the world has."""
    return [values(name, r, shape) for r in range(dist.get_world_size())]


def reductions(rank: int, names: tuple[str, ...] = DTYPES) -> None:
    """All reducing collectives, dtypes and ops against the definition."""
    n = dist.get_world_size()
    for name in names:
        for op in ReduceOp:
            x = values(name, rank)
            if not is_defined(name, op):
                with pytest.raises(DtypeError, match=f"ReduceOp.{op.name}"):
                    dist.all_reduce(x, op)
                continue
            expected = reduced(all_values(name), op)
            dist.all_reduce(x, op)
            same(x, expected)
            for root in range(n):
                x = values(name, rank)
                dist.reduce(x, root, op)
                same(x, expected if rank == root else values(name, rank))
            out = np.empty(5, dtype_of(name))
            dist.reduce_scatter_tensor(out, values(name, rank, (n, 5)), op)
            same(out, reduced(all_values(name, (n, 5)), op)[rank])
            out = np.empty(5, dtype_of(name))
            dist.reduce_scatter(out, list(values(name, rank, (n, 5))), op)
            same(out, reduced(all_values(name, (n, 5)), op)[rank])


def copies(rank: int, names: tuple[str, ...] = DTYPES) -> None:
    """All moving collectives and dtypes."""
    n = dist.get_world_size()
    for name in names:
        mine, everyone = values(name, rank, (2, 3)), all_values(name, (2, 3))
        dtype = mine.dtype
        outs = [np.empty((2, 3), dtype) for _ in range(n)]
        dist.all_gather(outs, mine)
        for out, expected in zip(outs, everyone, strict=True):
            same(out, expected)
        out = np.empty((2 * n, 3), dtype)
        dist.all_gather_into_tensor(out, mine)
        same(out, np.concatenate(everyone))
        for root in range(n):
            x = mine.copy()
            dist.broadcast(x, root)
            same(x, everyone[root])
            outs = [np.empty((2, 3), dtype) for _ in range(n)] if rank == root else None
            dist.gather(mine, outs, root)
            for out, expected in zip(outs or [], everyone, strict=False):
                same(out, expected)
            x = np.empty((2, 3), dtype)
            dist.scatter(x, [e[::-1].copy() for e in everyone] if rank == root else None, root)
            same(x, everyone[rank][::-1].copy())
        out = np.empty((n, 3), dtype)
        dist.all_to_all_single(out, values(name, rank, (n, 3)))
        same(out, np.stack([v[rank] for v in all_values(name, (n, 3))]))


def uneven_exchange(rank: int) -> None:
    """Rank s sends s + d + 1 rows to rank d, and none from 0 to 0."""
    n = dist.get_world_size()

    def rows(s: int, d: int) -> int:
        return 0 if s == d == 0 else s + d + 1

    def part(s: int, d: int) -> np.ndarray:
        return np.arange(rows(s, d) * 2.0).reshape(-1, 2) + 100 * s + 10 * d

    sent = [part(rank, d) for d in range(n)]
    expected = [part(s, rank) for s in range(n)]
    out = np.empty((sum(rows(s, rank) for s in range(n)), 2))
    splits = [rows(s, rank) for s in range(n)], [rows(rank, d) for d in range(n)]
    dist.all_to_all_single(out, np.concatenate(sent), *splits)
    same(out, np.concatenate(expected))
    outs = [np.empty_like(e) for e in expected]
    dist.all_to_all(outs, sent)
    for a, b in zip(outs, expected, strict=True):
        same(a, b)
    with pytest.raises(ShapeError, match=f"must be {n} numbers"):
        dist.all_to_all_single(out, np.zeros((3, 2)), splits[0], [5] * n)


def layouts(rank: int) -> None:
    """Whatever the strides, the result is that of the contiguous array, and other memory is not touched."""
    n = dist.get_world_size()
    everyone = [np.arange(24.0).reshape(4, 6) * (r + 1) + r for r in range(n)]
    total = np.sum(everyone, axis=0)
    for view in (
        lambda a: a,
        lambda a: a.T,
        lambda a: a[1:3, ::2],
        lambda a: a[::-1, ::-1],
        lambda a: np.asfortranarray(a),
        lambda a: a[2:2],
        lambda a: a[1, 2:3].reshape(()),
        lambda a: a[:, 3],
    ):
        x = everyone[rank].copy()
        part = view(x)
        dist.all_reduce(part)
        same(part, view(total))
        if np.shares_memory(part, x):
            inside = np.zeros_like(x, dtype=bool)
            view(inside)[...] = True
            same(x[~inside], everyone[rank][~inside])
        x = everyone[rank].copy()
        part = view(x)
        dist.broadcast(part, n - 1)
        same(part, view(everyone[n - 1]))
        outs = [view(np.full((4, 6), -1.0)) for _ in range(n)]
        dist.all_gather(outs, view(everyone[rank]))
        for out, expected in zip(outs, everyone, strict=True):
            same(np.ascontiguousarray(out), np.ascontiguousarray(view(expected)))
    big = np.zeros((3, 4))
    dist.all_gather_into_tensor(wide := np.zeros((2 * n, 3, 4))[::2], big + rank)
    same(np.ascontiguousarray(wide), np.stack([big + r for r in range(n)]))


def refusals(rank: int) -> None:
    """Each bad argument is one clear error on the rank that gave it, and the group stays in step."""
    with pytest.raises(ValueRangeError, match="share memory"):
        dist.all_reduce(np.broadcast_to(np.zeros(3), (2, 3)))
    with pytest.raises(ValueRangeError, match="share memory"):
        dist.all_reduce(np.lib.stride_tricks.as_strided(np.zeros(8), (6, 3), (8, 8)))
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueRangeError, match="read-only"):
        dist.all_reduce(frozen)
    with pytest.raises(TypeError, match="not float"):
        dist.all_reduce(1.5)
    with pytest.raises(DtypeError, match="object"):
        dist.all_reduce(np.array([None]))
    with pytest.raises(DtypeError, match="byte order"):
        dist.all_reduce(np.zeros(3, ">f4"))
    with pytest.raises(TypeError, match="ReduceOp"):
        dist.all_reduce(np.zeros(3), "sum")
    for timeout in (0, -1, float("nan"), True):
        with pytest.raises(ValueRangeError, match="timeout"):
            dist.all_reduce(np.zeros(3), timeout=timeout)
    n = dist.get_world_size()
    with pytest.raises(ValueRangeError, match=f"rank {n} is not in group world"):
        dist.broadcast(np.zeros(3), n)
    with pytest.raises(ShapeError, match="one array per rank"):
        dist.all_gather([np.zeros(3)] * (n + 1), np.zeros(3))
    with pytest.raises(ShapeError, match="shape"):
        dist.all_gather([np.zeros(4)] * n, np.zeros(3))
    with pytest.raises(DtypeError, match="one dtype"):
        dist.all_gather_into_tensor(np.zeros(3 * n), np.zeros(3, "f4"))
    with pytest.raises(ShapeError, match="elements"):
        dist.reduce_scatter_tensor(np.zeros(3), np.zeros(3 * n + 1))
    with pytest.raises(ValueRangeError, match="itself"):
        dist.send(np.zeros(3), rank)
    with pytest.raises(ValueRangeError, match="not both"):
        dist.broadcast(np.zeros(3), 0, group_src=0)
    with pytest.raises(ValueRangeError, match="tag"):
        dist.irecv(np.zeros(3), (rank + 1) % n, tag=-1) if n > 1 else dist.irecv(np.zeros(3), tag=-1)
    x = np.array([1.0 + rank])
    dist.all_reduce(x)
    assert x[0] == n * (n + 1) / 2


def messages(rank: int) -> None:
    """A ring of messages: tags, order, strides, batches, and a receiver that takes them from anybody."""
    n = dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    out = np.empty((2, 3))
    received = dist.irecv(out, left)
    sent = dist.isend(np.full((2, 3), float(rank)), right)
    assert received.wait() and sent.wait() and received.is_completed() and received.source_rank() == left
    same(out, np.full((2, 3), float(left)))
    # Tags choose among messages, order holds within a tag, and any message may be empty or strided.
    works = [dist.isend(np.array([rank, k]), right, tag=k % 2) for k in range(6)]
    for tag in (1, 0):
        for k in range(tag, 6, 2):
            x = np.empty(2, np.int64)
            assert dist.recv(x, left, tag=tag) == left
            assert x.tolist() == [left, k]
    for work in works:
        work.wait()
    work = dist.isend(np.arange(6.0)[::2], right)
    x = np.zeros(6)
    dist.recv(x[1::2], left)
    assert x.tolist() == [0, 0, 0, 2, 0, 4]
    work.wait()
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, np.array([rank + 0.5]), right), dist.P2POp(dist.irecv, y := np.empty(1), left)]
    )
    for work in works:
        work.wait()
    assert y[0] == left + 0.5
    # Rank 0 hears from everybody, in whatever order they come.
    if rank == 0:
        got = {}
        for _ in range(n - 1):
            x = np.empty(1)
            source = dist.recv(x)
            got[source] = x[0]
        assert got == {r: r * 2.5 for r in range(1, n)}
    else:
        dist.send(np.array([rank * 2.5]), 0)
    dist.barrier()


def large_messages(rank: int, count: int) -> None:
    """Both neighbours send before they receive."""
    n = dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    out = np.empty(count, np.float32)
    received = dist.irecv(out, left)
    sent = dist.isend(np.arange(count, dtype=np.float32) + rank, right)
    received.wait()
    sent.wait()
    same(out, np.arange(count, dtype=np.float32) + left)


def asynchronous(rank: int) -> None:
    """Many operations in flight, waited for in reverse order, give what they would one by one."""
    n = dist.get_world_size()
    arrays = [np.full(k, float(rank + k)) for k in (0, 1, 5, 1000, 30_000)]
    works = [dist.all_reduce(x, async_op=True) for x in arrays]
    outs = [np.empty(n * 3) for _ in range(4)]
    works += [
        dist.all_gather_into_tensor(out, np.full(3, rank + 0.25 * k), async_op=True) for k, out in enumerate(outs)
    ]
    for work in reversed(works):
        assert work.wait() is True
        assert work.is_completed() and work.is_success() and work.exception() is None
    for x, k in zip(arrays, (0, 1, 5, 1000, 30_000), strict=True):
        same(x, np.full(k, float(sum(r + k for r in range(n)))))
    for k, out in enumerate(outs):
        same(out, np.repeat([r + 0.25 * k for r in range(n)], 3))


def progress_ends_works(rank: int) -> None:
    """A Work ends by polling alone, without wait()."""
    x = np.arange(50_000.0) + rank
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0)
    n = dist.get_world_size()
    same(x, n * np.arange(50_000.0) + sum(range(n)))
    dist.barrier()


def registered(rank: int) -> None:
    """Communication memory takes part like any other, whole and in slices, and mixed with ordinary memory."""
    n = dist.get_world_size()
    group = dist.current_group()
    buffers = [group.empty(k, dtype) for k, dtype in ((10, "f4"), (50_000, "f8"), (0, "f4"), (300_000, "f4"))]
    for buffer in buffers:
        base = np.arange(buffer.size, dtype=buffer.dtype) % 97
        buffer[:] = base * (rank + 1)
        dist.all_reduce(buffer, ReduceOp.AVG)
        same(buffer, reduced([base * (r + 1) for r in range(n)], ReduceOp.AVG))
        if buffer.size:
            buffer[:] = rank
            dist.all_reduce(buffer[2:7])
            expected = np.full(buffer.size, rank, buffer.dtype)
            expected[2:7] = sum(range(n))
            same(buffer, expected)
    own = buffers[1] if rank == 0 else np.empty(50_000)
    own[:] = np.arange(50_000.0) + rank
    dist.all_reduce(own)
    same(np.array(own), n * np.arange(50_000.0) + sum(range(n)))
    dist.broadcast(own, 0)


def coalesced(rank: int) -> None:
    """Several arrays in one operation."""
    n = dist.get_world_size()
    xs = [np.full((2, 2), rank + 1.0), np.arange(3.0) * rank, np.array(float(rank))]
    dist.all_reduce_coalesced(xs)
    ranks = sum(range(n))
    expected = [np.full((2, 2), n + ranks + 0.0), np.arange(3.0) * ranks, np.array(float(ranks))]
    for x, y in zip(xs, expected, strict=True):
        same(x, y)
    xs = [np.full(2, float(rank)), np.full(3, rank + 0.5)]
    dist.broadcast_coalesced(xs, n - 1)
    assert xs[0].tolist() == [n - 1.0] * 2 and xs[1].tolist() == [n - 0.5] * 3
    outs = [[np.empty(2), np.empty((1, 3))] for _ in range(n)]
    dist.all_gather_coalesced(outs, [np.full(2, float(rank)), np.full((1, 3), rank + 0.5)])
    for r, (a, b) in enumerate(outs):
        assert a.tolist() == [r] * 2 and b.tolist() == [[r + 0.5] * 3]


def objects(rank: int) -> None:
    """Every object collective."""
    n = dist.get_world_size()
    mine = {"rank": rank, "text": "x" * (rank * 100), "nested": [rank, (1, 2)]}
    everyone = [{"rank": r, "text": "x" * (r * 100), "nested": [r, (1, 2)]} for r in range(n)]
    out: list[Any] = [None] * n
    dist.all_gather_object(out, mine)
    assert out == everyone
    out = [None] * n
    dist.gather_object(mine, out if rank == n - 1 else None, n - 1)
    assert out == (everyone if rank == n - 1 else [None] * n)
    out = [mine, rank]
    dist.broadcast_object_list(out, n - 1)
    assert out == [everyone[n - 1], n - 1]
    assert dist.broadcast_object(("lr", rank), 0) == ("lr", 0)
    out = [None]
    dist.scatter_object_list(out, [e["nested"] for e in everyone] if rank == 0 else None, 0)
    assert out == [everyone[rank]["nested"]]
    if n > 1:
        if rank == 0:
            dist.send_object_list([mine, "end"], 1)
        elif rank == 1:
            out = [None, None]
            assert dist.recv_object_list(out, 0) == 0
            assert out == [everyone[0], "end"]


def agreement(rank: int) -> None:
    """One answer for all ranks, with either rule."""
    n = dist.get_world_size()
    assert dist.all_ranks_agree(rank == n - 1) is True
    assert dist.all_ranks_agree(rank == n - 1, "and") is (n == 1)
    assert dist.all_ranks_agree(True, "and") is True
    assert dist.all_ranks_agree(False) is False


def subgroups(rank: int) -> None:
    """4 ranks: groups of some ranks, in any order of the list, with roots as global ranks; bystanders are told."""
    even = dist.new_group([2, 0])
    pairs, all_pairs = dist.new_subgroups(2)
    assert dist.get_process_group_ranks(even) == [0, 2]
    assert len(all_pairs) == 2 and pairs.ranks == ((0, 1) if rank < 2 else (2, 3))
    if rank in (0, 2):
        assert (even.rank(), even.size(), dist.get_rank(even)) == (rank // 2, 2, rank // 2)
        x = np.array([10.0 + rank])
        dist.all_reduce(x, ReduceOp.AVG, group=even)
        assert x[0] == 11.0
        dist.broadcast(x := np.array([float(rank)]), 2, group=even)
        assert x[0] == 2.0
        dist.broadcast(x := np.array([float(rank)]), group=even, group_src=0)
        assert x[0] == 0.0
        with pytest.raises(ValueRangeError, match="rank 1 is not in group"):
            dist.broadcast(x, 1, group=even)
    else:
        assert dist.get_rank(even) == -1 and dist.get_world_size(even) == -1
        with pytest.warns(UserWarning, match="not in group"):
            assert dist.all_reduce(np.zeros(1), group=even) is None
    with dist.group_scope(pairs):
        assert dist.current_group() is pairs
        x = np.array([float(rank)])
        dist.all_reduce(x)
        assert x[0] == (1.0 if rank < 2 else 5.0)
    assert dist.get_group_rank(pairs, rank) == rank % 2 and dist.get_global_rank(pairs, rank % 2) == rank
    color = dist.split(color=rank % 2 if rank else -1)
    assert (color is None) if rank == 0 else (color.ranks == ((2,) if rank == 2 else (1, 3)))
    again = dist.new_group([0, 2])
    assert again is not even
    single = dist.new_group([3])
    if rank == 3:
        dist.all_reduce(x := np.array([7.0]), group=single)
        assert x[0] == 7.0
    x = np.array([float(rank)])
    dist.all_reduce(x)
    assert x[0] == 6.0
    dist.monitored_barrier()


def from_a_second_thread(rank: int) -> None:
    """A rank's helper thread communicates in the group of its process while the main thread computes."""
    group = dist.current_group()
    result: list[float] = []

    def body() -> None:
        for k in range(5):
            x = np.array([rank + float(k)])
            group.all_reduce(x)
            result.append(x[0])

    thread = threading.Thread(target=body)
    thread.start()
    sum(range(200_000))
    thread.join()
    n = dist.get_world_size()
    assert result == [sum(r + k for r in range(n)) for k in range(5)]


def digest(rank: int, pieces: int) -> bytes:
    """Bits of a sum of values of mixed magnitude, communicated in a number of pieces."""
    x = values("float32", rank, 40_000)
    for part in np.array_split(x, pieces):
        dist.all_reduce(part, ReduceOp.AVG)
    y = values("float16", rank, 1000)
    dist.all_reduce(y)
    return x.tobytes() + y.tobytes()
