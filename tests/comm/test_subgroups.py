"""Making groups: lists, names, and what is refused."""

import pytest

import ddpflow.comm as dist
from ddpflow.errors import ConfigError, ValueRangeError
from ddpflow.testing import run_ranks


def refusals(rank: int) -> None:
    """Wrong lists are refused on every rank before anything is sent."""
    for ranks, text in (
        ([], "at least one"),
        ([0, 0], "more than once"),
        ([0, 2], "ranks 0 to 1"),
        ([-1], "ranks 0 to 1"),
    ):
        with pytest.raises(ValueRangeError, match=text):
            dist.new_group(ranks)
    with pytest.raises(ConfigError, match="no backend 'gloo'"):
        dist.new_group([0, 1], backend="gloo")
    with pytest.raises(ConfigError, match="pg_options"):
        dist.new_group([0, 1], pg_options=object())
    with pytest.raises(ValueRangeError, match="2 ranks cannot be cut into groups of 3"):
        dist.new_subgroups(3)
    with pytest.raises(ValueRangeError, match="one subgroup only"):
        dist.new_subgroups_by_enumeration([[0, 1], [1]])
    assert dist.new_group().ranks == (0, 1)


def test_refusals():
    """Lists that make no sense."""
    run_ranks(refusals, 2)


def names(rank: int) -> list[str]:
    """Names tell groups of the same ranks apart, and show the caller's text."""
    groups = [dist.new_group([1, 0]), dist.new_group([0, 1]), dist.new_group([0, 1], group_desc="pipeline")]
    return [group.name for group in groups]


def test_names():
    """All ranks give a group the same name."""
    first, second = run_ranks(names, 2)
    assert first == second == ["0,1/1", "0,1/2", "pipeline [0,1/3]"]


def splitting(rank: int) -> list[int]:
    """Even and odd ranks part, and rank 4 stays alone outside."""
    group = dist.split(color=-1 if rank == 4 else rank % 2, key=rank)
    with pytest.raises(ValueRangeError, match="keys of color 0 ask for another order"):
        dist.split(color=0, key=-rank)
    return [] if group is None else list(group.ranks)


def test_split():
    """Colors make groups."""
    assert run_ranks(splitting, 5) == [[0, 2], [1, 3], [0, 2], [1, 3], []]


def by_host(rank: int) -> tuple[int, ...]:
    """The default size of subgroups is a host."""
    own, every = dist.new_subgroups()
    assert len(every) == 1
    return own.ranks


def of_a_group(rank: int) -> list[tuple[int, ...]]:
    """A group can be cut as well."""
    every = dist.new_subgroups(1, dist.new_group([0, 2]))[1]
    return [group.ranks for group in every]


def test_subgroups_of_a_group():
    """All ranks see the same groups."""
    assert run_ranks(of_a_group, 3) == [[(0,), (2,)]] * 3


def test_subgroups_of_a_host():
    """All threads are on one host."""
    assert run_ranks(by_host, 3) == [(0, 1, 2)] * 3
