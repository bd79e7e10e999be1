"""Pooling against loops over windows."""

import itertools
import math

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def windows(x, kernel, stride, padding, dilation, ceil_mode, fill):
    """Yields each output place, the output size and the window of (N, C, *) there, padded with `fill`."""
    dims = len(kernel)
    size = []
    for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        count = (math.ceil(span / s) if ceil_mode else span // s) + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        size.append(count)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]], constant_values=fill)
    more = [(0, s + r) for s, r in zip(stride, reach, strict=True)]
    padded = np.pad(padded, [(0, 0), (0, 0), *more], constant_values=np.nan)
    for place in itertools.product(*map(range, size)):
        window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(place, stride, reach, dilation, strict=True))
        yield place, size, padded[(slice(None), slice(None), *window)].reshape(*x.shape[:2], -1), dims


def pooled(x, reduce, kernel, stride, padding, dilation, ceil_mode, fill):
    """Returns `reduce` of every window."""
    out = None
    for place, size, values, _ in windows(x, kernel, stride, padding, dilation, ceil_mode, fill):
        out = np.empty((*x.shape[:2], *size)) if out is None else out
        out[(slice(None), slice(None), *place)] = reduce(values)
    return out


MAX = [nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d]
AVG = [nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d]
LP = [nn.LPPool1d, nn.LPPool2d, nn.LPPool3d]
UNPOOL = [nn.MaxUnpool1d, nn.MaxUnpool2d, nn.MaxUnpool3d]
SIZES = (7, 6, 5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 1},
        {"padding": 1},
        {"stride": 3, "ceil_mode": True},
        {"dilation": 2, "stride": 1, "padding": 1},
        {"stride": 2, "padding": 1, "ceil_mode": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max(dims, options):
    """The maximum of each window; the padding never wins; indices point at the winners."""
    module = MAX[dims - 1](2, return_indices=True, **options)
    x = np.random.default_rng(dims).standard_normal((2, 3, *SIZES[:dims])) - 5
    full = {"stride": 2, "padding": 0, "dilation": 1, "ceil_mode": False} | options
    arguments = [(2,) * dims, *[(full[name],) * dims for name in ("stride", "padding", "dilation")]]
    expected = pooled(x, lambda values: np.nanmax(values, -1), *arguments, full["ceil_mode"], -np.inf)
    out, indices = module(ddpflow.tensor(x))
    np.testing.assert_array_equal(out.numpy(), expected)
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, indices.numpy().reshape(2, 3, -1), 2), expected.reshape(2, 3, -1)
    )
    assert module(ddpflow.tensor(x[0]))[0].tolist() == out[0].tolist()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_gradient_and_unpooling(dims):
    """The gradient goes to the winners, where unpooling also puts the maxima back."""
    x = ddpflow.randn(2, 2, *(4, 6, 2)[:dims], dtype=ddpflow.float64, requires_grad=True)
    out, indices = MAX[dims - 1](2, return_indices=True)(x)
    back = UNPOOL[dims - 1](2)(out, indices)
    (out * 3).sum().backward()
    winners = x.grad.numpy() != 0
    assert winners.sum() == out.numel()
    assert set(x.grad.numpy()[winners]) == {3.0}
    np.testing.assert_array_equal(back.detach().numpy(), np.where(winners, x.detach().numpy(), 0))


def test_unpooling_to_another_size():
    """output_size settles what the pooling rounded off."""
    x = ddpflow.arange(10.0).reshape(1, 2, 5)
    out, indices = nn.MaxPool1d(2, return_indices=True)(x)
    assert nn.MaxUnpool1d(2)(out, indices).shape == (1, 2, 4)
    assert nn.MaxUnpool1d(2)(out, indices, output_size=(5,)).shape == (1, 2, 5)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_average(dims, count_include_pad, ceil_mode):
    """The mean of each window, with or without the padding's zeros in the count."""
    x = np.random.default_rng(dims).standard_normal((2, 3, *SIZES[:dims])) + 4
    module = AVG[dims - 1](3, 2, 1, ceil_mode, count_include_pad)
    arguments = [(3,) * dims, (2,) * dims, (1,) * dims, (1,) * dims]

    def mean(values):
        inside = values if count_include_pad else np.where(values == 0, np.nan, values)
        return np.nanmean(inside, -1)

    expected = pooled(x, mean, *arguments, ceil_mode, 0.0)
    np.testing.assert_allclose(module(ddpflow.tensor(x)).numpy(), expected, rtol=1e-12)
    points = ddpflow.randn(1, 2, *(4, 3, 3)[:dims], dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(module, points)


def test_divisor_override():
    """The sum is divided by another number where one is given."""
    x = ddpflow.ones(1, 1, 4, 4)
    assert nn.AvgPool2d(2, divisor_override=3)(x).numpy() == pytest.approx(4 / 3)


@pytest.mark.parametrize("norm_type", [1, 2, 3])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_lp(dims, norm_type):
    """The p-norm of each window."""
    x = np.abs(np.random.default_rng(dims).standard_normal((2, 3, *SIZES[:dims]))) + 0.1
    arguments = [(2,) * dims, (2,) * dims, (0,) * dims, (1,) * dims]
    expected = pooled(x, lambda values: (values**norm_type).sum(-1) ** (1 / norm_type), *arguments, False, 0.0)
    np.testing.assert_allclose(LP[dims - 1](norm_type, 2)(ddpflow.tensor(x)).numpy(), expected, rtol=1e-10)


def test_bad_inputs():
    """Wrong ranks, paddings and empty outputs are RuntimeErrors with the shape."""
    with pytest.raises(RuntimeError, match=r"\(4,\)|1, 4|\[4\]"):
        nn.MaxPool2d(2)(ddpflow.ones(4))
    with pytest.raises(RuntimeError, match="half|pad"):
        nn.MaxPool2d(2, padding=2)(ddpflow.ones(1, 1, 4, 4))
    with pytest.raises(RuntimeError, match=r"1, 1, 2, 2"):
        nn.AvgPool2d(3)(ddpflow.ones(1, 1, 2, 2))


def test_repr():
    """The options are printed as PyTorch prints them."""
    assert repr(nn.MaxPool2d(2)) == "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"
    assert repr(nn.AvgPool1d(3, 2)) == "AvgPool1d(kernel_size=(3,), stride=(2,), padding=(0,))"
    assert repr(nn.LPPool2d(2, 3)) == "LPPool2d(norm_type=2, kernel_size=3, stride=None, ceil_mode=False)"
    assert repr(nn.MaxUnpool2d(3)) == "MaxUnpool2d(kernel_size=(3, 3), stride=(3, 3), padding=(0, 0))"
