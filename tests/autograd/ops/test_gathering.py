"""One element for each index."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError


def loop(x, dim, index):
    """Gather by its definition."""
    out = np.empty(index.shape, x.dtype)
    for place in np.ndindex(*index.shape):
        source = list(place)
        source[dim] = index[place]
        out[place] = x[tuple(source)]
    return out


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_follows_the_definition(dim):
    """Also where the index is shorter than the tensor in the other dimensions, and longer along its own."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 5))
    shape = [2, 3, 4]
    shape[dim] = 7
    index = rng.integers(0, x.shape[dim], shape)
    leaf = ddpflow.tensor(x, requires_grad=True)
    found = leaf.gather(dim, ddpflow.tensor(index))
    np.testing.assert_array_equal(found.numpy(force=True), loop(x, dim % 3, index))
    found.sum().backward()
    count = np.zeros_like(x)
    for place in np.ndindex(*index.shape):
        source = list(place)
        source[dim] = index[place]
        count[tuple(source)] += 1
    np.testing.assert_array_equal(leaf.grad.numpy(), count)


def test_small_cases():
    """0-d tensors count as vectors, and an empty index gives an empty result of its shape."""
    x = ddpflow.tensor(3.0)
    assert x.gather(0, ddpflow.tensor([0])).tolist() == [3.0]
    assert ddpflow.ones(2, 3).gather(1, ddpflow.zeros(0, dtype=ddpflow.int64)).shape == (0,)


@pytest.mark.parametrize(
    ("dim", "index", "error"),
    [
        (0, [[0, 3]], IndexRangeError),
        (0, [[0, -1]], IndexRangeError),
        (1, [0], ShapeError),
        (1, [[0]] * 4, ShapeError),
        (2, [[0]], IndexRangeError),
        (0, [[0.0]], DtypeError),
    ],
)
def test_bad_indices(dim, index, error):
    """Indices out of range (negative ones too) or that do not fit."""
    with pytest.raises(error):
        ddpflow.ones(3, 2).gather(dim, ddpflow.tensor(index))
