"""Parametrizations: tensors of a module that are computed at each use."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils import parametrize


class Symmetric(nn.Module):
    """A symmetric matrix of an upper triangle."""

    def forward(self, x):
        """The triangle, mirrored."""
        return x.triu() + x.triu(1).mT


class Exponential(nn.Module):
    """A positive number of its logarithm."""

    def forward(self, x):
        """The number."""
        return x.exp()

    def right_inverse(self, x):
        """The logarithm."""
        return x.log()


class Product(nn.Module):
    """A number as a product of two."""

    def forward(self, a, b):
        """The product."""
        return a * b

    def right_inverse(self, x):
        """Two factors."""
        return x / 2, ddpflow.full_like(x, 2.0)


class Wider(nn.Module):
    """Another shape."""

    def forward(self, x):
        """Everything twice."""
        return ddpflow.cat([x, x], 0)


def test_a_tensor_computed_at_each_use():
    """The layer uses what is computed; gradients and optimizers see the parameter itself."""
    layer = nn.Linear(3, 3)
    weight = layer.weight
    assert not parametrize.is_parametrized(layer)
    assert parametrize.register_parametrization(layer, "weight", Symmetric()) is layer
    assert parametrize.is_parametrized(layer) and parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias") and isinstance(layer, nn.Linear)
    assert layer.parametrizations.weight.original is weight
    assert sorted(dict(layer.named_parameters())) == ["bias", "parametrizations.weight.original"]
    x = ddpflow.randn(2, 3)
    full = np.triu(weight.detach().numpy()) + np.triu(weight.detach().numpy(), 1).T
    expected = x.numpy() @ full.T + layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    layer(x).sum().backward()
    assert weight.grad.triu().equal(weight.grad) and weight.grad.abs().sum() > 0


def test_assignment_goes_through_the_inverse():
    """Registration keeps the value where there is an inverse, and so does assignment; several run in order."""
    layer = nn.Linear(2, 2)
    with ddpflow.no_grad():
        layer.weight.copy_(ddpflow.tensor([[1.0, 2.0], [3.0, 4.0]]))
    parametrize.register_parametrization(layer, "weight", Exponential())
    np.testing.assert_allclose(layer.weight.detach().numpy(), [[1, 2], [3, 4]], rtol=1e-6)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    np.testing.assert_allclose(layer.weight.detach().numpy(), [[1, 2], [2, 4]], rtol=1e-6)
    layer.weight = ddpflow.tensor([[5.0, 6.0], [6.0, 7.0]])
    np.testing.assert_allclose(layer.weight.detach().numpy(), [[5, 6], [6, 7]], rtol=1e-6)
    np.testing.assert_allclose(layer.parametrizations.weight.original.detach().numpy(), np.log([[5, 6], [6, 7]]), 1e-6)


@pytest.mark.parametrize("leave", [True, False])
def test_removal(leave):
    """The tensor is a parameter again, the same object, with the computed value or the one it was computed from."""
    layer = nn.Linear(2, 2)
    weight, bias = layer.weight, layer.bias
    before = weight.detach().clone()
    for name in ("weight", "bias"):
        parametrize.register_parametrization(
            layer, name, Symmetric() if name == "weight" else Exponential(), unsafe=True
        )
    computed = layer.weight.detach()
    assert parametrize.remove_parametrizations(layer, "weight", leave) is layer
    assert layer.weight is weight and weight.equal(computed if leave else before)
    assert parametrize.is_parametrized(layer, "bias") and type(layer) is not nn.Linear
    parametrize.remove_parametrizations(layer, "bias", leave)
    assert layer.bias is bias and type(layer) is nn.Linear and not hasattr(layer, "parametrizations")
    assert sorted(layer.state_dict()) == ["bias", "weight"]


def test_several_originals_and_buffers():
    """A parametrization of two tensors, of a buffer; left, it is a buffer again."""
    layer = nn.Module()
    layer.register_buffer("scale", ddpflow.tensor([3.0, 5.0]))
    parametrize.register_parametrization(layer, "scale", Product())
    assert sorted(layer.state_dict()) == ["parametrizations.scale.original0", "parametrizations.scale.original1"]
    assert layer.scale.tolist() == [3.0, 5.0] and not list(layer.parameters())
    layer.scale = ddpflow.tensor([8.0, 6.0])
    assert layer.parametrizations.scale.original0.tolist() == [4.0, 3.0]
    with pytest.raises(ValueError, match="2 tensors"):
        parametrize.remove_parametrizations(layer, "scale", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "scale")
    assert dict(layer.named_buffers())["scale"].tolist() == [8.0, 6.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_stand_on_their_own(copied):
    """A copy has parametrizations of its own; removing one from it leaves the original as it is."""
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    other = copied(layer)
    assert other.weight.equal(layer.weight) and type(other) is type(layer)
    parametrize.remove_parametrizations(other, "weight")
    assert type(other) is nn.Linear and parametrize.is_parametrized(layer, "weight")
    layer.load_state_dict(parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric()).state_dict())


def test_refuses():
    """Tensors that are not there, other shapes, and removing what is not parametrized."""
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="no parameter"):
        parametrize.register_parametrization(layer, "wait", Symmetric())
    with pytest.raises(ValueError, match=r"unsafe=True: it makes \(4, 2\)"):
        parametrize.register_parametrization(layer, "weight", Wider())
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    parametrize.register_parametrization(layer, "bias", Exponential())
    with pytest.raises(ValueError, match=r"it makes \(4,\)"):
        parametrize.register_parametrization(layer, "bias", Wider())
    assert layer.bias.shape == (2,)
    with pytest.raises(ValueError, match="no parametrization"):
        parametrize.remove_parametrizations(layer, "weight")
    assert parametrize.register_parametrization(layer, "weight", Wider(), unsafe=True).weight.shape == (4, 2)
