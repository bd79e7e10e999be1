"""Spectral normalization."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils import remove_spectral_norm, spectral_norm
from tests.nn.differences import check_parameters


@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(3, 2, 3)], ids=repr)
def test_greatest_singular_value_becomes_one(layer):
    """After enough steps the weight as a matrix of outputs has spectral norm 1."""
    transposed = isinstance(layer, nn.ConvTranspose2d)
    x = ddpflow.randn(1, *((4,) if isinstance(layer, nn.Linear) else (3 if transposed else 2, 5, 5)))
    spectral_norm(layer, n_power_iterations=50)
    layer(x)
    weight = layer.weight.detach().numpy()
    weight = weight.swapaxes(0, 1) if transposed else weight
    assert np.linalg.svd(weight.reshape(len(weight), -1))[1][0] == pytest.approx(1.0, rel=1e-3)


def test_evaluation_iterates_no_further():
    """Only training forwards improve the estimate; the buffers stay the same objects."""
    layer = spectral_norm(nn.Linear(4, 3))
    x = ddpflow.randn(2, 4)
    u = layer.weight_u
    layer(x)
    after = u.tolist()
    assert layer.weight_u is u
    layer.eval()(x)
    assert u.tolist() == after
    layer.train()(x)
    assert u.tolist() != after


def test_gradients_and_two_forwards():
    """The gradient treats the singular vectors as constants, and two forwards before one backward work."""
    layer = spectral_norm(nn.Linear(3, 3).double(), n_power_iterations=200)
    x = ddpflow.randn(2, 3, dtype=ddpflow.float64)
    check_parameters(layer, lambda: layer(x))
    (layer(x).sum() - layer(x).sum() * 2).backward()


def test_state_and_removal():
    """The state holds the original weight and both vectors; removal leaves one plain weight."""
    layer = spectral_norm(nn.Linear(4, 3))
    assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    x = ddpflow.randn(2, 4)
    layer(x)
    layer.eval()
    before = layer(x).detach().numpy()
    remove_spectral_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(layer(x).detach().numpy(), before, rtol=1e-5)
    with pytest.raises(ValueError, match="not found"):
        remove_spectral_norm(layer)


def test_errors():
    """Normalizing twice, and no steps at all, are errors."""
    layer = spectral_norm(nn.Linear(4, 3))
    with pytest.raises(RuntimeError, match="two spectral_norm hooks"):
        spectral_norm(layer)
    with pytest.raises(ValueError, match="must be positive"):
        spectral_norm(nn.Linear(4, 3), n_power_iterations=0)
