"""Weight normalization."""

import copy

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils import remove_weight_norm, weight_norm
from tests.nn.differences import check_parameters


@pytest.mark.parametrize(("dim", "shape"), [(0, (3, 1)), (1, (1, 4)), (None, ()), (-1, ())])
def test_same_function_with_other_parameters(dim, shape):
    """The layer computes the same; its weight is now a length g for each slice, and a direction v."""
    layer = nn.Linear(4, 3).double()
    x = ddpflow.randn(2, 4, dtype=ddpflow.float64)
    before = layer(x).detach().numpy()
    assert weight_norm(layer, dim=dim) is layer
    assert sorted(name for name, _ in layer.named_parameters()) == ["bias", "weight_g", "weight_v"]
    assert layer.weight_g.shape == shape
    np.testing.assert_allclose(layer(x).detach().numpy(), before, rtol=1e-10)
    with ddpflow.no_grad():
        layer.weight_g *= 2.0
    bias = layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy() - bias, 2 * (before - bias), rtol=1e-9)
    check_parameters(layer, lambda: layer(x))


def test_removal():
    """Removing it leaves one parameter with the weight as it is."""
    layer = weight_norm(nn.Conv2d(2, 3, 3))
    with ddpflow.no_grad():
        layer.weight_g *= 2.0
    x = ddpflow.randn(1, 2, 5, 5)
    before = layer(x).detach().numpy()
    remove_weight_norm(layer)
    assert sorted(name for name, _ in layer.named_parameters()) == ["bias", "weight"]
    np.testing.assert_allclose(layer(x).detach().numpy(), before, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        remove_weight_norm(layer)


def test_twice_is_an_error():
    """A weight cannot be normalized twice; different weights can."""
    layer = weight_norm(nn.LSTM(2, 3), "weight_hh_l0")
    weight_norm(layer, "weight_ih_l0")
    with pytest.raises(RuntimeError, match="two weight_norm hooks on the same parameter weight_hh_l0"):
        weight_norm(layer, "weight_hh_l0")


def test_state_dict_round_trip():
    """State dicts hold g and v, and load into another normalized layer."""
    layer, other = weight_norm(nn.Linear(4, 3)), weight_norm(nn.Linear(4, 3))
    other.load_state_dict(layer.state_dict())
    x = ddpflow.randn(2, 4)
    assert other(x).tolist() == layer(x).tolist()
    with pytest.raises(RuntimeError, match="copied"):
        copy.deepcopy(layer)  # the computed weight belongs to a graph
