"""Losses against numbers and probabilities: extreme values, reductions, refusals."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import loss as ops


def double(values):
    """A tensor of float64."""
    return ddpflow.tensor(values, dtype=ddpflow.float64)


def test_logits_far_out_and_at_0():
    """Losses and slopes are exact where a formula through the sigmoid overflows or loses its sign."""
    x = double([0.0, -100.0, 100.0, -50.0]).requires_grad_()
    losses = ops.binary_cross_entropy_with_logits(x, double([0.0] * 4), reduction="none")
    np.testing.assert_allclose(
        losses.detach().numpy(), [math.log(2), 3.7200759760208356e-44, 100, 1.9287498479639178e-22]
    )
    losses.mean().backward()
    np.testing.assert_allclose(x.grad.numpy() * 4, [0.5, 3.7200759760208356e-44, 1, 1.9287498479639178e-22])
    half = ddpflow.tensor([100.0, -100.0], dtype=ddpflow.float16)
    assert np.isfinite(ops.binary_cross_entropy_with_logits(half, half * 0).numpy())


def test_probabilities_at_0_and_1_clamp_the_logarithm():
    """As PyTorch: a loss of at most 100."""
    x = double([0.0, 1.0]).requires_grad_()
    losses = ops.binary_cross_entropy(x, double([1.0, 0.0]), reduction="none")
    assert losses.tolist() == [100.0, 100.0]
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        ops.binary_cross_entropy(double([1.5]), double([1.0]))


def test_positive_weight_scales_positive_targets(rng):
    """It is the loss of a target repeated that often."""
    x, t = double(rng.standard_normal(5).tolist()), double([1.0, 0.0, 1.0, 0.0, 1.0])
    weighted = ops.binary_cross_entropy_with_logits(x, t, reduction="sum", pos_weight=double([3.0]))
    plain = ops.binary_cross_entropy_with_logits(x, t, reduction="none")
    assert weighted.item() == pytest.approx((plain * (1 + 2 * t)).sum().item())


def test_smooth_and_huber_meet_in_their_definitions():
    """Below the limit squared, above linear; Huber is smooth L1 times delta; beta 0 is L1."""
    x, zero = double([0.5, 3.0]), double([0.0, 0.0])
    assert ops.smooth_l1_loss(x, zero, reduction="none", beta=2.0).tolist() == [0.0625, 2.0]
    assert ops.huber_loss(x, zero, reduction="none", delta=2.0).tolist() == [0.125, 4.0]
    assert (
        ops.smooth_l1_loss(x, zero, reduction="sum", beta=0).item()
        == ops.l1_loss(x, zero, reduction="sum").item()
        == 3.5
    )
    for call in (lambda: ops.huber_loss(x, zero, delta=0), lambda: ops.smooth_l1_loss(x, zero, beta=-1)):
        with pytest.raises(RuntimeError, match="does not support"):
            call()


def test_weighted_means_divide_by_the_weights():
    """Of mse and l1 with ``weight``."""
    x, t, w = double([1.0, 4.0]), double([0.0, 0.0]), double([3.0, 1.0])
    assert ops.mse_loss(x, t, weight=w).item() == 19 / 4
    assert ops.l1_loss(x, t, weight=w, reduction="sum").item() == 7
    assert ops.mse_loss(x, t).item() == 8.5


def test_divergence_of_equal_distributions_is_0(rng):
    """Also where a probability is 0; batchmean divides by the batch."""
    p = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    logs = np.log(np.where(p == 0, 1.0, p))
    assert ops.kl_div(ddpflow.from_numpy(logs), ddpflow.from_numpy(p), reduction="batchmean").item() == pytest.approx(0)
    q = rng.random((2, 3))
    other = ops.kl_div(ddpflow.from_numpy(logs), ddpflow.from_numpy(np.log(q)), reduction="sum", log_target=True)
    assert other.item() == pytest.approx((q * (np.log(q) - logs)).sum())


def test_counts_and_normal_samples():
    """Poisson and Gaussian likelihoods against their formulas."""
    x, t = double([0.5, 1.0]), double([0.0, 3.0])
    expected = np.exp([0.5, 1.0]) - np.array([0.0, 3.0])
    np.testing.assert_allclose(ops.poisson_nll_loss(x, t, reduction="none").numpy(), expected)
    full = ops.poisson_nll_loss(x, t, full=True, reduction="none").numpy() - expected
    np.testing.assert_allclose(full, [0, 3 * math.log(3) - 3 + 0.5 * math.log(6 * math.pi)])
    var = double([0.25, 4.0])
    gauss = ops.gaussian_nll_loss(x, t, var, full=True, reduction="sum").item()
    density = [
        math.exp(-((a - b) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v) for a, b, v in ((0.5, 0, 0.25), (1, 3, 4))
    ]
    assert gauss == pytest.approx(-sum(map(math.log, density)))
    with pytest.raises(ValueError, match="negative"):
        ops.gaussian_nll_loss(x, t, -var)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"])
def test_shapes_that_do_not_broadcast(name):
    """A RuntimeError with both."""
    with pytest.raises(RuntimeError, match=r"\(2, 3\).*\(2, 2\)"):
        getattr(ops, name)(ddpflow.zeros(2, 3), ddpflow.zeros(2, 2))


def test_probabilities_of_another_shape():
    """A ValueError, as in PyTorch."""
    with pytest.raises(ValueError, match=r"\(3,\)"):
        ops.binary_cross_entropy(ddpflow.zeros(2), ddpflow.zeros(3))
