"""Drift between ranks and non-finite gradients are told by name."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.comm.world import current_group
from ddpflow.errors import CommError, MismatchError, NonFiniteError
from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.testing import run_ranks
from tests.nn.parallel.models import Remember, Weights, tensor, total


def _drift(rank, what):
    ddp = DDP(Remember([1.0, 2.0]))
    optimizer = flow.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    total(ddp(tensor([1.0, 1.0]))).backward()
    optimizer.step()
    ddp.check_consistency(optimizer)
    if rank == 1:
        if what == "parameter":
            ddp.module.w.array += 1e-15
        elif what == "buffer":
            ddp.last.array[1] = 7.0
        elif what == "state":
            optimizer.state[ddp.module.w]["momentum_buffer"].array += 1.0
        elif what == "rate":
            optimizer.param_groups[0]["lr"] = 0.2
        elif what == "absent":
            optimizer.state.clear()
    ddp.check_consistency(optimizer)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("parameter", "parameter w is not the same on all ranks: it differs between ranks 0, 2 and rank 1"),
        ("buffer", "buffer last is not"),
        ("state", "optimizer state momentum_buffer of w is not"),
        ("rate", "optimizer option lr of group 0 is not"),
        ("absent", "between ranks 0, 2 and rank 1 (absent)"),
    ],
)
def test_the_first_thing_that_drifted_is_named_on_every_rank(what, text):
    """A single bit is enough; the error says which ranks agree."""
    for error in run_ranks(_drift, 3, args=(what,), return_exceptions=True):
        assert isinstance(error, MismatchError) and text in str(error)


def _every(rank):
    ddp = DDP(Weights(1.0))
    counts = []
    for _ in range(6):
        start = current_group().seq
        ddp.check_consistency(every=3)
        counts.append(current_group().seq > start)
    return counts


def test_every_third_call_compares():
    """The others are free."""
    assert run_ranks(_every, 2) == [[False, False, True] * 2] * 2


def _nonfinite(rank, value):
    module = Weights([1.0, 2.0], 3.0)
    ddp = DDP(module, detect_nonfinite=True, bucket_cap_mb=1e-6)
    if rank == 1:
        module.w0.register_hook(lambda g: g * tensor([1.0, value]))
    total(ddp(tensor([1.0, 1.0]))).backward()


@pytest.mark.parametrize(("value", "kind"), [(np.inf, "infinity"), (np.nan, "NaN")])
def test_a_non_finite_gradient_is_reported_before_it_spreads(world, value, kind):
    """Rank 1's error names rank and parameter; rank 0 learns of it."""
    first, second = world(_nonfinite, 2, value, return_exceptions=True)
    assert isinstance(second, NonFiniteError)
    assert f"rank 1: the local gradient of w0 has {kind} in 1 of 2 elements" in str(second)
    assert isinstance(first, CommError) and "w0" in str(first)
