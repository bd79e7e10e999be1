"""Joining tensors and taking them apart."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError, ValueRangeError


def numbers(*shape, start=0.0):
    """A tensor with the numbers from ``start`` on."""
    return (ddpflow.arange(float(np.prod(shape))) + start).reshape(shape)


def test_cat_and_stack_follow_numpy():
    """Along every dimension, also counted from the end."""
    a, b = numbers(2, 3), numbers(2, 3, start=10)
    for dim in (0, 1, -1):
        np.testing.assert_array_equal(ddpflow.cat([a, b], dim).numpy(), np.concatenate([a.numpy(), b.numpy()], dim))
    for dim in (0, 1, 2, -1):
        np.testing.assert_array_equal(ddpflow.stack([a, b], dim).numpy(), np.stack([a.numpy(), b.numpy()], dim))
    assert ddpflow.cat((a,), dim=0).shape == (2, 3)


def test_cat_promotes_and_skips_empty_vectors():
    """Different dtypes join in their common one; an empty vector beside larger tensors counts for nothing."""
    assert ddpflow.cat([ddpflow.tensor([1]), ddpflow.tensor([2.5])]).tolist() == [1.0, 2.5]
    assert ddpflow.stack([ddpflow.tensor(1), ddpflow.tensor(2.5)]).dtype == ddpflow.float32
    assert ddpflow.cat([ddpflow.tensor([]), numbers(2, 3)]).shape == (2, 3)


def test_cat_gradients_go_back_in_pieces():
    """Each input gets its part; an input given twice gets the sum."""
    a = numbers(2, 2).requires_grad_()
    b = numbers(1, 2).requires_grad_()
    weights = numbers(5, 2, start=1)
    (ddpflow.cat([a, b, a]) * weights).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), weights.numpy()[:2] + weights.numpy()[3:])
    np.testing.assert_array_equal(b.grad.numpy(), weights.numpy()[2:3])


@pytest.mark.parametrize(
    ("call", "lengths"),
    [
        (lambda x: x.split(2), [2, 2, 1]),
        (lambda x: x.split(5), [5]),
        (lambda x: x.split(7), [5]),
        (lambda x: x.split([1, 4]), [1, 4]),
        (lambda x: x.split([0, 5, 0]), [0, 5, 0]),
        (lambda x: x.split(split_size=3), [3, 2]),
        (lambda x: x.chunk(2), [3, 2]),
        (lambda x: x.chunk(4), [2, 2, 1]),
        (lambda x: x.chunk(9), [1, 1, 1, 1, 1]),
        (lambda x: x.tensor_split(3), [2, 2, 1]),
        (lambda x: x.tensor_split(7), [1, 1, 1, 1, 1, 0, 0]),
        (lambda x: x.tensor_split([1, 3]), [1, 2, 2]),
        (lambda x: x.tensor_split(ddpflow.tensor([2, 9])), [2, 3, 0]),
        (lambda x: x.tensor_split((3, 1)), [3, 0, 4]),
        (lambda x: x.unbind(), [2] * 5),
    ],
)
def test_pieces(call, lengths):
    """How long each piece is."""
    assert [len(piece) for piece in call(numbers(5, 2))] == lengths


def test_pieces_along_other_dimensions():
    """hsplit, vsplit and dsplit divide evenly along the second, first and third dimension."""
    x = numbers(2, 4, 6)
    assert [p.shape for p in x.hsplit(2)] == [(2, 2, 6)] * 2
    assert [p.shape for p in x.vsplit(2)] == [(1, 4, 6)] * 2
    assert [p.shape for p in x.dsplit([1, 3])] == [(2, 4, 1), (2, 4, 2), (2, 4, 3)]
    assert [p.tolist() for p in numbers(4).hsplit(2)] == [[0, 1], [2, 3]]


def test_unbinding_is_one_operation():
    """``q, k, v = x`` and a loop over a tensor make one node, whose gradient is one stack."""
    x = numbers(3, 2).requires_grad_()
    q, k, v = x
    assert q.grad_fn.next_functions[0][0] is v.grad_fn.next_functions[0][0]
    (q * 2 + v * 3).sum().backward()
    assert x.grad.tolist() == [[2, 2], [0, 0], [3, 3]]
    total = sum(row.sum() for row in x)
    assert total.item() == 15
    del k


def test_stacks():
    """hstack, vstack, dstack and column_stack as NumPy's."""
    a, b = numbers(3), numbers(3, start=5)
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        expected = getattr(np, name)([a.numpy(), b.numpy()])
        np.testing.assert_array_equal(getattr(ddpflow, name)([a, b]).numpy(), expected)
    m, n = numbers(2, 2), numbers(2, 2, start=9)
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        expected = getattr(np, name)([m.numpy(), n.numpy()])
        np.testing.assert_array_equal(getattr(ddpflow, name)([m, n]).numpy(), expected)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ddpflow.cat([]), ValueRangeError),
        (lambda: ddpflow.stack([]), ValueRangeError),
        (lambda: ddpflow.hstack([]), ValueRangeError),
        (lambda: ddpflow.cat([numbers(2, 3), numbers(3, 2)]), ShapeError),
        (lambda: ddpflow.cat([numbers(2, 3), numbers(2)]), ShapeError),
        (lambda: ddpflow.cat([ddpflow.tensor(1.0), ddpflow.tensor(2.0)]), ShapeError),
        (lambda: ddpflow.cat([numbers(2, 3)], 2), IndexRangeError),
        (lambda: ddpflow.stack([numbers(2), numbers(3)]), ShapeError),
        (lambda: numbers(5).split([2, 2]), ShapeError),
        (lambda: numbers(5).split(0), ShapeError),
        (lambda: numbers(5).split(-1), ShapeError),
        (lambda: numbers(5).chunk(0), ShapeError),
        (lambda: ddpflow.tensor(1.0).split(1), ShapeError),
        (lambda: ddpflow.tensor(1.0).unbind(), DtypeError),
        (lambda: list(ddpflow.tensor(1.0)), DtypeError),
        (lambda: numbers(5).hsplit(2), ShapeError),
        (lambda: numbers(5).vsplit(1), ShapeError),
        (lambda: numbers(5).tensor_split(0), ShapeError),
    ],
)
def test_bad_input(call, error):
    """PyTorch's exception types."""
    with pytest.raises(error):
        call()
