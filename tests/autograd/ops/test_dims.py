"""Dimensions as axes."""

import numpy as np
import pytest

from ddpflow.autograd.ops.dims import (
    axes_of,
    axis_of,
    is_half,
    kept_shape,
    named_result,
    narrow,
    need_floating,
    need_one_dtype,
    need_real,
    some_axes,
    wide,
)
from ddpflow.dtype import bfloat16, float16, float32, int16


def test_axis_of():
    """Negative dimensions count from the end; a 0-d tensor has one; others are out of range."""
    assert (axis_of(-1, 3), axis_of(2, 3), axis_of(-1, 0), axis_of(0, 0)) == (2, 2, 0, 0)
    for dim, ndim in ((3, 3), (-4, 3), (1, 0)):
        with pytest.raises(IndexError, match="Dimension out of range"):
            axis_of(dim, ndim)


def test_axes_of():
    """One, several, or with None and nothing all; twice is an error."""
    assert axes_of(None, 3) == axes_of((), 3) == (0, 1, 2)
    assert axes_of(-1, 3) == axes_of(np.int64(2), 3) == (2,)
    assert axes_of([0, -1], 3) == (0, 2)
    assert axes_of(0, 0) == axes_of(None, 0) == ()
    with pytest.raises(RuntimeError, match="more than once"):
        axes_of((1, -2), 3)


def test_small_helpers():
    """The kept shape, which types are half, the wide copy, and named results."""
    assert kept_shape((2, 3, 4), (0, 2)) == (1, 3, 1)
    assert [is_half(d) for d in (float16, bfloat16, float32, int16)] == [True, True, False, False]
    a = np.ones(2, np.float32)
    assert wide(np, a) is a and wide(np, a.astype(np.float16)).dtype == np.float32
    assert named_result("pair", "left", "right")(1, 2)._asdict() == {"left": 1, "right": 2}


def test_some_axes_and_narrow():
    """None stays None, for NumPy's quick way; an array of the right dtype is not copied."""
    assert some_axes(None, 2) is None and some_axes(-1, 2) == (1,)
    assert kept_shape((2, 3), None) == (1, 1)
    a = np.ones(2, np.float32)
    assert narrow(a, a.dtype) is a and narrow(a, np.dtype(np.float16)).dtype == np.float16


def test_refusals():
    """Integers, complex numbers and mixed dtypes are refused with the operation's name and their dtypes."""
    with pytest.raises(NotImplementedError, match="f.*int64"):
        need_floating("f", np.ones(2, np.int64))
    with pytest.raises(NotImplementedError, match="f.*complex128"):
        need_real("f", np.ones(2, np.complex128))
    with pytest.raises(RuntimeError, match="f.*float32.*float64"):
        need_one_dtype("f", np.ones(2, np.float32), None, np.ones(2))
    need_floating("f", np.ones(2))
    need_real("f", np.ones(2))
    need_one_dtype("f", np.ones(2), None, np.ones(3))
