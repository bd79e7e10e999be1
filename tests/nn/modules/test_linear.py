"""Linear layers."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def test_linear_by_hand():
    """Linear is x W^T + b over the last dimension, for any number of leading ones."""
    layer = nn.Linear(3, 2).double()
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    for shape in [(3,), (4, 3), (2, 4, 3), (0, 3)]:
        x = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
        np.testing.assert_allclose(layer(ddpflow.tensor(x)).detach().numpy(), x @ weight.T + bias, rtol=1e-12)


def test_linear_gradients():
    """The weight's gradient is the outer product, the bias's the sum."""
    layer = nn.Linear(2, 3)
    x = ddpflow.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    g = ddpflow.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    layer(x).backward(g)
    np.testing.assert_allclose(layer.weight.grad.numpy(), g.numpy().T @ x.detach().numpy(), rtol=1e-6)
    assert layer.bias.grad.tolist() == [5.0, 7.0, 9.0]
    np.testing.assert_allclose(x.grad.numpy(), g.numpy() @ layer.weight.detach().numpy(), rtol=1e-5)


def test_linear_starts_like_pytorch():
    """Weight and bias start uniform within 1 / sqrt(in_features)."""
    layer = nn.Linear(400, 300)
    for parameter in layer.parameters():
        assert abs(parameter.detach().numpy()).max() <= 0.05
        assert parameter.detach().numpy().std() == pytest.approx(0.05 / math.sqrt(3), rel=0.1)
    assert nn.Linear(2, 3, bias=False).bias is None
    assert nn.Linear(2, 3, dtype=ddpflow.float64).weight.dtype is ddpflow.float64


def test_linear_refuses_other_widths():
    """Another last dimension is a RuntimeError with the shapes."""
    with pytest.raises(RuntimeError, match=r"\(2, 4\).*\(5, 3\)"):
        nn.Linear(3, 5)(ddpflow.ones(2, 4))


def test_bilinear():
    """Bilinear is x1^T W_k x2 + b_k."""
    layer = nn.Bilinear(2, 3, 4).double()
    x1, x2 = np.arange(10.0).reshape(5, 2), np.arange(15.0).reshape(5, 3) - 7
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    expected = np.einsum("ni,kij,nj->nk", x1, weight, x2) + bias
    np.testing.assert_allclose(layer(ddpflow.tensor(x1), ddpflow.tensor(x2)).detach().numpy(), expected, rtol=1e-10)
    inputs = [ddpflow.tensor(x, requires_grad=True) for x in (x1[:2] / 10, x2[:2] / 10)]
    assert ddpflow.autograd.gradcheck(layer, inputs)
    with pytest.raises(ValueError, match="in1_features must be > 0"):
        nn.Bilinear(0, 3, 4)
    with pytest.raises(RuntimeError, match=r"\(2, 5\)"):
        layer(ddpflow.ones(2, 5).double(), ddpflow.ones(2, 3).double())


def test_identity():
    """Identity takes any arguments and gives its input back, the same object."""
    x = ddpflow.ones(2)
    assert nn.Identity(54, unused=True)(x) is x


def test_repr():
    """The sizes are printed."""
    assert repr(nn.Linear(3, 2)) == "Linear(in_features=3, out_features=2, bias=True)"
    assert repr(nn.Bilinear(1, 2, 3, bias=False)) == (
        "Bilinear(in1_features=1, in2_features=2, out_features=3, bias=False)"
    )
