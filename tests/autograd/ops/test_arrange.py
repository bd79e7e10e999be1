"""Copies, order, repetition and grids."""

import itertools

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import ShapeError, ValueRangeError


def numbers(*shape):
    """A tensor with the numbers from 0 on."""
    return ddpflow.arange(float(np.prod(shape))).reshape(shape)


def test_clone_and_contiguous():
    """Clone always copies and keeps the graph; contiguous copies only what does not lie in order."""
    x = numbers(2, 3).requires_grad_()
    y = x.clone()
    y.sum().backward()
    assert not np.shares_memory(x.array, y.array) and x.grad.tolist() == [[1] * 3] * 2
    assert x.contiguous() is x
    moved = x.T.contiguous()
    assert moved.is_contiguous() and moved.tolist() == x.array.T.tolist()


def test_order_follows_numpy():
    """flip, roll and rot90 move elements as NumPy's do, and give copies."""
    x = numbers(2, 3, 4)
    a = x.numpy()
    np.testing.assert_array_equal(x.flip(0, 2).numpy(), np.flip(a, (0, 2)))
    np.testing.assert_array_equal(ddpflow.flip(x, dims=[-1]).numpy(), np.flip(a, -1))
    np.testing.assert_array_equal(x.fliplr().numpy(), np.fliplr(a))
    np.testing.assert_array_equal(x.flipud().numpy(), np.flipud(a))
    np.testing.assert_array_equal(x.roll(2).numpy(), np.roll(a, 2))
    np.testing.assert_array_equal(x.roll((1, -1), (0, 2)).numpy(), np.roll(a, (1, -1), (0, 2)))
    for k in range(-1, 5):
        np.testing.assert_array_equal(x.rot90(k, (0, 2)).numpy(), np.rot90(a, k, (0, 2)))


def test_repetition():
    """Repeat takes a number for each dimension and new ones in front; tile fills up with ones."""
    x = numbers(2, 3)
    np.testing.assert_array_equal(x.repeat(2, 1, 3).numpy(), np.tile(x.numpy(), (2, 1, 3)))
    np.testing.assert_array_equal(x.tile((2,)).numpy(), np.tile(x.numpy(), 2))
    assert x.repeat(0, 1).shape == (0, 3)
    y = numbers(2, 2).requires_grad_()
    (y.repeat(2, 1) * numbers(4, 2)).sum().backward()
    assert y.grad.tolist() == [[4, 6], [8, 10]]


def test_grids():
    """Meshgrid in both orders, cartesian products and combinations."""
    a, b = ddpflow.tensor([1, 2, 3]), ddpflow.tensor([4, 5])
    for indexing in ("ij", "xy"):
        for ours, expected in zip(
            ddpflow.meshgrid(a, b, indexing=indexing), np.meshgrid(a.numpy(), b.numpy(), indexing=indexing), strict=True
        ):
            np.testing.assert_array_equal(ours.numpy(), expected)
    assert ddpflow.cartesian_prod(a, b).tolist() == [list(p) for p in itertools.product([1, 2, 3], [4, 5])]
    assert ddpflow.combinations(a).tolist() == [[1, 2], [1, 3], [2, 3]]
    assert ddpflow.combinations(b, with_replacement=True).tolist() == [[4, 4], [4, 5], [5, 5]]
    assert ddpflow.combinations(b, 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.flip(0, 0), ShapeError),
        (lambda x: x.flip(2), IndexError),
        (lambda x: x.roll((1, 2)), ShapeError),
        (lambda x: x.roll((1, 2), (0,)), ShapeError),
        (lambda x: x.rot90(1, (0, 0)), ShapeError),
        (lambda x: x.repeat(2), ShapeError),
        (lambda x: x.repeat(1, -1), ShapeError),
        (lambda x: x[0].fliplr(), ShapeError),
        (lambda x: ddpflow.meshgrid(x, x), ShapeError),
        (lambda x: ddpflow.meshgrid(x[0], indexing="yx"), ValueRangeError),
        (lambda x: ddpflow.combinations(x), ShapeError),
    ],
)
def test_bad_input(call, error):
    """PyTorch's exception types."""
    with pytest.raises(error):
        call(numbers(2, 3))
