"""Resizing: known values, constants kept, arguments that contradict each other."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.resample import interpolate, upsample, upsample_bilinear, upsample_nearest


def test_known_values_of_nearest_and_linear():
    """By hand, with both conventions for corners."""
    x = ddpflow.tensor([[[0.0, 10.0]]])
    assert interpolate(x, 4).tolist() == [[[0.0, 0.0, 10.0, 10.0]]]
    assert interpolate(x, 4, mode="linear").tolist() == [[[0.0, 2.5, 7.5, 10.0]]]
    np.testing.assert_allclose(
        interpolate(x, 4, mode="linear", align_corners=True).numpy()[0, 0], [0, 10 / 3, 20 / 3, 10], rtol=1e-6
    )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("size", [(3, 9), (8, 2)])
def test_a_constant_stays_a_constant(mode, size):
    """In every mode, growing and shrinking; with antialiasing too."""
    x = ddpflow.full((1, 2, 5, 4), 3.5, dtype=ddpflow.float64)
    np.testing.assert_allclose(interpolate(x, size, mode=mode).numpy(), 3.5, rtol=1e-12)
    if mode.startswith("bi"):
        np.testing.assert_allclose(interpolate(x, size, mode=mode, antialias=True).numpy(), 3.5, rtol=1e-12)


def test_scale_factors_and_old_names():
    """The size is the floor of the product; upsample is interpolate."""
    x = ddpflow.arange(20.0).reshape(1, 1, 4, 5)
    assert tuple(interpolate(x, scale_factor=(1.5, 0.5)).shape) == (1, 1, 6, 2)
    np.testing.assert_array_equal(upsample(x, 8).numpy(), upsample_nearest(x, 8).numpy())
    expected = interpolate(x, 8, mode="bilinear", align_corners=True)
    np.testing.assert_array_equal(upsample_bilinear(x, 8).numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({}, "either size or scale_factor"),
        ({"size": 4, "scale_factor": 2}, "either size or scale_factor"),
        ({"size": 4, "mode": "trilinear"}, "trilinear"),
        ({"size": 4, "align_corners": True}, "align_corners"),
        ({"size": (1, 2, 3)}, "2 elements"),
        ({"size": 4, "antialias": True}, "Anti-alias"),
    ],
)
def test_contradictions(kwargs, words):
    """A ValueError that says which."""
    with pytest.raises(ValueError, match=words):
        interpolate(ddpflow.zeros(1, 1, 4, 4), **kwargs)


def test_nothing_cannot_be_resized():
    """A RuntimeError with the sizes."""
    with pytest.raises(RuntimeError, match="greater than 0"):
        interpolate(ddpflow.zeros(1, 1, 4), 0)
