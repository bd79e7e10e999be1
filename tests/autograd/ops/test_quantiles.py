"""Order statistics and covariances."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.factories import tensor

NAN = float("nan")


def leaf(values):
    """A float64 leaf."""
    return tensor(values, requires_grad=True, dtype="float64")


def test_median_is_the_lower_one():
    """Of an even number of elements the lower of the two middle ones; along a dimension with its index."""
    assert tensor([4.0, 1.0, 3.0, 2.0]).median().item() == 2.0
    values, indices = tensor([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]]).median(1)
    assert values.tolist() == [2.0, 5.0] and indices.tolist() == [2, 2]
    assert tensor([[1.0, 2.0]]).median(1, keepdim=True).values.shape == (1, 1)


def test_median_and_nan():
    """A NaN decides the median; nanmedian leaves it out."""
    x = tensor([1.0, NAN, 3.0, 2.0])
    assert math.isnan(x.median().item()) and x.nanmedian().item() == 2.0
    assert math.isnan(x.median(0).values.item()) and x.median(0).indices.item() == 1
    assert x.nanmedian(0).values.item() == 2.0


def test_gradient_of_the_median():
    """Equal elements share it; along a dimension the one at the index has it all."""
    x = leaf([2.0, 2.0, 1.0, 9.0, 0.0])
    x.median().backward()
    assert x.grad.tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]
    y = leaf([[5.0, 1.0, 3.0]])
    y.median(1).values.sum().backward()
    assert y.grad.tolist() == [[0.0, 0.0, 1.0]]


def test_mode():
    """The most frequent element, the least of equally frequent ones, and its last index."""
    values, indices = tensor([[1.0, 2.0, 2.0, 3.0], [4.0, 4.0, 1.0, 1.0]]).mode(1)
    assert values.tolist() == [2.0, 1.0] and indices.tolist() == [2, 3]


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantile_values(interpolation):
    """NumPy's values for every way to interpolate, for one q and for several."""
    x = np.random.default_rng(7).normal(size=(4, 5))
    q = np.array([0.0, 0.3, 0.5, 0.77, 1.0])
    for dim in (None, 0, 1):
        found = ddpflow.quantile(tensor(x), tensor(q), dim, interpolation=interpolation)
        np.testing.assert_allclose(found.numpy(), np.quantile(x, q, axis=dim, method=interpolation))
    assert ddpflow.quantile(tensor(x), 0.5, 1, keepdim=True).shape == (4, 1)


def test_quantile_gradients_and_nan():
    """The gradient goes to the two neighbours; a NaN decides its row unless nanquantile is asked."""
    x = leaf([[3.0, 1.0, 2.0, 7.0], [0.5, 9.0, 4.0, 6.0]])
    assert gradcheck(lambda t: ddpflow.quantile(t, 0.4, 1), (x,))
    y = tensor([[1.0, NAN, 3.0], [1.0, 2.0, 3.0]])
    found = ddpflow.quantile(y, 0.5, 1).tolist()
    assert math.isnan(found[0]) and found[1] == 2.0
    assert ddpflow.nanquantile(y, 0.5, 1).tolist() == [2.0, 2.0]


def test_quantile_refuses():
    """Integers, q outside [0, 1], unknown interpolation, nothing."""
    x = tensor([1.0, 2.0])
    with pytest.raises((TypeError, RuntimeError), match="int64"):
        ddpflow.quantile(tensor([1, 2]), 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        ddpflow.quantile(x, 1.5)
    with pytest.raises(ValueError, match="'cubic'"):
        ddpflow.quantile(x, 0.5, interpolation="cubic")
    with pytest.raises(RuntimeError, match="empty"):
        ddpflow.quantile(ddpflow.zeros(0), 0.5)


def test_covariances():
    """NumPy's covariances, with weights, and correlations."""
    x = np.random.default_rng(8).normal(size=(3, 6))
    np.testing.assert_allclose(ddpflow.cov(tensor(x)).numpy(), np.cov(x))
    f, a = np.array([1, 2, 3, 1, 2, 1]), np.array([0.5, 1.0, 1.5, 1.0, 0.5, 2.0])
    np.testing.assert_allclose(
        ddpflow.cov(tensor(x), fweights=tensor(f), aweights=tensor(a)).numpy(), np.cov(x, fweights=f, aweights=a)
    )
    np.testing.assert_allclose(ddpflow.corrcoef(tensor(x)).numpy(), np.corrcoef(x))
    assert gradcheck(ddpflow.cov, (leaf(x),), fast_mode=True)


def test_renorm():
    """Slices above the limit are scaled down to it, the others stay."""
    x = tensor([[3.0, 4.0], [0.3, 0.4]])
    y = ddpflow.renorm(x, 2, 0, 1.0)
    np.testing.assert_allclose(y.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
