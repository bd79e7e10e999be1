"""PowerSGD: exact for low ranks, equal on all ranks, and nothing is lost for good."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow import nn
from ddpflow.comm.world import current_group
from ddpflow.errors import ValueRangeError
from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.nn.parallel.powersgd import PowerSGDState, powerSGD_hook


class _Given(nn.Module):
    """Parameters whose gradients are given."""

    def __init__(self, shapes):
        super().__init__()
        self.ps = nn.ParameterList([nn.Parameter(flow.zeros(s, dtype=flow.float64)) for s in shapes])

    def forward(self, grads):
        """Returns a scalar whose gradient is ``grads``."""
        total = 0.0
        for p, g in zip(self.ps, grads, strict=True):
            total = total + (p * flow.from_numpy(g)).sum()
        return total


SHAPES = [(12, 10), (7,), (8, 3, 5)]


def _grads(step, rank, low_rank):
    rng = np.random.default_rng([step, rank])
    if not low_rank:
        return [rng.standard_normal(s) for s in SHAPES]
    basis = np.random.default_rng(99)
    left, right = basis.standard_normal((12, 2)), basis.standard_normal((2, 10))
    other = np.outer(basis.standard_normal(8), basis.standard_normal(15))
    return [
        left @ rng.standard_normal((2, 2)) @ right,
        rng.standard_normal(7),
        (other * rng.standard_normal()).reshape(8, 3, 5),
    ]


def _run(rank, steps, low_rank, options):
    ddp = DDP(_Given(SHAPES), bucket_cap_mb=1e-3)
    state = PowerSGDState(current_group(), **options)
    ddp.register_comm_hook(state, powerSGD_hook)
    found = []
    for step in range(steps):
        ddp.module.zero_grad()
        ddp(_grads(step, rank, low_rank)).backward()
        found.append([p.grad.numpy().copy() for p in ddp.module.parameters()])
    return found, state.compression_stats()


def _means(step, size, low_rank):
    return [np.mean(parts, axis=0) for parts in zip(*[_grads(step, r, low_rank) for r in range(size)], strict=True)]


def test_gradients_of_low_rank_are_exact(world):
    """Of rank two and sent with two columns, the mean is exact; vectors always are."""
    options = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 1, "min_compression_rate": 1.2}
    for found, (rate, _, _) in world(_run, 3, 4, True, options):
        assert rate > 1
        for step in range(4):
            for g, e in zip(found[step], _means(step, 3, True), strict=True):
                np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-9)


def test_the_first_steps_are_plain_and_all_ranks_are_equal(world):
    """Before start_powerSGD_iter the mean is whole; afterwards approximations are bit-equal on all ranks."""
    options = {"start_powerSGD_iter": 2}
    results = world(_run, 2, 5, False, options)
    for (a, _), (b, _) in zip(results, results[1:], strict=False):
        for x, y in zip(a, b, strict=True):
            assert all(np.array_equal(g, h) for g, h in zip(x, y, strict=True))
    for step in range(2):
        for g, e in zip(results[0][0][step], _means(step, 2, False), strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-12)
    late = results[0][0][4]
    assert np.linalg.matrix_rank(late[0]) == 1
    np.testing.assert_allclose(late[1], _means(4, 2, False)[1], rtol=1e-12)


def test_error_feedback_makes_up_for_what_was_lost(world):
    """The sum of what was applied follows the sum of the true means; without feedback it does not."""

    def miss(feedback):
        options = {"start_powerSGD_iter": 0, "use_error_feedback": feedback}
        found, _ = world(_run, 2, 40, False, options)[0]
        applied = sum(step[0] for step in found)
        true = sum(_means(step, 2, False)[0] for step in range(40))
        return np.linalg.norm(applied - true) / np.linalg.norm(true)

    assert miss(True) < 0.7 * miss(False)


@pytest.mark.parametrize("options", [{"matrix_approximation_rank": 0}, {"start_powerSGD_iter": -1}])
def test_options_are_checked(options):
    """A rank below 1 and a negative start make no sense."""
    with pytest.raises(ValueRangeError):
        PowerSGDState(None, **options)
