"""Sums by position against `numpy.add.at`."""

import numpy as np
import pytest

from ddpflow.autograd.kernels.accumulate import accumulate


@pytest.mark.parametrize("width", [1, 5, 31, 32, 100])
@pytest.mark.parametrize("count", [1, 7, 70000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_add_at(width, count, dtype):
    """Narrow and wide rows, few and many positions, with repeats and without."""
    rng = np.random.default_rng(0)
    positions = rng.integers(0, count, 300)
    values = rng.standard_normal((300, width)).astype(dtype)
    expected = np.zeros((count, width))
    np.add.at(expected, positions, values.astype(np.float64))
    found = accumulate(np, count, positions, values)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-5)


@pytest.mark.parametrize("width", [1, 64])
def test_halves_are_added_in_float32(width):
    """A sum of 4,000 ones is 4,000, although float16 counts by twos from 2,048 on."""
    found = accumulate(np, 2, np.ones(4001, np.int64), np.ones((4001, width), np.float16))
    assert found.dtype == np.float16 and (found[1] == np.float16(4001)).all() and not found[0].any()


def test_nothing():
    """No rows, or rows without elements, give zeros."""
    assert not accumulate(np, 3, np.zeros(0, np.int64), np.zeros((0, 4))).any()
    assert accumulate(np, 3, np.zeros(2, np.int64), np.zeros((2, 0))).shape == (3, 0)


def test_small_integer_positions():
    """Positions of a narrow type do not overflow on the way to flat ones."""
    found = accumulate(np, 200, np.array([199, 199], np.uint8), np.ones((2, 8)))
    assert found[199].tolist() == [2.0] * 8
