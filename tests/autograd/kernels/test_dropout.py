"""Dropout's product, on NumPy and on the CuPy stand-in."""

import importlib

import numpy as np

from ddpflow.autograd.kernels import dropout
from tests.doubles.fake_cupy import installed


def test_values():
    """Where the mask is False there is 0, elsewhere the scaled value; the input stays."""
    x = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
    keep = np.arange(12).reshape(3, 4) % 3 > 0
    before = x.copy()
    y = dropout.keep_scaled(np, x, keep, 1.5)
    np.testing.assert_array_equal(y, np.where(keep, x * np.float32(1.5), 0))
    np.testing.assert_array_equal(x, before)
    assert y.dtype == np.float32


def test_masks_that_broadcast():
    """One draw for a whole channel takes the formula, on both devices."""
    x = np.arange(1.0, 13.0, dtype=np.float32).reshape(2, 3, 2)
    keep = np.array([[[True], [False], [True]], [[False], [True], [True]]])
    expected = np.where(keep, x * np.float32(2), 0)
    np.testing.assert_array_equal(dropout.keep_scaled(np, x, keep, 2.0), expected)
    with installed():
        cupy = importlib.import_module("cupy")
        found = dropout.keep_scaled(cupy, cupy.asarray(x), cupy.asarray(keep), 2.0)
        np.testing.assert_array_equal(found.get(), expected)
