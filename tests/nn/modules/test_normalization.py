"""Layer, group, RMS and local response normalization by hand."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from tests.nn.differences import check_parameters

X = np.random.default_rng(0).standard_normal((4, 6, 5)) * 2 + 1


def standard(x, axes, eps=1e-5):
    """Returns x with mean 0 and variance 1 over axes."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize("shape", [5, (5,), (6, 5), [4, 6, 5]])
def test_layer_norm(shape):
    """The last dimensions of each sample are normalized together, then scaled element by element."""
    norm = nn.LayerNorm(shape).double()
    axes = tuple(range(3 - len(norm.normalized_shape), 3))
    np.testing.assert_allclose(norm(ddpflow.tensor(X)).detach().numpy(), standard(X, axes), rtol=1e-9, atol=1e-11)
    scale = np.arange(1.0, norm.weight.numel() + 1).reshape(norm.normalized_shape)
    with ddpflow.no_grad():
        norm.weight.copy_(ddpflow.tensor(scale))
        norm.bias.fill_(2.0)
    out = norm(ddpflow.tensor(X)).detach().numpy()
    np.testing.assert_allclose(out, standard(X, axes) * scale + 2, rtol=1e-9, atol=1e-9)


def test_layer_norm_options():
    """The scale, or only the shift, can be left out."""
    assert nn.LayerNorm(5, elementwise_affine=False).state_dict() == {}
    assert list(nn.LayerNorm(5, bias=False).state_dict()) == ["weight"]
    out = nn.LayerNorm(5, eps=0.5, elementwise_affine=False)(ddpflow.tensor(X)).numpy()
    np.testing.assert_allclose(out, standard(X, (2,), 0.5), rtol=1e-9)


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_norm(groups):
    """Each group of channels of each sample is normalized together; the scale is per channel."""
    norm = nn.GroupNorm(groups, 6).double()
    scale = np.arange(1.0, 7.0)
    with ddpflow.no_grad():
        norm.weight.copy_(ddpflow.tensor(scale))
        norm.bias.fill_(-1.0)
    expected = standard(X.reshape(4, groups, -1), (2,)).reshape(X.shape) * scale.reshape(1, 6, 1) - 1
    np.testing.assert_allclose(norm(ddpflow.tensor(X)).detach().numpy(), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("eps", [None, 0.25])
def test_rms_norm(eps):
    """Division by the root mean square; the default eps is the dtype's."""
    norm = nn.RMSNorm(5, eps=eps).double()
    mean_square = (X * X).mean(2, keepdims=True)
    expected = X / np.sqrt(mean_square + (np.finfo(np.float64).eps if eps is None else eps))
    np.testing.assert_allclose(norm(ddpflow.tensor(X)).detach().numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 5, 3, 2), (2, 5, 2, 2, 3)])
def test_local_response_norm(shape):
    """Each channel is divided by a power of its neighbours' mean square."""
    x = np.random.default_rng(1).standard_normal(shape)
    square = np.pad(x * x, [(0, 0), (1, 1), *[(0, 0)] * (len(shape) - 2)])
    mean = (square[:, :-2] + square[:, 1:-1] + square[:, 2:]) / 3
    expected = x / (2.0 + 0.5 * mean) ** 0.75
    module = nn.LocalResponseNorm(3, alpha=0.5, k=2.0)
    np.testing.assert_allclose(module(ddpflow.tensor(x)).numpy(), expected, rtol=1e-9)
    same = nn.CrossMapLRN2d(3, alpha=0.5, k=2.0)
    np.testing.assert_allclose(same(ddpflow.tensor(x)).numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "module",
    [nn.LayerNorm(5), nn.LayerNorm((6, 5)), nn.GroupNorm(2, 6), nn.RMSNorm(5), nn.LocalResponseNorm(2)],
    ids=repr,
)
def test_gradients(module):
    """Gradients of input and parameters agree with finite differences, to second order."""
    module = module.double()
    x = ddpflow.tensor(X[:2], requires_grad=True)
    assert ddpflow.autograd.gradcheck(module, x)
    assert ddpflow.autograd.gradgradcheck(module, x, fast_mode=True)
    if list(module.parameters()):
        check_parameters(module, lambda: module(x.detach()))


def test_bad_inputs():
    """Shapes that do not fit are errors of PyTorch's types, with both shapes."""
    with pytest.raises(RuntimeError, match=r"\(2, 4\)|\[2, 4\]"):
        nn.LayerNorm(5)(ddpflow.ones(2, 4))
    with pytest.raises(ValueError, match=r"num_channels \(6\) must be divisible by num_groups \(4\)"):
        nn.GroupNorm(4, 6)
    with pytest.raises(ValueError, match="3D or higher|3D"):
        nn.LocalResponseNorm(2)(ddpflow.ones(2, 4))


def test_repr():
    """The options are printed as PyTorch prints them."""
    assert repr(nn.LayerNorm(5)) == "LayerNorm((5,), eps=1e-05, elementwise_affine=True, bias=True)"
    assert repr(nn.GroupNorm(2, 6)) == "GroupNorm(2, 6, eps=1e-05, affine=True, bias=True)"
    assert repr(nn.RMSNorm(5)) == "RMSNorm((5,), eps=None, elementwise_affine=True)"
    assert repr(nn.LocalResponseNorm(2)) == "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)"
