"""Faults at random places of a training loop: it always ends, and every survivor names the rank that failed.

``make chaos`` runs 200 of them, and after them the launcher's (tests/chaos).
"""

import os

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import CollectiveTimeout, PeerError
from ddpflow.testing import FaultPlan, RankDied, run_ranks
from ddpflow.testing.faults import InjectedError

N_STEPS = 8
N_TRIALS = int(os.environ.get("CHAOS_TRIALS", "20"))
TEXTS = {
    "kill": "was killed by SIGKILL",
    "exit": "exited with code 0",
    "raise": "raised InjectedError: planned for rank",
}


def training(rank: int, plan: FaultPlan) -> bytes:
    """Fits a line by gradient descent with collectives of several kinds and sizes, in flight and not."""
    n = dist.get_world_size()
    group = dist.current_group()
    dist.barrier()  # all have come, however slow the machine is: from here on a short deadline tells a stopped rank
    if plan.kind == "stop":
        group.timeout_s = 1.5
    inputs = np.arange(rank, 64, n, dtype=np.float64)
    weights = np.zeros(2)
    bucket = group.empty(50_000, np.float32)
    dist.broadcast(weights, 0)
    for step in range(N_STEPS):
        plan.at(rank, step)
        error = weights[0] + weights[1] * inputs - (3.0 + 0.5 * inputs)
        gradient = np.array([error.mean(), (error * inputs).mean()])
        bucket[:] = step
        work = dist.all_reduce(bucket, dist.ReduceOp.AVG, async_op=True, tag="bucket 0")
        dist.all_reduce(gradient, dist.ReduceOp.AVG, tag="bucket 1")
        work.wait()
        weights -= 1e-4 * gradient
        if step % 3 == 0:
            dist.barrier()
    return weights.tobytes() + bytes(bucket[:4])


@pytest.mark.parametrize("seed", range(N_TRIALS))
def test_a_random_fault(seed):
    """Killed, stopped, ended, raising or merely late: the run ends as it should, and leaves nothing behind."""
    n = 2 + seed % 3
    plan = FaultPlan.seeded(seed, n, N_STEPS)
    before = set(os.listdir("/dev/shm"))
    stopped = plan.kind == "stop"
    results = run_ranks(
        training,
        n,
        "shm",
        args=(plan,),
        timeout_s=7.0 if stopped else 40.0,
        group_timeout_s=30.0,
        return_exceptions=True,
    )
    assert {name for name in set(os.listdir("/dev/shm")) - before if "ddpflow" in name} == set()
    if plan.kind == "delay":
        assert len(set(results)) == 1 and isinstance(results[0], bytes)
        return
    own = {"kill": RankDied, "exit": RankDied, "raise": InjectedError, "stop": TimeoutError}[plan.kind]
    for rank, error in enumerate(results):
        if rank == plan.rank:
            assert isinstance(error, own), error
        else:
            assert isinstance(error, CollectiveTimeout if stopped else PeerError), (plan, error)
            assert f"rank {plan.rank}" in str(error) and TEXTS.get(plan.kind, "no answer") in str(error), (plan, error)
