"""Dtypes of mixed operands: PyTorch's rules."""

import itertools

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.promotion import common, common_list, operands, result_dtype
from ddpflow.factories import tensor

FLOATS = ("float16", "float32", "float64")


@pytest.mark.parametrize(("a", "b"), list(itertools.product(FLOATS, repeat=2)))
def test_floats_of_different_width(a, b):
    """The wider one wins, and each leaf's gradient keeps the leaf's dtype."""
    x, y = tensor([1.0, 2.0], dtype=a, requires_grad=True), tensor([3.0, 4.0], dtype=b, requires_grad=True)
    z = x * y
    assert z.dtype is (x.dtype if FLOATS.index(a) >= FLOATS.index(b) else y.dtype)
    z.sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (x.dtype, y.dtype)


def test_numbers_are_weak():
    """A Python number changes the dtype only to a higher category, and then to the default of it."""
    for dtype in FLOATS:
        assert (tensor([1.0], dtype=dtype) * 2.5).dtype == getattr(ddpflow, dtype)
    assert (tensor([1], dtype="int8") + 1).dtype is ddpflow.int8
    assert (tensor([1], dtype="int8") + 1.0).dtype is ddpflow.float32
    assert (tensor([True]) + 1).dtype is ddpflow.int64
    assert (tensor([True]) * tensor([2], dtype="int8")).dtype is ddpflow.int8
    assert (tensor([1.0]) * 1j).dtype is ddpflow.complex64


def test_numpy_scalars_count_as_python_numbers():
    """NumPy's float64 and int64 do not widen float32."""
    x = tensor([1.0, 2.0])
    for scalar in (np.float64(0.1), np.int64(3), np.float32(2), np.bool_(True)):
        assert (x * scalar).dtype is ddpflow.float32 and (scalar * x).dtype is ddpflow.float32
        assert ddpflow.clamp(x, min=scalar).dtype is ddpflow.float32
        assert ddpflow.where(x > 1, x, scalar).dtype is ddpflow.float32


def test_zero_dimensions_are_weaker_than_others():
    """A 0-d tensor decides only where its category is higher."""
    assert (tensor([1.0]) * tensor(2.0, dtype="float64")).dtype is ddpflow.float32
    assert (tensor([1]) * tensor(2.0, dtype="float64")).dtype is ddpflow.float64
    assert (tensor(1.0) * tensor(2.0, dtype="float64")).dtype is ddpflow.float64


def test_integers_beside_floats():
    """Any integer type beside float16 stays float16."""
    assert (tensor([1], dtype="int64") * tensor([1.0], dtype="float16")).dtype is ddpflow.float16


def test_the_functions_themselves():
    """What dispatch uses: result_dtype, common, common_list and operands."""
    a, b = np.ones(2, np.int32), np.ones(2, np.float16)
    assert result_dtype([a, b]) == np.float16
    assert result_dtype([a, 2.0]) == np.float32
    assert result_dtype([a, True]) == np.int32
    definition = ddpflow.div.__globals__["quotient"].op
    x, y = common(definition, a, a)
    assert x.dtype == y.dtype == np.float32
    assert [v.dtype for v in common_list(ddpflow.lerp.op, (None, None, None), [a, b, b])] == [np.float16] * 3
    left, right, x, y = operands(definition, tensor([1.0]), 2)
    assert right is None and y == 2 and x is left.array


def test_unknown_operands():
    """What is neither tensor nor number is named by place and type."""
    with pytest.raises(TypeError, match="argument 2 is a str"):
        tensor([1.0]) + "x"
    with pytest.raises(TypeError, match="at least one tensor"):
        ddpflow.mul(1, 2)


def test_integers_take_no_gradient():
    """requires_grad on integers and booleans is refused, with the dtype."""
    for values in ([1, 2], [True]):
        with pytest.raises(RuntimeError, match=r"ddpflow\.(int64|bool)"):
            tensor(values).requires_grad_()


def test_python_integers_beyond_an_integer_type():
    """They are cut to the type's bits, as in PyTorch: no OverflowError comes through."""
    assert (tensor([1], dtype="uint8") - (-1)).tolist() == [2]
    assert (tensor([1], dtype="uint8") + 300).tolist() == [45]
    assert (tensor([100], dtype="int8") + 100).tolist() == [-56]
    assert (tensor([1], dtype="uint8") == -1).tolist() == [False]
