"""ProcessGroup beyond what the transports share: Tensors in and out, numbering, copies."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.testing import run_ranks


class Tensor:
    """Has an array and a version, as far as communication cares."""

    def __init__(self, array):
        self.array, self.version = array, 0

    def bump_version(self):
        """Notes a write from outside."""
        self.version += 1


def tensors(rank: int) -> None:
    """Tensors are unwrapped; those that are written to notice it, inputs do not."""
    n = dist.get_world_size()
    x = Tensor(np.full((2, 2), float(rank)))
    dist.all_reduce(x)
    assert x.array.tolist() == [[n * (n - 1) / 2] * 2] * 2 and x.version == 1
    outs = [Tensor(np.empty((2, 2))) for _ in range(n)]
    y = Tensor(np.full((2, 2), float(rank)))
    dist.all_gather(outs, y)
    assert y.version == 0 and [o.version for o in outs] == [1] * n and outs[1].array[0, 0] == 1.0
    dist.broadcast(y, 0)
    assert y.version == (0 if rank == 0 else 1) and y.array[0, 0] == 0.0
    out = Tensor(np.empty(2))
    dist.reduce_scatter_tensor(out, Tensor(np.arange(2.0 * n)))
    assert out.version == 1 and out.array.tolist() == [n * 2.0 * rank, n * (2.0 * rank + 1)]
    dist.scatter(out, [Tensor(np.full(2, r + 1.0)) for r in range(n)] if rank == 0 else None)
    assert out.version == 2 and out.array.tolist() == [rank + 1.0] * 2
    dist.all_to_all_single(z := Tensor(np.empty(n)), Tensor(np.arange(1.0 * n)))
    assert z.version == 1 and z.array.tolist() == [float(rank)] * n
    if rank == 0:
        dist.send(Tensor(np.ones(2)), 1)
    elif rank == 1:
        dist.recv(out, 0)
        assert out.version == 3 and out.array.tolist() == [1, 1]


def test_tensors():
    """Objects with an array inside work like arrays."""
    run_ranks(tensors, 3)


def numbering(rank: int) -> list[int]:
    """Collectives count up, messages and refused calls do not."""
    group = dist.current_group()
    numbers = [group.seq]
    dist.barrier()
    numbers.append(group.seq)
    for bad in (lambda: dist.all_reduce("x"), lambda: dist.broadcast(np.zeros(1), 9)):
        with pytest.raises((TypeError, ValueError)):
            bad()
    if rank == 0:
        dist.send(np.zeros(1), 1)
    else:
        dist.recv(np.zeros(1), 0)
    numbers.append(group.seq)
    dist.all_reduce(np.zeros(1))
    numbers.append(group.seq)
    return numbers


def test_numbering():
    """Every rank counts the same calls."""
    assert run_ranks(numbering, 2) == [[0, 1, 1, 2]] * 2


def aliases(rank: int) -> None:
    """A rank's own part of the output may be its input; other overlaps are refused."""
    n = dist.get_world_size()
    whole = np.full((n, 3), -1.0)
    whole[rank] = rank
    dist.all_gather_into_tensor(whole, whole[rank])
    assert whole.tolist() == [[float(r)] * 3 for r in range(n)]
    with pytest.raises(ValueError, match="share memory"):
        dist.reduce_scatter_tensor(whole[0], whole)


def test_aliases():
    """Overlapping inputs and outputs."""
    run_ranks(aliases, 2)


def test_a_group_stays_in_its_process():
    """Pickling and copying a group are refused with the reason; repr tells it apart."""
    dist.init_process_group()
    group = dist.current_group()
    for action in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="bound to its process"):
            action(group)
    assert repr(group) == "ProcessGroup('world', rank 0 of 1, backend 'solo')"
    assert (group.rank(), group.size(), group.ranks) == (0, 1, (0,))
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="all_reduce cannot run.*destroyed"):
        group.all_reduce(np.zeros(1))
    with pytest.raises(RuntimeError, match="barrier cannot run: group world cannot be used: it was destroyed"):
        group.barrier()
