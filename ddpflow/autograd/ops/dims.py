"""Dimensions as PyTorch users give them, as non-negative axes; and small helpers that reductions share."""

from collections import namedtuple

from ddpflow.dtype import as_dtype
from ddpflow.errors import IndexRangeError, MixedDtypeError, ShapeError, UnsupportedDtypeError

__all__ = [
    "axes_of",
    "axis_of",
    "is_half",
    "kept_shape",
    "named_result",
    "narrow",
    "need_floating",
    "need_one_dtype",
    "need_real",
    "some_axes",
    "wide",
]


def axis_of(dim, ndim):
    """A dimension as a non-negative axis; a 0-d tensor counts as having one.

    Raises:
        IndexRangeError: When it is out of range.
    """
    count = ndim or 1
    axis = int(dim)
    if not -count <= axis < count:
        raise IndexRangeError(
            f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {axis})"
        )
    return axis % count


def axes_of(dim, ndim):
    """One dimension or several as a tuple of axes; None and an empty list mean all.

    Raises:
        IndexRangeError: When one is out of range.
        ShapeError: When one appears twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if dim.__class__ is int:
        return (axis_of(dim, ndim),) if ndim else axes_of([dim], 0)
    if hasattr(dim, "__index__"):
        dim = [dim]
    axes = tuple([axis_of(d, ndim) for d in dim])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"a dimension appears more than once in {list(dim)}")
    if ndim == 0:
        return ()
    return axes or tuple(range(ndim))


def some_axes(dim, ndim):
    """As `axes_of`, but None for all axes: NumPy reduces everything quicker when it is not told the axes."""
    return None if dim is None else axes_of(dim, ndim)


def kept_shape(shape, axes):
    """The shape after a reduction over ``axes`` (None for all) that keeps them with length 1."""
    return (1,) * len(shape) if axes is None else tuple([1 if i in axes else n for i, n in enumerate(shape)])


def is_half(dtype):
    """True for float16 and bfloat16, as NumPy's or as our dtype."""
    return dtype.itemsize == 2 and dtype.name in ("float16", "bfloat16")


def wide(xp, a):
    """The array in float32 when it is of a half type: sums of halves are taken in float32 and rounded once."""
    return a.astype(xp.float32) if is_half(a.dtype) else a


def narrow(a, dtype):
    """What was computed in `wide`, in its own dtype again; the array itself where that is the same."""
    return a if a.dtype == dtype else a.astype(dtype)


def need_floating(name, x):
    """Refuse integers and booleans, for a function of real numbers.

    Raises:
        UnsupportedDtypeError: When it is given some.
    """
    if getattr(x.dtype, "kind", "f") in "iub":
        raise UnsupportedDtypeError(
            f"{name}() is not defined for {as_dtype(x.dtype)}; convert the tensor, as with float()"
        )


def need_real(name, x):
    """Refuse complex numbers, for a function whose rule is right for real numbers only.

    Raises:
        UnsupportedDtypeError: When it is given some.
    """
    if getattr(x.dtype, "kind", "f") == "c":
        raise UnsupportedDtypeError(f"{name}() is not supported for {as_dtype(x.dtype)}: it takes real numbers")


def need_one_dtype(name, x, *others):
    """Refuse tensors of several dtypes; None counts for nothing.

    Raises:
        MixedDtypeError: When one differs from the first.
    """
    for other in others:
        if other is not None and other.dtype != x.dtype:
            raise MixedDtypeError(
                f"{name}() takes tensors of one dtype, but got {as_dtype(x.dtype)} and {as_dtype(other.dtype)}: "
                "convert the input with to(), or the module"
            )


def named_result(name, *fields):
    """The class of a result with several named parts, under the operation's name as in PyTorch."""
    return namedtuple(name, fields)
