"""Diagonals and triangles."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import ShapeError


def numbers(*shape):
    """A tensor with the numbers from 1 on."""
    return (ddpflow.arange(float(np.prod(shape))) + 1).reshape(shape)


@pytest.mark.parametrize("offset", [-3, -1, 0, 2, 4])
def test_follow_numpy(offset):
    """For every offset, also beyond the matrix."""
    x = numbers(3, 4)
    a = x.numpy()
    np.testing.assert_array_equal(x.tril(offset).numpy(), np.tril(a, offset))
    np.testing.assert_array_equal(x.triu(offset).numpy(), np.triu(a, offset))
    np.testing.assert_array_equal(x.diagonal(offset).numpy(), np.diagonal(a, offset))
    np.testing.assert_array_equal(x.diag(offset).numpy(), np.diag(a, offset))
    np.testing.assert_array_equal(x[0].diag(offset).numpy(), np.diag(a[0], offset))
    np.testing.assert_array_equal(x.diagflat(offset).numpy(), np.diagflat(a, offset))


def test_diag_embed_is_the_inverse_of_diagonal():
    """For batches and any two dimensions."""
    x = numbers(2, 3)
    for offset, dims in ((0, (-2, -1)), (1, (0, 2)), (-1, (2, 0))):
        full = ddpflow.diag_embed(x, offset, *dims)
        assert full.numel() == 2 * (3 + abs(offset)) ** 2
        np.testing.assert_array_equal(full.diagonal(offset, *dims).numpy(), x.numpy())
        assert full.sum().item() == x.sum().item()


def test_block_diag():
    """Blocks one after another along the diagonal."""
    made = ddpflow.block_diag(ddpflow.tensor([[1, 2]]), ddpflow.tensor(3), ddpflow.tensor([4, 5]))
    assert made.tolist() == [[1, 2, 0, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 4, 5]]


def test_diagonal_scatter():
    """A copy with the diagonal replaced."""
    x = numbers(2, 2)
    assert ddpflow.diagonal_scatter(x, ddpflow.tensor([7.0, 8.0])).tolist() == [[7, 2], [3, 8]]
    assert x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[0].tril(),
        lambda x: x[0].triu(),
        lambda x: x.diagonal(0, 1, 1),
        lambda x: x[None].diag(),
        lambda x: ddpflow.diagonal_scatter(x, x[0]),
        lambda x: ddpflow.block_diag(x[None]),
    ],
)
def test_bad_input(call):
    """Wrong numbers of dimensions are refused."""
    with pytest.raises(ShapeError):
        call(numbers(2, 3))
