"""Shuffles, upsampling, fold and unfold by hand."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def test_pixel_shuffle_and_back():
    """Channels move into space as (c, i, j, h, w) -> (c, h i, w j), and back."""
    x = np.arange(2 * 8 * 3 * 5.0).reshape(2, 8, 3, 5)
    expected = x.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)
    y = nn.PixelShuffle(2)(ddpflow.tensor(x))
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(nn.PixelUnshuffle(2)(y).numpy(), x)
    with pytest.raises(RuntimeError, match=r"8"):
        nn.PixelShuffle(3)(ddpflow.tensor(x))


def test_channel_shuffle():
    """Channels are dealt out in turn."""
    x = ddpflow.arange(6.0).reshape(1, 6, 1, 1)
    assert nn.ChannelShuffle(2)(x).flatten().tolist() == [0, 3, 1, 4, 2, 5]
    assert repr(nn.ChannelShuffle(2)) == "ChannelShuffle(groups=2)"


def test_upsample_nearest():
    """The nearest pixel is repeated."""
    x = ddpflow.arange(6.0).reshape(1, 1, 2, 3)
    y = nn.Upsample(scale_factor=2)(x)
    np.testing.assert_array_equal(y.numpy(), np.repeat(np.repeat(x.numpy(), 2, 2), 2, 3))
    assert nn.UpsamplingNearest2d(size=(4, 6))(x).tolist() == y.tolist()


def test_upsample_linear():
    """Linear interpolation with aligned corners hits the corners and is even between them."""
    x = ddpflow.tensor([[[0.0, 3.0, 9.0]]])
    y = nn.Upsample(size=5, mode="linear", align_corners=True)(x)
    np.testing.assert_allclose(y.numpy(), [[[0.0, 1.5, 3.0, 6.0, 9.0]]], rtol=1e-6)
    y = nn.Upsample(scale_factor=2, mode="linear", align_corners=False)(x)
    np.testing.assert_allclose(y.numpy(), [[[0.0, 0.75, 2.25, 4.5, 7.5, 9.0]]], rtol=1e-6)
    image = ddpflow.tensor([[[[0.0, 2.0], [4.0, 6.0]]]])
    y = nn.UpsamplingBilinear2d(scale_factor=1.5)(image)
    np.testing.assert_allclose(y.numpy(), [[[[0, 1, 2], [2, 3, 4], [4, 5, 6]]]], rtol=1e-6)


def test_unfold_and_fold():
    """Unfold's columns are the windows; fold adds them up, so that both together count the windows over each pixel."""
    x = np.arange(2 * 2 * 4 * 5.0).reshape(2, 2, 4, 5)
    columns = nn.Unfold((2, 3), padding=1, stride=(1, 2))(ddpflow.tensor(x)).numpy()
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = [padded[:, :, i : i + 2, j : j + 3].reshape(2, -1) for i in range(5) for j in range(0, 5, 2)]
    np.testing.assert_array_equal(columns, np.stack(windows, 2))
    ones = nn.Unfold((2, 3))(ddpflow.ones(1, 1, 4, 5))
    counts = nn.Fold((4, 5), (2, 3))(ones).numpy()[0, 0]
    np.testing.assert_array_equal(counts, np.outer([1, 2, 2, 1], [1, 2, 3, 2, 1]))
    with pytest.raises(RuntimeError):
        nn.Fold((4, 5), (2, 3))(ddpflow.ones(1, 6, 7))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.PixelShuffle(2), (1, 4, 2, 3)),
        (nn.ChannelShuffle(2), (1, 4, 2)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 2, 3)),
        (nn.Upsample(size=(5, 3), mode="bicubic"), (1, 1, 3, 4)),
        (nn.Upsample(scale_factor=(2.0, 1.0, 1.5), mode="trilinear"), (1, 1, 2, 2, 2)),
        (nn.Unfold(2, dilation=2), (1, 2, 4, 3)),
        (nn.Fold((3, 4), 2), (1, 4, 6)),
    ],
    ids=repr,
)
def test_gradients(module, shape):
    """Gradients agree with finite differences."""
    x = ddpflow.randn(*shape, dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(module, x)


def test_repr():
    """Sizes and modes are printed as PyTorch prints them."""
    assert repr(nn.Upsample(scale_factor=2)) == "Upsample(scale_factor=2.0, mode='nearest')"
    assert repr(nn.Upsample(size=(2, 3), mode="bilinear")) == "Upsample(size=(2, 3), mode='bilinear')"
    assert repr(nn.Unfold(2)) == "Unfold(kernel_size=2, dilation=1, padding=0, stride=1)"
    assert repr(nn.PixelUnshuffle(3)) == "PixelUnshuffle(downscale_factor=3)"
