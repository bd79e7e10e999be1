"""Weight and spectral normalization as parametrizations, against the plain formulas."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils import parametrizations, parametrize
from tests.nn.differences import check_parameters


@pytest.mark.parametrize(("dim", "shape"), [(0, (3, 1)), (1, (1, 4)), (None, ())])
def test_weight_norm(dim, shape):
    """The layer computes the same, of lengths and directions; a length twice as great doubles the weight."""
    layer = nn.Linear(4, 3).double()
    before = layer.weight.detach().numpy().copy()
    assert parametrizations.weight_norm(layer, dim=dim) is layer
    names = [f"parametrizations.weight.original{i}" for i in range(2)]
    assert sorted(name for name, _ in layer.named_parameters()) == ["bias", *names]
    lengths, directions = (layer.get_parameter(name) for name in names)
    assert lengths.shape == shape and directions.shape == (3, 4)
    np.testing.assert_allclose(layer.weight.detach().numpy(), before, rtol=1e-12)
    with ddpflow.no_grad():
        lengths *= 2.0
        directions *= 3.0
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * before, rtol=1e-12)
    x = ddpflow.randn(2, 4, dtype=ddpflow.float64)
    check_parameters(layer, lambda: layer(x))
    parametrize.remove_parametrizations(layer, "weight")
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * before, rtol=1e-12)


@pytest.mark.parametrize("make", [lambda: nn.Linear(5, 4), lambda: nn.ConvTranspose1d(5, 4, 2)])
def test_spectral_norm(make):
    """The greatest singular value becomes 1; a training forward takes a step, an evaluation none."""
    layer = make().double()
    weight = layer.weight.detach().numpy()
    matrix = weight if weight.ndim == 2 else np.moveaxis(weight, 1, 0).reshape(4, -1)
    expected = weight / np.linalg.norm(matrix, 2)
    parametrizations.spectral_norm(layer, n_power_iterations=20)
    x = (
        ddpflow.randn(3, 5, dtype=ddpflow.float64)
        if weight.ndim == 2
        else ddpflow.randn(3, 5, 6, dtype=ddpflow.float64)
    )
    for _ in range(20):
        layer(x)
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, rtol=1e-6)
    keys = ["0._u", "0._v", "original"]
    assert sorted(layer.state_dict()) == ["bias", *[f"parametrizations.weight.{key}" for key in keys]]
    layer.eval()
    before = layer.parametrizations.weight[0]._u.clone()
    with ddpflow.no_grad():
        layer.parametrizations.weight.original += 1.0
    layer(x)
    assert layer.parametrizations.weight[0]._u.equal(before)
    check_parameters(layer, lambda: layer(x))
    layer.train()(x)
    assert not layer.parametrizations.weight[0]._u.equal(before)
    with pytest.raises(ValueError, match="positive"):
        parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
