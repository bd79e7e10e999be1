"""Shapes: what is a view, which sizes fit, what is refused."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError


def numbers(*shape):
    """A tensor with the numbers from 0 on."""
    return ddpflow.arange(float(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x.reshape(6, 4), (6, 4)),
        (lambda x: x.reshape((-1, 8)), (3, 8)),
        (lambda x: x.reshape([24]), (24,)),
        (lambda x: x.view(2, -1), (2, 12)),
        (lambda x: x.view_as(numbers(24)), (24,)),
        (lambda x: x.flatten(), (24,)),
        (lambda x: x.flatten(1), (2, 12)),
        (lambda x: x.flatten(0, 1), (6, 4)),
        (lambda x: x.flatten(-1), (2, 3, 4)),
        (lambda x: x.unflatten(-1, (2, 2)), (2, 3, 2, 2)),
        (lambda x: x.unflatten(2, (-1, 2)), (2, 3, 2, 2)),
        (lambda x: x.transpose(0, -1), (4, 3, 2)),
        (lambda x: x.permute(2, 0, 1), (4, 2, 3)),
        (lambda x: x.permute((-1, -3, -2)), (4, 2, 3)),
        (lambda x: x.permute(dims=(1, 0, 2)), (3, 2, 4)),
        (lambda x: x.T, (4, 3, 2)),
        (lambda x: x.mT, (2, 4, 3)),
        (lambda x: x.movedim(0, -1), (3, 4, 2)),
        (lambda x: x.movedim((0, 1), (1, 0)), (3, 2, 4)),
        (lambda x: x.swapaxes(0, 1), (3, 2, 4)),
        (lambda x: x.unsqueeze(0), (1, 2, 3, 4)),
        (lambda x: x.unsqueeze(-1), (2, 3, 4, 1)),
        (lambda x: x[:1].squeeze(), (3, 4)),
        (lambda x: x[:1].squeeze(0), (3, 4)),
        (lambda x: x.squeeze(0), (2, 3, 4)),
        (lambda x: x[:1, :, :1].squeeze((0, 2)), (3,)),
        (lambda x: x.expand(5, 2, 3, 4), (5, 2, 3, 4)),
        (lambda x: x[:, :1].expand(-1, 7, -1), (2, 7, 4)),
        (lambda x: x[0, 0].expand_as(x), (2, 3, 4)),
        (lambda x: x.broadcast_to((2, 2, 3, 4)), (2, 2, 3, 4)),
        (lambda x: x.unfold(2, 2, 1), (2, 3, 3, 2)),
        (lambda x: x.unfold(0, 2, 3), (1, 3, 4, 2)),
    ],
)
def test_shapes(call, expected):
    """Each form gives the shape that PyTorch gives, with the elements in order of the new shape."""
    assert call(numbers(2, 3, 4)).shape == expected


def test_values_follow_numpy():
    """Reordered dimensions hold what NumPy's hold."""
    x = numbers(2, 3, 4)
    a = x.numpy()
    np.testing.assert_array_equal(x.permute(2, 0, 1).numpy(), a.transpose(2, 0, 1))
    np.testing.assert_array_equal(x.movedim(0, 2).numpy(), np.moveaxis(a, 0, 2))
    windows = np.lib.stride_tricks.sliding_window_view(a, 3, 2)[:, :, ::1]
    np.testing.assert_array_equal(x.unfold(2, 3, 1).numpy(), windows)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.reshape(5, 5), ShapeError, r"\(2, 3, 4\)"),
        (lambda x: x.reshape(-1, -1), ShapeError, "unknown"),
        (lambda x: x[:0].reshape(-1, 0), ShapeError, "ambiguous"),
        (lambda x: x.reshape(2.5), DtypeError, "reshape"),
        (lambda x: x.permute(0, 1), ShapeError, "3 dimensions"),
        (lambda x: x.permute(0, 0, 1), ShapeError, "repeated"),
        (lambda x: x.transpose(0, 3), IndexRangeError, "3"),
        (lambda x: x.unsqueeze(5), IndexRangeError, "5"),
        (lambda x: x.squeeze(3), IndexRangeError, "3"),
        (lambda x: x.flatten(2, 1), ShapeError, "comes after"),
        (lambda x: x.unflatten(2, (3, 2)), ShapeError, "4"),
        (lambda x: x.expand(2, 5, 4), ShapeError, "length 3"),
        (lambda x: x.expand(3, 4), ShapeError, "fewer"),
        (lambda x: x.expand(-1, 2, 3, 4), ShapeError, "new dimension"),
        (lambda x: x.movedim((0, 1), 2), ShapeError, "2 dimensions"),
        (lambda x: x.t(), ShapeError, "two dimensions"),
        (lambda x: x[0, 0].mT, ShapeError, "two dimensions"),
        (lambda x: x.unfold(1, 4, 1), ShapeError, "length 3"),
        (lambda x: x.broadcast_to((3, 3)), ShapeError, "broadcast"),
        (lambda x: ddpflow.broadcast_tensors(x, numbers(5)), ShapeError, "5"),
        (lambda x: ddpflow.reshape(np.ones(3), (3,)), AttributeError, "array"),
    ],
)
def test_what_does_not_fit(call, error, text):
    """PyTorch's exception type, with the shapes."""
    with pytest.raises(error, match=text):
        call(numbers(2, 3, 4))


