"""Selecting along a dimension and under masks."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError


def numbers(*shape):
    """A float64 leaf with the numbers from 0 on."""
    return ddpflow.tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_whole_slices(dim):
    """index_select, _add, _copy and _fill along a dimension, with repeats."""
    x = numbers(3, 4).detach()
    a = x.numpy()
    index = ddpflow.tensor([2, 0, 2])
    np.testing.assert_array_equal(x.index_select(dim, index).numpy(), a.take([2, 0, 2], dim))
    source = ddpflow.tensor(np.arange(100.0, 109.0 + 3 * (dim == 0)).reshape((3, 4) if dim == 0 else (3, 3)))
    expected = a.copy()
    at = (slice(None),) * (dim % 2) + ([2, 0, 2],)
    np.add.at(expected, at, 2 * source.numpy())
    np.testing.assert_array_equal(x.index_add(dim, index, source, alpha=2).numpy(), expected)
    expected = a.copy()
    expected[at] = source.numpy()
    np.testing.assert_array_equal(x.index_copy(dim, index, source).numpy(), expected)
    expected[at] = 7
    np.testing.assert_array_equal(x.index_copy(dim, index, source).index_fill(dim, index, 7.0).numpy(), expected)
    gradcheck(lambda s: numbers(3, 4).detach().index_add(dim, index, s, alpha=3), [source.detach().requires_grad_()])


def test_repeat_interleave():
    """A number for all slices or one for each; without a dimension on the flattened tensor."""
    x = numbers(2, 3)
    np.testing.assert_array_equal(x.repeat_interleave(2).detach().numpy(), np.repeat(x.detach().numpy(), 2))
    repeated = x.repeat_interleave(ddpflow.tensor([2, 0, 1]), dim=1)
    assert repeated.tolist() == [[0, 0, 2], [3, 3, 5]]
    repeated.sum().backward()
    assert x.grad.tolist() == [[2, 0, 1], [2, 0, 1]]
    assert ddpflow.repeat_interleave(ddpflow.tensor([1, 0, 2])).tolist() == [0, 2, 2]


def test_masks():
    """masked_fill, masked_select and masked_scatter broadcast the mask."""
    x = numbers(2, 3)
    mask = ddpflow.tensor([True, False, True])
    assert x.masked_fill(mask, -1.0).tolist() == [[-1, 1, -1], [-1, 4, -1]]
    assert x.masked_select(mask).tolist() == [0, 2, 3, 5]
    assert x.masked_scatter(mask, numbers(6) + 10).tolist() == [[10, 1, 11], [12, 4, 13]]
    value = ddpflow.tensor(2.0, dtype=ddpflow.float64, requires_grad=True)
    (x.masked_fill(mask, value) * 3).sum().backward()
    assert value.grad.item() == 12 and x.grad.tolist() == [[0, 3, 0], [0, 3, 0]]
    assert ddpflow.zeros(2, dtype=ddpflow.int64).masked_fill(ddpflow.tensor([True, False]), 5).dtype == ddpflow.int64


def test_nonzero():
    """Indices of what is not zero, as rows or as one vector for each dimension."""
    x = ddpflow.tensor([[0, 1], [2, 0]])
    assert x.nonzero().tolist() == [[0, 1], [1, 0]]
    rows, columns = x.nonzero(as_tuple=True)
    assert rows.tolist() == [0, 1] and columns.tolist() == [1, 0]
    assert x[x.nonzero(as_tuple=True)].tolist() == [1, 2]
    assert ddpflow.nonzero_static(x, size=3).tolist() == [[0, 1], [1, 0], [-1, -1]]
    assert ddpflow.tensor(0).nonzero().shape == (0, 0)


def test_take_and_put():
    """Places of the flattened tensor; take_along_dim broadcasts and counts from the end."""
    x = numbers(2, 3)
    assert x.take(ddpflow.tensor([[0, -1]])).tolist() == [[0, 5]]
    assert x.put(ddpflow.tensor([1, 4, 1]), numbers(3) + 10, accumulate=True).tolist() == [[0, 23, 2], [3, 15, 5]]
    assert x.take_along_dim(ddpflow.tensor([[2, 0]]), 1).tolist() == [[2, 0], [5, 3]]
    assert x.take_along_dim(ddpflow.tensor([[-1]]), 1).tolist() == [[2], [5]]
    assert x.take_along_dim(ddpflow.tensor([5, 0])).tolist() == [5, 0]


def test_parts():
    """Select and narrow give views; their scatter forms replace the same part in a copy."""
    x = numbers(3, 4).detach()
    assert x.select(1, -1).tolist() == [3, 7, 11]
    assert x.narrow(0, 1, 2).shape == (2, 4) and x.narrow(1, -2, 1).tolist() == [[2], [6], [10]]
    assert x.narrow_copy(0, 0, 1).shape == (1, 4)
    assert ddpflow.select_scatter(x, ddpflow.ones(4, dtype=ddpflow.float64), 0, 1)[1].tolist() == [1] * 4
    zeros = ddpflow.zeros(3, 2, dtype=ddpflow.float64)
    assert ddpflow.slice_scatter(x, zeros, 1, 0, None, 2)[0].tolist() == [0, 1, 0, 3]
    assert ddpflow.fill(x, 3.0).numpy().sum() == 36 and x.numpy().sum() == 66


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.index_select(0, ddpflow.tensor([3])), IndexRangeError),
        (lambda x: x.index_select(0, ddpflow.tensor([-1])), IndexRangeError),
        (lambda x: x.index_select(2, ddpflow.tensor([0])), IndexRangeError),
        (lambda x: x.index_select(0, ddpflow.tensor([[0]])), ShapeError),
        (lambda x: x.index_select(0, ddpflow.tensor([0.0])), DtypeError),
        (lambda x: x.index_add(0, ddpflow.tensor([0]), ddpflow.ones(2, 4)), ShapeError),
        (lambda x: x.masked_fill(ddpflow.ones(3, 4), 0.0), DtypeError),
        (lambda x: x.masked_fill(x > 0, ddpflow.ones(2)), ShapeError),
        (lambda x: x.masked_select(ddpflow.ones(5) > 0), ShapeError),
        (lambda x: x.masked_scatter(x >= 0, ddpflow.ones(2)), ShapeError),
        (lambda x: x.select(0, 3), IndexRangeError),
        (lambda x: x.narrow(0, 2, 2), ShapeError),
        (lambda x: x.narrow(0, 4, 0), IndexRangeError),
        (lambda x: x.take(ddpflow.tensor([12])), IndexRangeError),
        (lambda x: x.put(ddpflow.tensor([0]), ddpflow.ones(2)), ShapeError),
        (lambda x: x.repeat_interleave(ddpflow.tensor([1, 2]), 0), ShapeError),
        (lambda x: x.repeat_interleave(-1), ShapeError),
        (lambda x: x.take_along_dim(ddpflow.tensor([0]), 0), ShapeError),
        (lambda x: ddpflow.select_scatter(x, ddpflow.ones(3), 0, 1), ShapeError),
        (lambda x: ddpflow.slice_scatter(x, ddpflow.ones(3), 0), ShapeError),
    ],
)
def test_bad_input(call, error):
    """PyTorch's exception types."""
    with pytest.raises(error):
        call(numbers(3, 4).detach())
