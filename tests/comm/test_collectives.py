"""PyTorch's functions: group ranks, defaults, and what a rank outside gets."""

import warnings

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm.collectives import root_of
from ddpflow.errors import ValueRangeError
from ddpflow.testing import run_ranks


def group_ranks(rank: int) -> None:
    """In a group of ranks 1 and 2, its rank 0 is global rank 1."""
    group = dist.new_group([1, 2])
    if rank == 0:
        x = np.zeros(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calls = [
                dist.all_reduce(x, group=group),
                dist.broadcast(x, 1, group=group),
                dist.all_gather([x], x, group=group),
                dist.reduce(x, 1, group=group),
                dist.isend(x, 1, group=group),
                dist.irecv(x, 1, group=group),
                dist.send(x, 1, group=group),
                dist.barrier(group=group),
                dist.monitored_barrier(group),
                dist.all_reduce_coalesced([x], group=group),
            ]
            assert calls == [None] * len(calls)
            assert dist.recv(x, 1, group=group) == -1
            assert dist.all_ranks_agree(True, group=group) is True
        return
    for options in ({"src": 2}, {"group_src": 1}):
        x = np.array([float(rank)])
        dist.broadcast(x, group=group, **options)
        assert x[0] == 2.0
    x = np.array([float(rank)])
    dist.reduce(x, group=group, group_dst=0)
    assert x[0] == (3.0 if rank == 1 else 2.0)
    outs = [np.empty(1), np.empty(1)] if rank == 1 else None
    dist.gather(np.array([float(rank)]), outs, group=group)
    assert outs is None or [o[0] for o in outs] == [1.0, 2.0]
    out = np.empty(1)
    dist.scatter(out, [np.array([10.0]), np.array([20.0])] if rank == 1 else None, group=group)
    assert out[0] == 10.0 * rank
    if rank == 1:
        dist.send(np.array([5.0]), group=group, group_dst=1)
    else:
        assert dist.recv(out, group=group, group_src=0) == 1 and out[0] == 5.0


def test_group_ranks():
    """Roots and peers as global ranks or as indices of the group."""
    run_ranks(group_ranks, 3)


def test_roots():
    """One way to name a root, and only one."""
    group = dist.current_group()
    assert root_of(group, 0, None, "src") == root_of(group, None, 0, "src") == root_of(group, None, None, "src", 0) == 0
    with pytest.raises(ValueRangeError, match="not both"):
        root_of(group, 0, 0, "src")
    with pytest.raises(ValueRangeError, match="is needed"):
        root_of(group, None, None, "dst")


def test_batches_are_checked():
    """A batch is a list of P2POp."""
    for bad in ([], [1], [dist.P2POp(dist.send, np.zeros(1), 0)]):
        with pytest.raises(ValueRangeError, match="batch_isend_irecv takes"):
            dist.batch_isend_irecv(bad)


def test_agreement_is_checked():
    """The rule is "or" or "and"."""
    with pytest.raises(ValueRangeError, match="op='or'"):
        dist.all_ranks_agree(True, "xor")


def skip_bad_batch(rank: int) -> float:
    """All ranks skip a step in which one has a bad batch."""
    weight = 1.0
    for step in range(4):
        loss = float("nan") if (rank, step) == (1, 2) else 1.0 + rank
        if dist.all_ranks_agree(not np.isfinite(loss)):
            continue
        gradient = np.array([loss])
        dist.all_reduce(gradient, dist.ReduceOp.AVG)
        weight -= 0.1 * gradient[0]
    return weight


def test_skipping_a_bad_batch():
    """With all_ranks_agree a NaN on one rank leaves weights equal and finite."""
    a, b = run_ranks(skip_bad_batch, 2)
    assert a == b == pytest.approx(1.0 - 3 * 0.15)
