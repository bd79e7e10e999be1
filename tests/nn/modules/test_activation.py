"""Activations with a kink: values by hand, in place, options, errors."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

X = np.array([-7.3, -2.5, -0.6, -0.4, 0.0, 0.3, 0.7, 2.2, 6.9])
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def relu6(x):
    """Returns x cut off at 0 and 6."""
    return np.clip(x, 0, 6)


CASES = [
    (nn.ReLU(), np.maximum(X, 0)),
    (nn.ReLU6(), relu6(X)),
    (nn.LeakyReLU(), np.where(X > 0, X, 0.01 * X)),
    (nn.LeakyReLU(0.3), np.where(X > 0, X, 0.3 * X)),
    (nn.Hardtanh(), np.clip(X, -1, 1)),
    (nn.Hardtanh(-2.0, 0.5), np.clip(X, -2, 0.5)),
    (nn.Hardsigmoid(), relu6(X + 3) / 6),
    (nn.Hardswish(), X * relu6(X + 3) / 6),
    (nn.ELU(), np.where(X > 0, X, np.expm1(X))),
    (nn.ELU(0.5), np.where(X > 0, X, 0.5 * np.expm1(X))),
    (nn.CELU(2.0), np.where(X > 0, X, 2 * np.expm1(X / 2))),
    (nn.SELU(), SELU_SCALE * np.where(X > 0, X, SELU_ALPHA * np.expm1(X))),
    (nn.Hardshrink(), np.where(np.abs(X) > 0.5, X, 0)),
    (nn.Softshrink(), np.sign(X) * np.maximum(np.abs(X) - 0.5, 0)),
    (nn.Threshold(0.5, 9.0), np.where(X > 0.5, X, 9.0)),
    (nn.RReLU().eval(), np.where(X > 0, X, X * (1 / 8 + 1 / 3) / 2)),
    (nn.PReLU(init=0.25), np.where(X > 0, X, 0.25 * X)),
]


@pytest.mark.parametrize(
    ("module", "expected"), CASES, ids=lambda value: repr(value) if hasattr(value, "forward") else ""
)
def test_values(module, expected):
    """Values are the formula's, in double precision, and the input is left alone."""
    x = ddpflow.tensor(X)
    y = module.double()(x)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(x.numpy(), X)


@pytest.mark.parametrize("module", [module for module, _ in CASES], ids=repr)
def test_gradients(module):
    """Gradients agree with finite differences away from kinks."""
    points = ddpflow.tensor([-3.7, -0.8, -0.3, 0.2, 0.9, 2.8], dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(module.double(), points)


@pytest.mark.parametrize(
    "module",
    [
        nn.ReLU(inplace=True),
        nn.ReLU6(inplace=True),
        nn.LeakyReLU(inplace=True),
        nn.Hardtanh(inplace=True),
        nn.Hardsigmoid(inplace=True),
        nn.Hardswish(inplace=True),
        nn.ELU(inplace=True),
        nn.CELU(inplace=True),
        nn.SELU(inplace=True),
        nn.Threshold(0.1, 2.0, inplace=True),
        nn.RReLU(inplace=True).eval(),
    ],
    ids=repr,
)
def test_in_place_gives_the_same_values_and_gradients(module):
    """inplace=True overwrites the input, and the gradient is that of the other form."""
    plain = type(module)(0.1, 2.0) if isinstance(module, nn.Threshold) else type(module)()
    plain.eval()
    start = ddpflow.tensor([-3.7, -0.8, 0.2, 2.8], requires_grad=True)
    other = ddpflow.tensor([-3.7, -0.8, 0.2, 2.8], requires_grad=True)
    x = start * 1.0
    y = module(x)
    assert y is x
    expected = plain(other * 1.0)
    assert y.tolist() == expected.tolist()
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_allclose(start.grad.numpy(), other.grad.numpy(), rtol=1e-6)


def test_in_place_on_a_leaf_is_refused():
    """A leaf that requires grad cannot be overwritten."""
    with pytest.raises(RuntimeError, match="leaf"):
        nn.ReLU(inplace=True)(ddpflow.ones(2, requires_grad=True))


def test_prelu_per_channel():
    """PReLU with one slope for each channel has a gradient for each."""
    module = nn.PReLU(2)
    x = ddpflow.tensor([[[-1.0, 2.0], [-3.0, -4.0]]])
    with ddpflow.no_grad():
        module.weight.copy_(ddpflow.tensor([0.5, 0.1]))
    y = module(x)
    np.testing.assert_allclose(y.detach().numpy(), [[[-0.5, 2.0], [-0.3, -0.4]]], rtol=1e-6)
    y.sum().backward()
    assert module.weight.grad.tolist() == [-1.0, -7.0]


def test_rrelu_draws_slopes_in_training():
    """In training RReLU's slopes lie in its interval and differ."""
    y = nn.RReLU(0.2, 0.4)(-ddpflow.ones(1000)).numpy()
    assert ((y <= -0.2) & (y > -0.4)).all()
    assert y.std() == pytest.approx(0.2 / 12**0.5, rel=0.1)
    with pytest.raises(ValueError, match="lower bound <= the upper"):
        nn.RReLU(0.5, 0.1)(ddpflow.ones(1))


def test_bad_arguments():
    """Bounds in the wrong order are ValueErrors."""
    with pytest.raises(ValueError, match="must be greater than min_val"):
        nn.Hardtanh(1.0, -1.0)


def test_repr():
    """The printed form has the options, and inplace only where it is set."""
    assert repr(nn.ReLU(inplace=True)) == "ReLU(inplace=True)"
    assert repr(nn.LeakyReLU(0.2, True)) == "LeakyReLU(negative_slope=0.2, inplace=True)"
    assert repr(nn.Hardswish(True)) == "Hardswish()"