def test_zero_dimensions():
    """A 0-d tensor counts as having one dimension for ``dim`` arguments, as in PyTorch."""
    x = ddpflow.tensor(3.0)
    assert x.flatten().shape == (1,) and x.reshape(1, 1).shape == (1, 1) and x.view(-1).shape == (1,)
    assert x.transpose(0, -1).shape == () and x.unsqueeze(0).shape == (1,) and x.squeeze().shape == ()
    assert x.permute().shape == () and x.t().shape == () and x.expand(2).tolist() == [3.0, 3.0]
    assert ddpflow.atleast_1d(x).shape == (1,) and ddpflow.atleast_2d(x).shape == (1, 1)
    assert ddpflow.atleast_3d(numbers(2, 3)).shape == (2, 3, 1) and ddpflow.atleast_3d(numbers(2)).shape == (1, 2, 1)
    assert [t.shape for t in ddpflow.atleast_1d(x, numbers(2))] == [(1,), (2,)]


def test_expanded_tensors_use_no_memory_and_are_read_only():
    """Expanding repeats by stride 0."""
    x = ddpflow.ones(1, 3).expand(1000, 3)
    assert x.stride() == (0, 1) and not x.array.flags.writeable


def test_broadcast_shapes():
    """The shape that several have together."""
    assert ddpflow.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert ddpflow.broadcast_shapes(3, (0, 1)) == (0, 3)
    a, b = ddpflow.broadcast_tensors(numbers(2, 1), numbers(3))
    assert a.shape == b.shape == (2, 3)


def test_view_as_another_dtype():
    """The same bytes, on the same memory."""
    x = ddpflow.tensor([1.0, -2.0])
    bits = x.view(ddpflow.int32)
    assert bits.tolist() == [0x3F800000, -0x40000000]
    bits.zero_()
    assert x.tolist() == [0.0, 0.0]
    assert x.view(ddpflow.int16).shape == (4,)


def test_complex_views():
    """Real and imaginary parts are a last dimension of length 2, on the same memory; gradients pass both ways."""
    pairs = ddpflow.tensor([[1.0, 2.0], [3.0, -4.0]], requires_grad=True)
    numbers_ = ddpflow.view_as_complex(pairs)
    assert numbers_.tolist() == [1 + 2j, 3 - 4j]
    (ddpflow.view_as_real(numbers_) * ddpflow.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert pairs.grad.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ShapeError, match="length 2"):
        ddpflow.view_as_complex(numbers(3))
    with pytest.raises(DtypeError, match="complex"):
        ddpflow.view_as_real(numbers(3))
