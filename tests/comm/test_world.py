"""Getters, the current group and its scopes, with and without a world."""

import warnings

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm.world import resolve
from ddpflow.errors import CommError, ValueRangeError
from ddpflow.testing import run_ranks

LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_without_a_world():
    """A script that nobody launched is a world of one, without any call."""
    assert not dist.is_initialized()
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "solo")
    x = np.array([3.0])
    dist.all_reduce(x)
    assert x[0] == 3.0 and dist.current_group() is dist.current_group()
    assert dist.process_context().launcher == "none" and dist.get_local_rank() == dist.get_node_rank() == 0
    with pytest.raises(CommError, match="init_process_group has not been called"):
        dist.new_group([0])


def test_launched_but_not_joined(monkeypatch):
    """A launched process that communicates before it joins is told so, instead of working alone."""
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert dist.process_context().rank == 1
    with pytest.raises(CommError, match="rank 1 of 2, but init_process_group has not been called"):
        dist.all_reduce(np.zeros(1))


def getters(rank: int) -> None:
    """All getters, for the world and a group."""
    assert dist.is_initialized() and dist.get_backend() == "thread"
    assert (dist.get_rank(), dist.get_world_size(), dist.get_local_rank()) == (rank, 3, rank)
    assert dist.get_process_group_ranks() == [0, 1, 2]
    group = dist.new_group([2, 1])
    if rank == 0:
        assert isinstance(group, dist.NonMember) and repr(group) == "NonMember('[1,2]', ranks [1, 2])"
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        with pytest.warns(UserWarning, match="barrier: this rank is not in group"):
            dist.barrier(group=group)
    else:
        assert (dist.get_rank(group), dist.get_world_size(group)) == (rank - 1, 2)
    assert dist.get_group_rank(group, 2) == 1 and dist.get_global_rank(group, 0) == 1
    with pytest.raises(ValueRangeError, match="global rank 0 is not in group"):
        dist.get_group_rank(group, 0)
    with pytest.raises(ValueRangeError, match="has no rank 2"):
        dist.get_global_rank(group, 2)


def test_getters():
    """Ranks of threads see their own world."""
    run_ranks(getters, 3)


def scopes(rank: int) -> None:
    """Scopes nest strictly and end with their block, also by an exception."""
    world = dist.current_group()
    inner, other = dist.new_group([0, 1]), dist.new_group([0, 1])
    with dist.group_scope(inner) as group:
        assert group is inner is dist.current_group()
        with dist.group_scope(other):
            assert dist.current_group() is other
        assert dist.current_group() is inner
        with pytest.raises(ZeroDivisionError), dist.group_scope(other):
            raise ZeroDivisionError
        assert dist.current_group() is inner
    assert dist.current_group() is world
    a, b = dist.group_scope(inner), dist.group_scope(other)
    a.__enter__()
    b.__enter__()
    with pytest.raises(CommError, match="another order"):
        a.__exit__(None, None, None)
    with pytest.raises(CommError, match="another order"):
        b.__exit__(None, None, None)
    with pytest.raises(TypeError, match="a member of"):
        dist.group_scope(dist.NonMember("x", (0,))).__enter__()


def test_scopes():
    """The current group of a thread."""
    run_ranks(scopes, 2)


def test_resolve():
    """Groups are taken as they are; outside a group there is a warning and None."""
    assert resolve(None, "op") is dist.current_group()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert resolve(dist.NonMember("x", (1,)), "op") is None
    assert len(caught) == 1 and "op" in str(caught[0].message)
