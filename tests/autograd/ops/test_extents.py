"""Sizes and dimensions as users write them."""

import pytest

import ddpflow
from ddpflow.autograd.ops.extents import dims_of, sizes
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError


def test_sizes():
    """As numbers, as one tuple or list, as 0-d tensors."""
    assert sizes((2, 3)) == sizes(((2, 3),)) == sizes(([2, 3],)) == (2, 3)
    assert sizes((ddpflow.tensor(2),)) == (2,)
    assert sizes(((),)) == sizes(()) == ()
    with pytest.raises(DtypeError):
        sizes((2.5,))


def test_dims():
    """Counted from the front, each once."""
    assert dims_of((-1, 0), 3) == (2, 0) and dims_of(1, 3) == (1,) and dims_of((), 3) == ()
    with pytest.raises(IndexRangeError):
        dims_of(3, 3)
    with pytest.raises(ShapeError):
        dims_of((0, -3), 3)
