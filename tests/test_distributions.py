"""Distributions against their formulas, and against many draws."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.distributions import Bernoulli, Categorical, Distribution, Normal, kl_divergence
from ddpflow.errors import ValueRangeError


def test_normal():
    """Density, entropy and quantiles are the formulas'; parameters broadcast."""
    d = Normal(ddpflow.tensor([0.0, 1.0]), ddpflow.tensor([[1.0], [2.0]]))
    assert d.batch_shape == (2, 2) and d.sample((3,)).shape == (3, 2, 2)
    x = 0.7
    expected = [[-0.5 * ((x - m) / s) ** 2 - math.log(s) - 0.5 * math.log(2 * math.pi) for m in (0, 1)] for s in (1, 2)]
    np.testing.assert_allclose(d.log_prob(ddpflow.tensor(x)).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(d.entropy()[:, 0].numpy(), [1.4189385, 2.1120857], rtol=1e-6)
    assert d.cdf(ddpflow.tensor(0.0))[0, 0].item() == pytest.approx(0.5)
    np.testing.assert_allclose(d.icdf(d.cdf(ddpflow.tensor(0.3))).numpy(), np.full((2, 2), 0.3), rtol=1e-5)
    assert d.variance.tolist() == [[1, 1], [4, 4]] and d.mean.tolist() == d.mode.tolist() == [[0, 1], [0, 1]]


def test_normal_draws():
    """Draws have the moments; rsample lets gradients through, sample does not."""
    ddpflow.manual_seed(0)
    loc, scale = ddpflow.tensor(2.0, requires_grad=True), ddpflow.tensor(3.0, requires_grad=True)
    d = Normal(loc, scale)
    drawn = d.sample((20000,))
    assert not drawn.requires_grad
    assert abs(drawn.mean().item() - 2) < 0.1 and abs(drawn.std().item() - 3) < 0.1
    d.rsample((4,)).sum().backward()
    assert loc.grad.item() == 4
    assert Normal(0.0, 1.0).sample().shape == ()


def test_bernoulli():
    """Probabilities and log-odds describe the same; extreme log-odds stay finite."""
    p = ddpflow.tensor([0.2, 0.5, 0.9])
    d = Bernoulli(p)
    np.testing.assert_allclose(d.log_prob(ddpflow.ones(3)).numpy(), np.log(p.numpy()), rtol=1e-5)
    np.testing.assert_allclose(Bernoulli(logits=d.logits).probs.numpy(), p.numpy(), rtol=1e-6)
    np.testing.assert_allclose(d.entropy().numpy(), [0.5004024, 0.6931472, 0.325083], rtol=1e-5)
    assert d.mode.tolist()[::2] == [0, 1] and math.isnan(d.mode[1].item())
    far = Bernoulli(logits=ddpflow.tensor([200.0, -200.0]))
    assert far.log_prob(ddpflow.tensor([0.0, 1.0])).tolist() == [-200, -200]
    ddpflow.manual_seed(0)
    np.testing.assert_allclose(d.sample((20000,)).mean(0).numpy(), p.numpy(), atol=0.02)


def test_categorical():
    """Weights are normalised; log_prob broadcasts class numbers; draws come as often as they should."""
    d = Categorical(ddpflow.tensor([[1.0, 1.0, 2.0], [0.0, 3.0, 1.0]]))
    np.testing.assert_allclose(d.probs.numpy(), [[0.25, 0.25, 0.5], [0, 0.75, 0.25]])
    np.testing.assert_allclose(d.log_prob(ddpflow.tensor([2, 1])).numpy(), np.log([0.5, 0.75]), rtol=1e-5)
    assert d.log_prob(ddpflow.tensor([[0, 1], [1, 1], [2, 2]])).shape == (3, 2)
    np.testing.assert_allclose(d.entropy().numpy(), [1.0397208, 0.5623351], rtol=1e-4)
    assert d.mode.tolist() == [2, 1] and d.batch_shape == (2,)
    ddpflow.manual_seed(0)
    drawn = d.sample((10000,))
    assert drawn.shape == (10000, 2) and drawn.dtype == ddpflow.int64
    np.testing.assert_allclose(np.bincount(drawn[:, 0].numpy()) / 10000, [0.25, 0.25, 0.5], atol=0.02)
    assert 0 not in drawn[:, 1].tolist()
    single = Categorical(logits=ddpflow.tensor([0.0, 0.0]))
    assert single.sample().shape == () and single.sample((2, 3)).shape == (2, 3)


def test_policy_gradient():
    """The gradient of log_prob at a class is one minus its probability at its own logit."""
    logits = ddpflow.tensor([0.5, -0.5, 1.0], requires_grad=True)
    d = Categorical(logits=logits)
    d.log_prob(ddpflow.tensor(1)).backward()
    expected = -d.probs.numpy(force=True)
    expected[1] += 1
    np.testing.assert_allclose(logits.grad.numpy(), expected, rtol=1e-5)


def test_divergences():
    """Zero from itself, the formula's value from another; other pairs are refused."""
    assert kl_divergence(Normal(0.0, 1.0), Normal(1.0, 2.0)).item() == pytest.approx(math.log(2) + 2 / 8 - 0.5)
    a, b = Categorical(ddpflow.tensor([0.25, 0.75])), Categorical(ddpflow.tensor([0.5, 0.5]))
    assert kl_divergence(a, b).item() == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    c, d = Bernoulli(ddpflow.tensor(0.75)), Bernoulli(ddpflow.tensor(0.5))
    assert kl_divergence(c, d).item() == pytest.approx(kl_divergence(a, b).item(), rel=1e-5)
    with pytest.raises(NotImplementedError, match="Normal and Categorical"):
        kl_divergence(Normal(0.0, 1.0), a)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Normal(0.0, 0.0),
        lambda: Bernoulli(),
        lambda: Bernoulli(0.5, 0.5),
        lambda: Bernoulli(1.5),
        lambda: Categorical(),
        lambda: Categorical(ddpflow.tensor(1.0)),
        lambda: Categorical(ddpflow.tensor([-1.0, 2.0])),
        lambda: Categorical(ddpflow.tensor([0.0, 0.0])),
    ],
)
def test_bad_parameters(call):
    """Parameters that describe no distribution raise ValueError."""
    with pytest.raises(ValueRangeError):
        call()


def test_what_a_distribution_lacks():
    """Discrete ones have no draws with gradients, and the text says what to use."""
    with pytest.raises(NotImplementedError, match="log_prob"):
        Bernoulli(0.5).rsample()
    assert repr(Distribution((2,))) == "Distribution(batch_shape=(2,), event_shape=())"
