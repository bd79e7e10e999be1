"""Shuffles between channels and space, and normalisation across channels."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.channel import channel_shuffle, local_response_norm, pixel_shuffle, pixel_unshuffle


def test_pixel_shuffle_and_back(rng):
    """Channel c * r * r + i * r + j lands at offset (i, j); unshuffle undoes it."""
    x = ddpflow.from_numpy(rng.standard_normal((2, 8, 3, 4)))
    y = pixel_shuffle(x, 2)
    assert tuple(y.shape) == (2, 2, 6, 8)
    np.testing.assert_array_equal(y.numpy()[:, 1, 1::2, 0::2], x.numpy()[:, 4 + 2])
    np.testing.assert_array_equal(pixel_unshuffle(y, 2).numpy(), x.numpy())


def test_channel_shuffle_deals_channels_out():
    """Two groups of three: 0 3 1 4 2 5."""
    x = ddpflow.arange(6.0).reshape(1, 6, 1)
    assert channel_shuffle(x, 2).reshape(6).tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 5, 3, 2)])
def test_local_response_norm_is_its_formula(rng, shape):
    """The mean is over ``size`` channels, zeros beyond the ends; more channels before than after."""
    x = rng.standard_normal(shape)
    squares = np.pad(x * x, ((0, 0), (2, 1), *[(0, 0)] * (len(shape) - 2)))
    mean = sum(squares[:, i : i + 5] for i in range(4)) / 4
    out = local_response_norm(ddpflow.from_numpy(x), 4, alpha=0.3, beta=0.5, k=2.0)
    np.testing.assert_allclose(out.numpy(), x / (2 + 0.3 * mean) ** 0.5, rtol=1e-10)


def test_refuses_channels_that_do_not_divide():
    """RuntimeErrors with shape and factor; ValueError for too few axes."""
    with pytest.raises(RuntimeError, match=r"\(1, 6, 2, 2\)"):
        pixel_shuffle(ddpflow.zeros(1, 6, 2, 2), 2)
    with pytest.raises(RuntimeError, match="downscale_factor 2"):
        pixel_unshuffle(ddpflow.zeros(1, 1, 3, 2), 2)
    with pytest.raises(RuntimeError, match="groups"):
        channel_shuffle(ddpflow.zeros(1, 5, 2), 2)
    with pytest.raises(ValueError, match="3D"):
        local_response_norm(ddpflow.zeros(2, 3), 2)
