"""Adaptive pooling against its windows."""

import itertools

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn import functional as F

AVG = [nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d]
MAX = [nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d]


def by_windows(x, size, reduce):
    """Returns `reduce` of the windows floor(i n / m) to ceil((i + 1) n / m)."""
    out = np.empty((*x.shape[:2], *size))
    for place in itertools.product(*map(range, size)):
        window = tuple(
            slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place, x.shape[2:], size, strict=True)
        )
        out[(slice(None), slice(None), *place)] = reduce(
            x[(slice(None), slice(None), *window)].reshape(*x.shape[:2], -1)
        )
    return out


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 2, 4), (7, 5, 4), (9, 3, 2)])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_values_and_gradients(dims, size):
    """Means and maxima are those of the windows, for outputs smaller and larger than the input."""
    x = np.random.default_rng(dims).standard_normal((2, 3, *(7, 5, 4)[:dims]))
    wanted = size[:dims] if dims > 1 else size[0]
    average, maximum = AVG[dims - 1](wanted), MAX[dims - 1](wanted, return_indices=True)
    expected = by_windows(x, size[:dims], lambda values: values.mean(-1))
    np.testing.assert_allclose(average(ddpflow.tensor(x)).numpy(), expected, rtol=1e-11, atol=1e-14)
    largest, indices = maximum(ddpflow.tensor(x))
    expected = by_windows(x, size[:dims], lambda values: values.max(-1))
    np.testing.assert_array_equal(largest.numpy(), expected)
    found = np.take_along_axis(x.reshape(2, 3, -1), indices.numpy().reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(found, expected.reshape(2, 3, -1))
    points = ddpflow.tensor(x[:1, :1], requires_grad=True)
    assert ddpflow.autograd.gradcheck(average, points)
    assert ddpflow.autograd.gradcheck(MAX[dims - 1](wanted), points)


def test_kept_dimensions():
    """None keeps a dimension's length; one number stands for all."""
    x = ddpflow.ones(2, 3, 5, 7)
    assert nn.AdaptiveAvgPool2d((None, 2))(x).shape == (2, 3, 5, 2)
    assert nn.AdaptiveMaxPool2d(4)(x).shape == (2, 3, 4, 4)
    assert nn.AdaptiveAvgPool2d(1)(x[0]).shape == (3, 1, 1)


def test_bad_inputs():
    """A wrong rank is a RuntimeError with the shape."""
    with pytest.raises(RuntimeError, match=r"\(3, 4\)|3, 4|\[3, 4\]"):
        nn.AdaptiveAvgPool2d(2)(ddpflow.ones(3, 4))


def test_repr():
    """The size is printed."""
    assert repr(nn.AdaptiveAvgPool2d((5, None))) == "AdaptiveAvgPool2d(output_size=(5, None))"


def test_fractional_max_pooling():
    """The layers call the functions, with given samples or drawn ones; sizes and ratios are checked when made."""
    x, shares = ddpflow.randn(2, 3, 9, 8), ddpflow.rand(2, 3, 2)
    layer = nn.FractionalMaxPool2d(2, output_ratio=0.5, return_indices=True, _random_samples=shares)
    for own, other in zip(layer(x), F.fractional_max_pool2d(x, 2, (4, 4), None, True, shares), strict=True):
        assert own.equal(other)
    assert nn.FractionalMaxPool3d(2, output_size=(2, 3, 3))(ddpflow.randn(3, 5, 6, 7)).shape == (3, 2, 3, 3)
    assert repr(layer) == "FractionalMaxPool2d(kernel_size=2, output_size=None, output_ratio=0.5)"
    with pytest.raises(ValueError, match="not both"):
        nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.FractionalMaxPool2d(2, output_ratio=(0.5, 1.5))
