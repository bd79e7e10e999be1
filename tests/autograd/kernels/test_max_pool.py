"""Max pooling axis by axis against windows written out."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import max_pool as kernels
from ddpflow.autograd.kernels.pool import Window
from tests.autograd.kernels.test_pool import WINDOWS, members


def place(window, position, winner):
    """The flat index of a window's place in the input's plane."""
    index = 0
    for i, q in enumerate(np.unravel_index(winner, window.kernel)):
        at = position[i] * window.stride[i] - window.padding[i] + q * window.dilation[i]
        index = index * window.size[i] + at
    return index


@pytest.mark.parametrize("chunk", [1, 10**6])
@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_values_winners_and_gradient(rng, monkeypatch, window, chunk):
    """The largest value, its flat index, and the gradient that goes there; of equal values the first wins."""
    monkeypatch.setattr(kernels, "CHUNK", chunk)
    x = rng.integers(-3, 3, (2, 3, *window.size)).astype(float)  # with many ties
    y, winners = kernels.max_pool(np, x, window)
    held = members(x, window, -np.inf)
    np.testing.assert_array_equal(y, held.max(-1))
    index = kernels.winner_index(np, winners, window).reshape(y.shape)
    first = held.argmax(-1)
    expected = np.zeros_like(x).reshape(6, -1)
    g = rng.standard_normal(y.shape)
    for n, position in enumerate(np.ndindex(*y.shape)):
        assert index.ravel()[n] == place(window, position[2:], first.ravel()[n])
        expected[position[0] * 3 + position[1], index.ravel()[n]] += g.ravel()[n]
    np.testing.assert_allclose(kernels.max_pool_backward(np, g, winners, window), expected.reshape(x.shape))


def test_nan_and_minus_infinity():
    """NaN wins; a window of padding and -inf alone points into the input."""
    window = Window((3,), (2,), (1,), (1,), (4,), (2,))
    x = np.array([[[-np.inf, -np.inf, np.nan, 1.0]]])
    with np.errstate(invalid="ignore"):
        y, winners = kernels.max_pool(np, x, window)
    assert y[0, 0, 0] == -np.inf and np.isnan(y[0, 0, 1])
    assert kernels.winner_index(np, winners, window).ravel().tolist() == [0, 2]


def test_integers():
    """Integers are pooled as they are; what is padded never wins."""
    window = Window((2, 2), (1, 1), (1, 1), (1, 1), (2, 2), (3, 3))
    x = np.array([[[[-5, -7], [-6, -8]]]])
    y, _ = kernels.max_pool(np, x, window)
    assert y.dtype == x.dtype and y.max() == -5 and y.min() == -8
