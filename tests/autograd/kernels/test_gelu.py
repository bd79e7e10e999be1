"""The float32 GELU kernel against exact values."""

import math

import numpy as np
import pytest

from ddpflow.autograd.kernels import gelu as kernels


def exact(x):
    """GELU and its derivative in double precision."""
    cdf = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    return x * cdf, cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def tanh_form(x):
    """The usual approximation and its derivative in double precision."""
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)


@pytest.mark.parametrize(("approximate", "reference", "atol"), [("none", exact, 1e-6), ("tanh", tanh_form, 1.5e-5)])
def test_values_and_slopes(approximate, reference, atol):
    """Both forms are right everywhere, over several blocks, at 0 and far out."""
    x = np.concatenate([np.linspace(-9, 9, 70001), [0.0, -0.0, 100.0, -100.0, 1e-30]]).astype(np.float32)
    y = kernels.gelu(np, x, approximate)
    value, slope = reference(x.astype(np.float64))
    np.testing.assert_allclose(y, value, rtol=0, atol=atol)
    g = np.linspace(-2, 2, x.size, dtype=np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = kernels.gelu_backward(np, g, x, y, approximate)
    np.testing.assert_allclose(found, g * slope, rtol=0, atol=2 * atol)


def test_infinity():
    """Infinity stays, and minus infinity times probability 0 is NaN, as in PyTorch."""
    with np.errstate(invalid="ignore", over="ignore"):
        y = kernels.gelu(np, np.array([np.inf, -np.inf, 1e30], np.float32), "none")
    assert y[0] == np.inf and np.isnan(y[1]) and y[2] == np.float32(1e30)


def test_takes_only_contiguous_float32_of_numpy(rng):
    """Everything else goes by the formula."""
    x = rng.standard_normal((4, 6)).astype(np.float32)
    assert kernels.fits(np, x)
    assert not kernels.fits(np, x.T) and not kernels.fits(np, x.astype(np.float64)) and not kernels.fits(object(), x)
