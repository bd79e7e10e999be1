"""Functions of two tensors."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import grad
from ddpflow.factories import tensor


def test_ties_share_the_gradient():
    """Where both operands of maximum or minimum are equal each gets half."""
    for function in (ddpflow.maximum, ddpflow.minimum):
        x = tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = tensor([1.0, 5.0, 0.0], requires_grad=True)
        function(x, y).sum().backward()
        assert (x.grad + y.grad).tolist() == [1.0, 1.0, 1.0]
        assert x.grad[0].item() == 0.5


def test_nan_in_extremes():
    """Maximum and minimum pass NaN on; fmax and fmin take the other operand."""
    x, y = tensor([float("nan"), 1.0]), tensor([2.0, float("nan")])
    assert all(math.isnan(v) for v in ddpflow.maximum(x, y).tolist())
    assert ddpflow.fmax(x, y).tolist() == ddpflow.fmin(x, y).tolist() == [2.0, 1.0]


def test_logaddexp_far_out():
    """No overflow, and equal infinities share the gradient."""
    x = tensor([1000.0, -1000.0, -float("inf")], requires_grad=True)
    y = tensor([999.0, 0.0, -float("inf")], requires_grad=True)
    out = ddpflow.logaddexp(x, y)
    assert out.tolist() == [pytest.approx(1000.3132617), 0.0, -float("inf")]
    gx, gy = grad(out.sum(), [x, y])
    assert (gx + gy).tolist() == [1.0, 1.0, 1.0]


def test_xlogy_at_zero():
    """0 * log(anything) is 0, with finite gradients; only NaN stays NaN."""
    x, y = tensor([0.0, 0.0, 2.0], requires_grad=True), tensor([0.0, float("nan"), 1.0], requires_grad=True)
    out = ddpflow.xlogy(x, y)
    assert out[0].item() == 0.0 and math.isnan(out[1].item()) and out[2].item() == 0.0


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("atan2", np.arctan2),
        ("hypot", np.hypot),
        ("copysign", np.copysign),
        ("logaddexp2", np.logaddexp2),
        ("fmod", np.fmod),
        ("nextafter", np.nextafter),
        ("heaviside", np.heaviside),
    ],
)
def test_values(name, reference):
    """Values are NumPy's, also where the operands broadcast."""
    a, b = np.linspace(-2.0, 2.0, 12).reshape(3, 4), np.array([0.5, -1.5, 2.5, -3.0])
    found = getattr(ddpflow, name)(tensor(a), tensor(b))
    np.testing.assert_array_equal(found.numpy(), reference(a, b))


def test_integers():
    """Gcd and lcm of integers, ldexp with integer exponents."""
    assert ddpflow.gcd(tensor([12, -18]), tensor([8, 12])).tolist() == [4, 6]
    assert ddpflow.lcm(tensor([4, 6]), tensor([6, 8])).tolist() == [12, 24]
    assert ddpflow.ldexp(tensor([1.5, 3.0]), tensor([2, -1])).tolist() == [6.0, 1.5]
