"""Convolutions against loops over windows."""

import itertools
import math

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def by_loops(x, weight, bias, stride, padding, dilation, groups, mode="constant"):
    """Returns the convolution of (N, C, *) by its definition."""
    dims = weight.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(p, p) if isinstance(p, int) else p for p in padding]], mode)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    size = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, stride, strict=True)]
    out = np.zeros((len(x), len(weight), *size))
    per_in, per_out = x.shape[1] // groups, len(weight) // groups
    for place in itertools.product(*map(range, size)):
        window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(place, stride, reach, dilation, strict=True))
        for k in range(len(weight)):
            group = k // per_out
            patch = x[(slice(None), slice(group * per_in, (group + 1) * per_in), *window)]
            out[(slice(None), k, *place)] = (patch * weight[k]).reshape(len(x), -1).sum(1)
    return out if bias is None else out + bias.reshape(-1, *[1] * dims)


OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": 2, "dilation": 2},
    {"groups": 2},
    {"groups": 4, "bias": False, "padding": 1},
    {"stride": 3, "dilation": 2, "padding": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_against_loops(dims, options):
    """Every combination of stride, padding, dilation and groups gives the definition's values and shapes."""
    layer = [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1](4, 8, 3, **options).double()
    x = np.random.default_rng(dims).standard_normal((2, 4, *(7, 6, 5)[:dims]))
    bias = None if layer.bias is None else layer.bias.detach().numpy()
    weight = layer.weight.detach().numpy()
    expected = by_loops(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)
    np.testing.assert_allclose(layer(ddpflow.tensor(x)).detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(layer(ddpflow.tensor(x[0])).detach().numpy(), expected[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_gradients(options):
    """Gradients of input, weight and bias agree with finite differences."""
    layer = nn.Conv2d(4, 4, (3, 2), **options).double()
    x = ddpflow.randn(2, 4, 6, 5, dtype=ddpflow.float64, requires_grad=True)
    bias = layer.bias

    def run(x, weight, bias):
        return nn.functional.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    assert ddpflow.autograd.gradcheck(run, (x, layer.weight, bias), fast_mode=True)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [1, (2, 1), "same"])
def test_padding_modes(mode, padding):
    """Padding by another mode than zeros is NumPy's of the same meaning."""
    layer = nn.Conv2d(2, 3, (3, 4), padding=padding, padding_mode=mode).double()
    x = np.random.default_rng(3).standard_normal((2, 2, 6, 7))
    sides = [(1, 1), (1, 2)] if padding == "same" else [(p, p) for p in layer.padding]
    name = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    expected = by_loops(x, weight, bias, (1, 1), sides, (1, 1), 1, name)
    np.testing.assert_allclose(layer(ddpflow.tensor(x)).detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def test_named_paddings():
    """'same' keeps the size, also for even kernels and dilation; 'valid' does not pad."""
    x = ddpflow.randn(1, 1, 9)
    assert nn.Conv1d(1, 1, 4, padding="same", dilation=2)(x).shape == (1, 1, 9)
    assert nn.Conv1d(1, 1, 4, padding="valid")(x).shape == (1, 1, 6)
    assert nn.Conv1d(1, 1, 4, padding="valid", padding_mode="circular")(x).shape == (1, 1, 6)


def test_starts_like_pytorch():
    """Weight and bias start uniform within 1 / sqrt(in_channels / groups * kernel size)."""
    layer = nn.Conv2d(32, 64, 3, groups=2)
    bound = 1 / math.sqrt(16 * 9)
    for parameter in layer.parameters():
        assert abs(parameter.detach().numpy()).max() <= bound
    assert layer.weight.shape == (64, 16, 3, 3)
    assert layer.weight.detach().numpy().std() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, 4, 3), {"groups": 2}, "in_channels must be divisible by groups: 3 channels, 2 groups"),
        ((4, 3, 3), {"groups": 2}, "out_channels must be divisible"),
        ((4, 4, 3), {"groups": 0}, "groups must be a positive integer"),
        ((4, 4, 3), {"padding": "full"}, "Invalid padding string 'full'"),
        ((4, 4, 3), {"padding": "same", "stride": 2}, "not supported for strided"),
        ((4, 4, 3), {"padding_mode": "mirror"}, "padding_mode must be one of"),
    ],
)
def test_bad_arguments(arguments, options, message):
    """Arguments that make no sense are ValueErrors that say why."""
    with pytest.raises(ValueError, match=message):
        nn.Conv2d(*arguments, **options)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (8, 8), (2, 4, 1, 1)])
def test_bad_inputs(shape):
    """Wrong channels, ranks and sizes are RuntimeErrors with the shape."""
    with pytest.raises(RuntimeError, match=str(shape)[1:-1]):
        nn.Conv2d(4, 8, 3)(ddpflow.ones(*shape))


def test_repr():
    """Only what is not the default is printed."""
    assert repr(nn.Conv2d(3, 8, 3, padding=1)) == ("Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))")
    layer = nn.Conv1d(4, 8, 3, dilation=2, groups=2, bias=False, padding_mode="reflect")
    assert repr(layer) == (
        "Conv1d(4, 8, kernel_size=(3,), stride=(1,), dilation=(2,), groups=2, bias=False, padding_mode=reflect)"
    )
