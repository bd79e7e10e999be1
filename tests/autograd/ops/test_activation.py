"""Activation functions: values from their formulas, and far out."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import activation
from ddpflow.factories import tensor

X = np.array([-30.0, -2.0, -0.5, 0.5, 2.0, 30.0])
FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "logsigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "softplus": lambda x: np.where(x > 20, x, np.log1p(np.exp(x))),
    "hardshrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "softshrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
}


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_values(name):
    """Values by the formula, in float64 and float32."""
    function = getattr(activation, name)
    np.testing.assert_allclose(function(tensor(X)).numpy(), FORMULAS[name](X), rtol=1e-12, atol=1e-14)
    found = function(tensor(X.astype(np.float32)))
    assert found.dtype is ddpflow.float32
    np.testing.assert_allclose(found.numpy(), FORMULAS[name](X), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", sorted(FORMULAS))
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_far_out(name, dtype):
    """Nothing overflows for large inputs: values and gradients are finite, without a warning."""
    x = tensor([-1e4, -100.0, 100.0, 1e4], dtype=dtype, requires_grad=True)
    y = getattr(activation, name)(x)
    y.sum().backward()
    assert np.isfinite(y.detach().numpy()).all()
    assert np.isfinite(x.grad.numpy()).all()


def test_relu_at_zero():
    """The gradient at 0 is 0."""
    x = tensor([0.0, -0.0, 1.0], requires_grad=True)
    activation.relu(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0]


def test_gelu_forms():
    """The tanh form differs a little from the exact one; any other name is refused."""
    x = tensor([1.0])
    exact, formula = activation.gelu(x).item(), activation.gelu(x, "tanh").item()
    assert exact == pytest.approx(0.8413447, abs=1e-6)
    assert formula == pytest.approx(0.8411920, abs=1e-6)
    with pytest.raises(ValueError, match="'fast'"):
        activation.gelu(x, approximate="fast")


def test_prelu_has_one_weight_or_one_for_each_channel():
    """The weight stands along dimension 1, and its gradient has its shape."""
    x = tensor([[-1.0, -2.0], [3.0, -4.0]])
    weight = tensor([0.5, 0.25], requires_grad=True)
    y = activation.prelu(x, weight)
    assert y.tolist() == [[-0.5, -0.5], [3.0, -1.0]]
    y.sum().backward()
    assert weight.grad.tolist() == [-1.0, -6.0]


def test_threshold():
    """What is not above the threshold becomes the value, and passes no gradient."""
    x = tensor([-1.0, 0.5, 2.0], requires_grad=True)
    y = activation.threshold(x, 0.5, 9.0)
    assert y.tolist() == [9.0, 9.0, 2.0]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0]
