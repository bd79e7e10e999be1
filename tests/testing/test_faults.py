"""Planned faults."""

import pytest

from ddpflow.errors import ValueRangeError
from ddpflow.testing.faults import FaultPlan, InjectedError, RankDied


def test_only_at_its_place():
    """Nothing happens at another rank or step."""
    plan = FaultPlan("raise", 1, 3)
    for rank, step in ((0, 3), (1, 2), (2, 3)):
        plan.at(rank, step)
    with pytest.raises(InjectedError, match="rank 1 at step 3"):
        plan.at(1, 3)


def test_delay():
    """A delay passes."""
    FaultPlan("delay", 0, 0, delay_s=0.001).at(0, 0)


def test_seeded():
    """A seed gives one plan; seeds give different ones of every kind."""
    assert FaultPlan.seeded(5, 4, 10) == FaultPlan.seeded(5, 4, 10)
    plans = [FaultPlan.seeded(seed, 4, 10) for seed in range(200)]
    assert {p.kind for p in plans} == {"kill", "stop", "exit", "raise", "delay"}
    assert {p.rank for p in plans} == {0, 1, 2, 3} and {p.step for p in plans} == set(range(10))


def test_kinds():
    """Another kind is refused with those that exist."""
    with pytest.raises(ValueRangeError, match="kill, stop, exit, raise, delay"):
        FaultPlan("explode", 0, 0)


def test_rank_died():
    """The error tells how, and what was printed."""
    assert str(RankDied(1, signal=9, output="bye")) == "rank 1 was killed by SIGKILL\nbye"
    assert str(RankDied(2, exitcode=3)) == "rank 2 exited with code 3"
