"""Ranks with different numbers of batches."""

import numpy as np
import pytest

import ddpflow as flow
import ddpflow.comm as dist
from ddpflow import nn
from ddpflow.errors import CommError, EarlyTermination
from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.nn.parallel.join import Join
from ddpflow.nn.parallel.sync_batchnorm import convert_sync_batchnorm
from tests.nn.parallel.models import Remember, Weights, tensor, total


def _uneven(rank, initial):
    ddp = DDP(Weights(1.0))
    optimizer = flow.optim.SGD(ddp.parameters(), lr=0.1)
    xs = [2.0] * 3 if rank == 0 else [4.0] * 2
    found = []
    with ddp.join(divide_by_initial_world_size=initial):
        for x in xs:
            optimizer.zero_grad()
            total(ddp(tensor(x))).backward()
            found.append(ddp.module.w0.grad.item())
            optimizer.step()
    after = ddp.module.w0.item()
    ddp.module.zero_grad()
    total(ddp(tensor(rank + 1.0))).backward()
    return found, after, ddp.module.w0.grad.item()


@pytest.mark.parametrize(("initial", "alone"), [(True, 1.0), (False, 2.0)])
def test_both_divisors(world, initial, alone):
    """Gradients 3, 3, then 1 over the initial world or 2 over the active rank; equal weights; training goes on."""
    results = world(_uneven, 2, initial)
    assert [found for found, _, _ in results] == [[3.0, 3.0, alone], [3.0, 3.0]]
    expected = 1.0 - 0.1 * (3.0 + 3.0 + alone)
    assert results[0][1] == pytest.approx(expected, rel=1e-12)
    assert results[0][1] == results[1][1]
    assert [g for _, _, g in results] == [1.5, 1.5]


def _buffers(rank):
    ddp = DDP(Remember([1.0, 2.0]))
    with ddp.join():
        for i in range(1 if rank == 0 else 3):
            total(ddp(tensor([10.0 * rank + i, 0.0]))).backward()
    return ddp.last.tolist()


def test_buffers_come_from_a_rank_with_work(world):
    """Rank 0 is done first: the others go on with the first active rank's buffers, and all end with them."""
    results = world(_buffers, 3)
    assert results == [[12.0, 0.0]] * 3


def _sync_batchnorm(rank, counts):
    flow.manual_seed(0)
    net = convert_sync_batchnorm(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)))
    ddp = DDP(net.to(flow.float64), unused="none")
    optimizer = flow.optim.SGD(ddp.parameters(), lr=0.1)
    rng = np.random.default_rng(rank)
    with ddp.join():
        for _ in range(counts[rank]):
            optimizer.zero_grad()
            ddp(flow.from_numpy(rng.standard_normal((4, 3)))).sum().backward()
            optimizer.step()
            dist.all_reduce(flow.ones(2))  # the user's own collective is answered too
    return [v.tolist() for v in ddp.state_dict().values()]


@pytest.mark.parametrize("counts", [[3, 1], [0, 2], [1, 3, 2], [2, 2]])
def test_sync_batchnorm_bitmaps_and_own_collectives_are_covered(world, counts):
    """Statistics, the bitmap of used parameters and a user's all-reduce: no hang, equal weights everywhere."""
    results = world(_sync_batchnorm, len(counts), counts)
    assert all(state == results[0] for state in results)


def _accumulating(rank):
    ddp = DDP(Weights(1.0))
    with ddp.join():
        for i in range(4 if rank == 0 else 2):
            with ddp.no_sync(active=i % 2 == 0):
                total(ddp(tensor(rank + 1.0))).backward()
    return ddp.module.w0.grad.item()


def test_accumulation_inside(world):
    """Only synchronised backward passes are announced: rank 0 alone averages its last two with zeros."""
    assert world(_accumulating, 2)[0] == (3.0 + 2.0) / 2


def _throwing(rank):
    ddp = DDP(Weights(1.0))
    with ddp.join(throw_on_early_termination=True):
        for _ in range(3 - rank):
            total(ddp(tensor(1.0))).backward()


def test_early_termination_is_raised_on_all_ranks(world):
    """The rank with work and the one without raise the same error, which names the latter."""
    for error in world(_throwing, 2, return_exceptions=True):
        assert isinstance(error, EarlyTermination) and "rank 1 has no work left" in str(error)


def _reductions(rank):
    found = []
    with Join([]):
        if rank == 0:
            for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT, dist.ReduceOp.BAND):
                x = np.array([3, -7, 5])
                dist.all_reduce(x, op=op)
                found.append(x.tolist())
            out = np.zeros(4)
            dist.all_gather_into_tensor(out, np.array([1.0, 2.0]))
            part = np.zeros(2)
            dist.reduce_scatter_tensor(part, np.array([1.0, 2.0, 3.0, 4.0]))
            dist.barrier()
            found += [out.tolist(), part.tolist()]
            with pytest.raises(CommError, match="cannot be answered"):
                dist.all_to_all_single(np.zeros(2), np.zeros(2))
    return found


def test_every_reduction_is_answered_with_neutral_values(world):
    """Maximum, minimum, product, bitwise and: unchanged; gathers get zeros."""
    assert world(_reductions, 2)[0] == [[3, -7, 5]] * 4 + [[1.0, 2.0, 0.0, 0.0], [1.0, 2.0]]


def _disabled(rank):
    ddp = DDP(Weights(1.0))
    before = ddp._group.seq
    with ddp.join(enable=False):
        total(ddp(tensor(rank + 1.0))).backward()
    return ddp._group.seq - before, ddp.module.w0.grad.item()


def test_disabled_it_does_nothing(world):
    """One bucket, one collective, no announcements."""
    assert world(_disabled, 2) == [(1, 1.5)] * 2


def _failing(rank):
    ddp = DDP(Weights(1.0))
    with ddp.join():
        for i in range(3):
            if rank == 1 and i == 1:
                raise KeyError("bad batch")
            total(ddp(tensor(1.0))).backward()


def test_an_exception_inside_is_not_answered_for(world):
    """A rank that raises leaves at once; the others learn of it instead of hanging."""
    first, second = world(_failing, 2, return_exceptions=True)
    assert isinstance(second, KeyError)
    assert isinstance(first, CommError) and "bad batch" in str(first)


class _Refusing:
    """Communicates, but not inside Join."""

    def join_group(self):
        return dist.current_group()

    def enter_join(self, group):
        raise CommError("not inside Join")


def _entering(rank):
    ddp = DDP(Weights(1.0))
    group = dist.current_group()
    with pytest.raises(CommError, match="not inside Join"), Join([ddp, _Refusing()]):
        pass
    assert dist.current_group() is group
    total(ddp(tensor(rank + 1.0))).backward()  # which another rank that has gone on would have to answer inside Join
    return ddp.module.w0.grad.item()


def test_a_block_that_cannot_be_entered_leaves_nothing_behind(world):
    """The group is the one from before, for functional calls and for the joinables that had entered."""
    assert world(_entering, 2) == [1.5, 1.5]


def test_a_world_of_one():
    """Alone there is nobody to wait for."""
    ddp = DDP(Weights(1.0))
    with ddp.join(), Join([ddp]):
        total(ddp(tensor(2.0))).backward()
    assert ddp.module.w0.grad.item() == 2.0
