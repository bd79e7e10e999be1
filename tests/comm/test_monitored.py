"""monitored_barrier: retries, sub-groups, and a world of one."""

import pytest

import ddpflow.comm as dist
from ddpflow.errors import CollectiveTimeout, ValueRangeError
from ddpflow.testing import run_ranks


def twice(rank: int) -> int:
    """Two barriers, one after the other; ordinary collectives in between do not count."""
    dist.monitored_barrier(timeout=10)
    dist.barrier()
    dist.monitored_barrier(timeout=10)
    return dist.current_group().seq


def test_two_barriers():
    """Calls are counted alike on all ranks, apart from the collectives."""
    assert run_ranks(twice, 2) == [1, 1]


def in_a_group(rank: int) -> None:
    """Only the group's ranks are waited for, and named by global rank."""
    group = dist.new_group([1, 2])
    if rank == 0:
        return
    dist.monitored_barrier(group, timeout=10)
    if rank == 1:
        with pytest.raises(CollectiveTimeout, match="group 1,2/1: rank 2 did not arrive in 0.1 s"):
            dist.monitored_barrier(group, timeout=0.1)


def test_in_a_group():
    """Missing ranks are global ranks."""
    run_ranks(in_a_group, 3)


def test_alone():
    """A world of one is always complete; a senseless deadline is refused in any other."""
    dist.monitored_barrier()


def deadline(rank: int) -> None:
    """Deadlines are positive."""
    with pytest.raises(ValueRangeError, match="timeout"):
        dist.monitored_barrier(timeout=0)


def test_deadline():
    """The argument is checked."""
    run_ranks(deadline, 2)
