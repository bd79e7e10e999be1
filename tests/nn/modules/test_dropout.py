"""Dropout: what is dropped, what it does to the rest, and modes."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

KINDS = [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_changes_nothing(kind):
    """In evaluation dropout is the identity."""
    x = ddpflow.randn(2, 3, 4, 5, 6)[(0, 0) if kind in (nn.Dropout1d, nn.Dropout2d) else ()]
    np.testing.assert_array_equal(kind(0.5).eval()(x).numpy(), x.numpy())


def test_elements():
    """A share of the elements becomes zero, the rest is scaled; the gradient is the same mask."""
    x = ddpflow.ones(200, 200, requires_grad=True)
    y = nn.Dropout(0.25)(x)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(1 / 0.75)}
    assert (values == 0).mean() == pytest.approx(0.25, abs=0.01)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (nn.Dropout1d, (40, 50, 3)),
        (nn.Dropout2d, (40, 50, 3, 2)),
        (nn.Dropout3d, (40, 50, 2, 3, 2)),
    ],
)
def test_channels(kind, shape):
    """Whole channels are dropped."""
    y = kind(0.5)(ddpflow.ones(*shape)).numpy().reshape(40, 50, -1)
    assert (y == y[:, :, :1]).all()
    assert set(np.unique(y)) == {0.0, 2.0}
    assert (y[:, :, 0] == 0).mean() == pytest.approx(0.5, abs=0.05)


def test_probabilities_of_zero_and_one():
    """p=0 keeps all, p=1 drops all, without NaN."""
    x = ddpflow.randn(5, 4)
    np.testing.assert_array_equal(nn.Dropout(0.0)(x).numpy(), x.numpy())
    y = nn.Dropout(1.0)(x.requires_grad_())
    y.sum().backward()
    assert not y.detach().numpy().any()
    assert not x.grad.numpy().any()


def test_alpha_dropout_keeps_the_moments():
    """Alpha dropout keeps mean 0 and variance 1 of standard normal input."""
    x = ddpflow.randn(300, 300)
    y = nn.AlphaDropout(0.3)(x).numpy()
    assert y.mean() == pytest.approx(0.0, abs=0.02)
    assert y.std() == pytest.approx(1.0, abs=0.02)
    channels = nn.FeatureAlphaDropout(0.3)(ddpflow.randn(20, 30, 4)).numpy()
    constant = (channels == channels[:, :, :1]).all(2)
    assert 0.2 < constant.mean() < 0.4


def test_seed_repeats():
    """The same seed drops the same elements."""
    x = ddpflow.ones(50)
    ddpflow.manual_seed(1)
    first = nn.Dropout()(x).tolist()
    ddpflow.manual_seed(1)
    assert nn.Dropout()(x).tolist() == first


def test_in_place():
    """inplace=True overwrites the input."""
    x = ddpflow.ones(100)
    y = nn.Dropout(0.5, inplace=True)(x)
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    assert (x == 0).any()


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_probability_out_of_range(p):
    """What is no probability is a ValueError."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(p)


def test_repr():
    """Probability and place are printed."""
    assert repr(nn.Dropout(0.1)) == "Dropout(p=0.1, inplace=False)"
