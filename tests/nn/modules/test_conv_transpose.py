"""Transposed convolutions: the transposes of convolutions."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

OPTIONS = [
    {},
    {"stride": 2},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"dilation": 2, "padding": 1},
    {"groups": 2},
    {"groups": 2, "stride": 3, "padding": 2, "output_padding": 2, "dilation": 2, "bias": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_is_the_transpose(dims, options):
    """<conv(y), x> = <y, transposed(x)>: the layer's matrix is the transpose of the convolution's."""
    layer = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d][dims - 1](4, 6, 3, **options).double()
    convolve = [nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d][dims - 1]
    x = ddpflow.randn(2, 4, *(5, 4, 3)[:dims], dtype=ddpflow.float64)
    out = layer(x).detach()
    y = ddpflow.randn(*out.shape, dtype=ddpflow.float64)
    shifted = out if layer.bias is None else out - layer.bias.detach().reshape(-1, *[1] * dims)
    back = convolve(y, layer.weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)
    assert (back * x).sum().item() == pytest.approx((y * shifted).sum().item(), rel=1e-9)
    np.testing.assert_allclose(layer(x[0]).detach().numpy(), out[0].numpy(), rtol=1e-10)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients(options):
    """Gradients agree with finite differences."""
    layer = nn.ConvTranspose2d(2, 2, (3, 2), **options).double()
    x = ddpflow.randn(1, 2, 3, 4, dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(layer, x)


def test_output_size():
    """output_size picks among the sizes that the stride leaves open, and refuses others."""
    layer = nn.ConvTranspose2d(1, 1, 3, stride=2, padding=1)
    x = ddpflow.ones(1, 1, 4, 4)
    assert layer(x).shape == (1, 1, 7, 7)
    assert layer(x, output_size=(8, 7)).shape == (1, 1, 8, 7)
    assert layer(x, output_size=(1, 1, 8, 8)).shape == (1, 1, 8, 8)
    with pytest.raises(ValueError, match=r"requested an output size of \(9, 9\), but valid sizes range from \[7, 7\]"):
        layer(x, output_size=(9, 9))
    with pytest.raises(ValueError, match="must have 2 or 4 elements"):
        layer(x, output_size=(8,))


def test_bad_arguments():
    """Only zeros are padded with; groups must divide the channels."""
    with pytest.raises(ValueError, match='Only "zeros" padding mode'):
        nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect")
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.ConvTranspose2d(3, 4, 3, groups=2)
    with pytest.raises(RuntimeError, match=r"2, 3, 5, 5"):
        nn.ConvTranspose2d(4, 4, 3)(ddpflow.ones(2, 3, 5, 5))


def test_weight_and_repr():
    """The weight is (in, out / groups, ...), and the output padding is printed."""
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)
    assert layer.weight.shape == (4, 3, 3, 3)
    assert repr(layer) == ("ConvTranspose2d(4, 6, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1), groups=2)")
