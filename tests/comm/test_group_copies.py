"""Copying collectives of a group, where outputs are not what transports write to."""

import numpy as np

import ddpflow.comm as dist
from ddpflow.testing import run_ranks


def odd_outputs(rank: int) -> None:
    """Every output may be strided, and an asynchronous result is there after wait, not before it is asked for."""
    n = dist.get_world_size()
    group = dist.current_group()
    wide = np.zeros((n, 6))
    work = group.all_gather_into_tensor(wide[:, ::2], np.arange(3.0) + rank, async_op=True)
    work.wait()
    assert wide[:, ::2].tolist() == [[r + 0.0, r + 1.0, r + 2.0] for r in range(n)] and not wide[:, 1::2].any()
    outs = [np.zeros((2, 2)).T for _ in range(n)]
    group.all_gather(outs, np.array([[1.0, 2.0], [3.0, 4.0]]) * (rank + 1))
    assert [o.tolist() for o in outs] == [[[r + 1.0, 2.0 * r + 2], [3.0 * r + 3, 4.0 * r + 4]] for r in range(n)]
    target = np.zeros(4)[::2]
    group.scatter(target, [np.full(2, 10.0 * r) for r in range(n)] if rank == 0 else None, 0)
    assert target.tolist() == [10.0 * rank] * 2
    received = np.zeros((2 * n, 2))[::2]
    group.all_to_all_single(received, np.arange(2.0 * n).reshape(n, 2) + 100 * rank)
    assert received.tolist() == [[100 * r + 2.0 * rank, 100 * r + 2.0 * rank + 1] for r in range(n)]


def test_odd_outputs():
    """Strided outputs of all kinds."""
    run_ranks(odd_outputs, 3)


def gathered_in_one(rank: int) -> list[list[float]]:
    """all_gather also takes one array for all."""
    n = dist.get_world_size()
    out = np.empty((n, 2))
    dist.current_group().all_gather(out, np.array([rank, rank + 0.5]))
    return out.tolist()


def test_one_array_for_all():
    """The rows are the ranks'."""
    assert run_ranks(gathered_in_one, 2) == [[[0.0, 0.5], [1.0, 1.5]]] * 2
