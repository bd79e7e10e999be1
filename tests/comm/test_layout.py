"""The way from users' arrays to flat ones and back."""

import numpy as np
import pytest

from ddpflow.comm.layout import as_array, check_op, check_output, check_same, flat_input, flat_output, nothing, overlaps
from ddpflow.comm.reduce import ReduceOp
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError


class Box:
    """Something with an array inside, as a Tensor is."""

    def __init__(self, array):
        self.array = array


def test_as_array():
    """Arrays stay, Tensors are unwrapped, other things are refused by name."""
    x = np.zeros(3)
    assert as_array(x, "op") is x and as_array(Box(x), "op") is x
    for bad in (1.0, [1.0], None, "x", np.float32(3)):
        with pytest.raises(TypeError, match=f"op takes a Tensor or an array, not {type(bad).__name__}"):
            as_array(bad, "op")
    with pytest.raises(DtypeError, match="op cannot carry dtype object"):
        as_array(np.array([{}]), "op")


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((3, 4)), False),
        (np.zeros((3, 4)).T, False),
        (np.zeros((3, 4))[::-1, ::2], False),
        (np.zeros(()), False),
        (np.zeros((0, 4)), False),
        (np.broadcast_to(np.zeros(3), (1, 3)), False),
        (np.broadcast_to(np.zeros(3), (2, 3)), True),
        (np.lib.stride_tricks.sliding_window_view(np.zeros(10), 4), True),
        (np.broadcast_to(np.zeros(1), (0, 5)), False),
        (np.empty((2, 0)), False),
    ],
)
def test_overlaps(array, expected):
    """Elements that share memory are found."""
    assert overlaps(array) is expected


def test_check_output():
    """Results need memory of their own that may be written."""
    check_output(np.zeros((2, 3)).T, "op")
    with pytest.raises(ValueRangeError, match=r"share memory \(shape \(2, 3\), strides \(0, 8\)"):
        check_output(np.broadcast_to(np.zeros(3), (2, 3)), "op")


def test_flat_views():
    """Contiguous arrays are viewed, others copied; both in C order."""
    x = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(flat_input(x), x)
    assert flat_input(x.T).tolist() == [0, 3, 1, 4, 2, 5] and not np.shares_memory(flat_input(x.T), x)
    flat, finish = flat_output(x, "op")
    assert np.shares_memory(flat, x) and finish is nothing
    finish()
    flat, finish = flat_output(x.T, "op", load=True)
    assert flat.tolist() == [0, 3, 1, 4, 2, 5]
    flat += 10
    finish()
    assert x.tolist() == [[10, 11, 12], [13, 14, 15]]
    flat, finish = flat_output(x[:, 0], "op")
    flat[:] = 7
    finish()
    assert x[:, 0].tolist() == [7, 7] and x[:, 1].tolist() == [11, 14]


def test_unaligned_arrays_are_copied():
    """Elements at odd addresses do not reach the transports."""
    raw = np.zeros(33, np.uint8)
    x = raw[1:].view(np.float64)
    assert not x.flags.aligned
    flat, finish = flat_output(x, "op")
    assert flat.flags.aligned
    flat[:] = [1, 2, 3, 4]
    finish()
    assert x.tolist() == [1, 2, 3, 4]


def test_check_op():
    """A pair is checked once and remembered; what is no ReduceOp is refused."""
    check_op(np.dtype("f4"), ReduceOp.SUM, "op")
    check_op(np.dtype("f4"), ReduceOp.SUM, "op")
    with pytest.raises(TypeError, match="ReduceOp.SUM"):
        check_op(np.dtype("f4"), "SUM", "op")
    for _ in range(2):
        with pytest.raises(DtypeError, match="op: ReduceOp.AVG is not defined for int32.*divide"):
            check_op(np.dtype("i4"), ReduceOp.AVG, "op")


def test_check_same():
    """Lists have one array per rank, alike."""
    like = np.zeros(3)
    check_same([np.zeros(3)] * 2, like, 2, "op")
    with pytest.raises(ShapeError, match="2 in all, not 1"):
        check_same([like], like, 2, "op")
    with pytest.raises(ShapeError, match="array 1 of the list"):
        check_same([like, np.zeros(4)], like, 2, "op")
    with pytest.raises(DtypeError, match="float32, expected float64"):
        check_same([like, np.zeros(3, "f4")], like, 2, "op")
