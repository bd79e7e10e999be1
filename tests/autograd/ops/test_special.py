"""Error and gamma functions against independent values."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import grad
from ddpflow.factories import tensor

X = np.concatenate([np.linspace(-6.0, 6.0, 121), [-0.46875, 0.46875, 4.0, -4.0, 1e-300, 30.0, -30.0]])


def test_erf_and_erfc():
    """float64 to a few units in the last place of the C library; erfc keeps its digits where erf is 1."""
    np.testing.assert_allclose(ddpflow.erf(tensor(X)).numpy(), [math.erf(v) for v in X], rtol=4e-16, atol=0)
    np.testing.assert_allclose(ddpflow.erfc(tensor(X)).numpy(), [math.erfc(v) for v in X], rtol=4e-15, atol=0)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 6e-7), ("float16", 1e-3)])
def test_erf_of_smaller_types(dtype, tolerance):
    """The shorter approximation is as exact as the type allows, and the dtype stays."""
    found = ddpflow.erf(tensor(X, dtype=dtype))
    assert str(found.dtype) == f"ddpflow.{dtype}"
    np.testing.assert_allclose(found.numpy(), [math.erf(v) for v in X.astype(dtype)], atol=tolerance)


def test_erf_at_the_ends():
    """Infinities give -1 and 1, NaN stays."""
    assert ddpflow.erf(tensor([-math.inf, math.inf], dtype="float64")).tolist() == [-1.0, 1.0]
    assert ddpflow.erfc(tensor([math.inf], dtype="float64")).tolist() == [0.0]
    assert math.isnan(ddpflow.erf(tensor([math.nan], dtype="float64")).item())


def test_erfinv():
    """It inverts erf over the whole range, near the ends too, and is infinite at them."""
    y = np.concatenate([np.linspace(-0.999, 0.999, 101), [1 - 1e-10, 1 - 2.0**-52]])
    x = ddpflow.erfinv(tensor(y)).numpy()
    np.testing.assert_allclose([math.erf(v) for v in x], y, rtol=1e-14)
    ends = ddpflow.erfinv(tensor([-1.0, 1.0, 1.5], dtype="float64")).tolist()
    assert ends[:2] == [-math.inf, math.inf] and math.isnan(ends[2])


def test_lgamma():
    """The C library's values, for negative arguments too."""
    x = np.concatenate([np.linspace(-5.31, 20.0, 101), [1e-5, 171.0, 1e6]])
    np.testing.assert_allclose(ddpflow.lgamma(tensor(x)).numpy(), [math.lgamma(v) for v in x], rtol=1e-12, atol=1e-13)


def test_digamma_and_polygamma():
    """Known values, the recurrence, and each as the derivative of the one before."""
    euler = 0.57721566490153286
    assert ddpflow.digamma(tensor([1.0], dtype="float64")).item() == pytest.approx(-euler, rel=1e-14)
    assert ddpflow.polygamma(1, tensor([1.0], dtype="float64")).item() == pytest.approx(math.pi**2 / 6, rel=1e-14)
    x = tensor(np.linspace(0.3, 9.0, 20), requires_grad=True)
    step = ddpflow.digamma(x + 1) - ddpflow.digamma(x)
    np.testing.assert_allclose(step.detach().numpy(), 1 / x.detach().numpy(), rtol=1e-11)
    (slope,) = grad(ddpflow.lgamma(x).sum(), [x])
    np.testing.assert_allclose(slope.numpy(), ddpflow.digamma(x).detach().numpy(), rtol=1e-14)


def test_mvlgamma():
    """For one dimension it is lgamma; for two the product formula."""
    x = tensor([2.5, 4.0], dtype="float64")
    np.testing.assert_allclose(ddpflow.mvlgamma(x, 1).numpy(), ddpflow.lgamma(x).numpy(), rtol=1e-14)
    expected = 0.5 * math.log(math.pi) + math.lgamma(2.5) + math.lgamma(2.0)
    assert ddpflow.mvlgamma(x, 2)[0].item() == pytest.approx(expected, rel=1e-14)
