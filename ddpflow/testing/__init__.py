"""Helpers for tests of distributed code: worlds of threads or processes inside one test, and faults on purpose."""

from ddpflow.testing.faults import FaultPlan, RankDied
from ddpflow.testing.ranks import run_ranks

__all__ = ["FaultPlan", "RankDied", "run_ranks"]
