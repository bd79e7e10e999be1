"""Sizes and several dimensions as users write them: as numbers or as one tuple."""

from ddpflow.autograd.ops.dims import axis_of
from ddpflow.errors import DtypeError, ShapeError

__all__ = ["dims_of", "sizes"]


def dims_of(dims, ndim):
    """Several dimensions (or one, as an int) counted from the front, each at most once; none is none.

    Raises:
        IndexRangeError: When one is out of range.
        ShapeError: When one is given twice.
    """
    if not isinstance(dims, (tuple, list)):
        dims = (dims,)
    found = tuple([axis_of(dim, ndim) for dim in dims])
    if len(set(found)) != len(found):
        raise ShapeError(f"a dimension appears twice in {tuple(dims)}")
    return found


def sizes(args):
    """The integers of ``f(2, 3)``, ``f((2, 3))`` or ``f([2, 3])``, as a tuple.

    Raises:
        DtypeError: When they are not integers.
    """
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    try:
        return tuple([n.__index__() for n in args])
    except AttributeError:
        raise DtypeError(f"sizes are integers, not {tuple(args)!r}") from None
