"""Smooth activations: values by hand and gradients."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

X = np.array([-9.5, -2.5, -0.6, 0.0, 0.3, 2.2, 8.9, 31.0])
ERF = np.vectorize(math.erf)


def sigmoid(x):
    """Returns the logistic function."""
    return 1 / (1 + np.exp(-x))


TANH_GELU = 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))
CASES = [
    (nn.Sigmoid(), sigmoid(X)),
    (nn.LogSigmoid(), -np.logaddexp(0, -X)),
    (nn.Tanh(), np.tanh(X)),
    (nn.Tanhshrink(), X - np.tanh(X)),
    (nn.Softsign(), X / (1 + np.abs(X))),
    (nn.Softplus(), np.where(X > 20, X, np.logaddexp(0, X))),
    (nn.Softplus(2.0, 5.0), np.where(2 * X > 5, X, np.logaddexp(0, 2 * X) / 2)),
    (nn.GELU(), X * 0.5 * (1 + ERF(X / math.sqrt(2)))),
    (nn.GELU("tanh"), TANH_GELU),
    (nn.SiLU(), X * sigmoid(X)),
    (nn.Mish(), X * np.tanh(np.logaddexp(0, X))),
]


@pytest.mark.parametrize(
    ("module", "expected"), CASES, ids=lambda value: repr(value) if hasattr(value, "forward") else ""
)
def test_values(module, expected):
    """Values are the formula's in double precision, and nothing overflows with a warning."""
    np.testing.assert_allclose(module(ddpflow.tensor(X)).numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("module", [module for module, _ in CASES], ids=repr)
def test_gradients(module):
    """Gradients of first and second order agree with finite differences."""
    points = ddpflow.tensor([-3.7, -0.8, 0.1, 2.8], dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(module, points)
    assert ddpflow.autograd.gradgradcheck(module, points)


@pytest.mark.parametrize("module", [nn.SiLU(inplace=True), nn.Mish(inplace=True)], ids=repr)
def test_in_place(module):
    """inplace=True overwrites the input, and the gradient is that of the other form."""
    start = ddpflow.tensor([-3.7, -0.8, 0.2, 2.8], dtype=ddpflow.float64, requires_grad=True)
    x = start * 1.0
    assert module(x) is x
    x.sum().backward()
    assert repr(module) == f"{type(module).__name__}(inplace=True)"
    other = start.detach().requires_grad_()
    type(module)()(other).sum().backward()
    np.testing.assert_allclose(start.grad.numpy(), other.grad.numpy(), rtol=1e-12)


def test_glu():
    """GLU gates one half by the other, and needs an even length."""
    x = np.arange(12.0).reshape(2, 6) - 5
    y = nn.GLU()(ddpflow.tensor(x))
    np.testing.assert_allclose(y.numpy(), x[:, :3] * sigmoid(x[:, 3:]), rtol=1e-12)
    assert nn.GLU(0)(ddpflow.tensor(x)).shape == (1, 6)
    with pytest.raises(RuntimeError, match=r"must be even.*\(2, 5\)"):
        nn.GLU()(ddpflow.ones(2, 5))
    with pytest.raises(RuntimeError, match="0-dimensional"):
        nn.GLU()(ddpflow.tensor(1.0))


def test_extremes_are_finite():
    """Large inputs saturate without NaN or warnings, also in half precision."""
    for dtype in (ddpflow.float16, ddpflow.float32):
        x = ddpflow.tensor([-1e4, -100.0, 100.0, 1e4], dtype=dtype)
        for module, _ in CASES:
            assert np.isfinite(module(x).float().numpy()).all(), module
