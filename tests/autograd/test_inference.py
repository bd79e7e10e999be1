"""Arrays of whatever users call data."""

import numpy as np
import pytest

from ddpflow.autograd.inference import default_of, from_data, module_of, placed, shape_of
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError


def test_an_array_that_fits_is_returned_itself():
    """Nothing is copied without need."""
    array = np.arange(3.0)
    assert from_data(array) is array and from_data(array, "float64") is array
    assert from_data(array, "float32").dtype == np.float32


def test_objects_with_an_array():
    """Anything NumPy can read counts: memory views, subclasses, foreign byte order."""

    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.array([1, 2], np.int16)

    assert from_data(Wrapped()).dtype == np.int16
    assert from_data([Wrapped(), Wrapped()]).dtype == np.int16
    assert type(from_data(np.ma.masked_array([1.0, 2.0]))) is np.ndarray
    assert from_data(np.array([1], ">f8")).dtype.isnative


def test_numbers_that_do_not_fit():
    """Overflow is named, not wrapped around."""
    with pytest.raises(DtypeError, match="int8"):
        from_data([1000], "int8")
    with pytest.raises(DtypeError):
        from_data([2**70])
    with pytest.raises(ValueRangeError, match="different lengths"):
        from_data([[1.0, 2.0], [3.0]])


def test_steps_of_factories():
    """Sizes in all their forms, default dtypes, the CPU's module."""
    assert shape_of((2, 3)) == shape_of(((2, 3),)) == shape_of((), [2, 3]) == (2, 3) and shape_of((), 4) == (4,)
    with pytest.raises(ShapeError, match="negative"):
        shape_of((2, -1))
    with pytest.raises(DtypeError):
        shape_of((2.0,))
    assert default_of(None) == np.float32 and default_of("int64") == np.int64
    assert module_of("cpu") is np and module_of(None) is np
    assert placed(np.zeros(2), "cpu", True).requires_grad
