"""The same elements in other places: copied, flipped, rolled, repeated, on grids."""

import itertools

import numpy as np

from ddpflow.autograd.op import op
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.autograd.ops.extents import dims_of, sizes
from ddpflow.autograd.ops.joining import stack
from ddpflow.autograd.ops.shape import broadcast_to, reshape
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "cartesian_prod",
    "clone",
    "combinations",
    "contiguous",
    "flip",
    "fliplr",
    "flipud",
    "meshgrid",
    "repeat",
    "roll",
    "rot90",
    "tile",
]


@op(samples=[((3, 4),), ((),), ((0, 2),)])
def clone(xp, input):
    """A copy with memory of its own, through which gradients pass."""
    return input.copy(), lambda g: g


def contiguous(input, memory_format=None):
    """The tensor itself when its elements lie in row-major order without gaps, else a copy that does."""
    return input if input.array.flags.c_contiguous else _contiguous(input)


@op(samples=[((3, 4),)], name="contiguous")
def _contiguous(xp, a):
    """A copy in row-major order."""
    return xp.ascontiguousarray(a), lambda g: g


# --- order ---


@op(samples=[((3, 4), (0,)), ((2, 3, 4), (0, 2)), ((3,), ())], tensors=1, name="flip")
def _flip(xp, a, dims):
    """The elements in reverse order along dimensions."""
    return xp.ascontiguousarray(xp.flip(a, dims)), (lambda g: xp.flip(g, dims),)


def flip(input, *axes, dims=None):
    """A copy with the elements in reverse order along each of the dimensions.

    Raises:
        ShapeError: When a dimension is given twice.
    """
    return _flip(input, dims_of(sizes(axes) if dims is None else dims, input.array.ndim) if input.array.ndim else ())


def fliplr(input):
    """A copy with the elements of the second dimension in reverse order."""
    if input.array.ndim < 2:
        raise ShapeError(f"fliplr() needs at least two dimensions, not shape {tuple(input.shape)}")
    return flip(input, 1)


def flipud(input):
    """A copy with the elements of the first dimension in reverse order."""
    if input.array.ndim < 1:
        raise ShapeError("flipud() needs at least one dimension")
    return flip(input, 0)


@op(samples=[((3, 4), 1, 1), ((2, 3), (1, -2), (0, 1)), ((2, 3), 2, None)], tensors=1, name="roll")
def _roll(xp, a, shifts, dims):
    """The elements moved on along dimensions; what leaves at the end comes back in front."""
    back = tuple([-n for n in shifts]) if isinstance(shifts, tuple) else -shifts
    return xp.roll(a, shifts, dims), (lambda g: xp.roll(g, back, dims),)


def roll(input, shifts, dims=None):
    """The elements moved on along dimensions (or flattened); what leaves at the end comes back in front.

    Raises:
        ShapeError: When shifts and dimensions differ in number.
    """
    shifts = tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)
    if dims is None or dims == ():
        if len(shifts) != 1:
            raise ShapeError(f"roll() without dims takes one shift, not {shifts}")
        return _roll(input, shifts[0], None)
    dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    if len(dims) != len(shifts):
        raise ShapeError(f"roll() got {len(shifts)} shifts for {len(dims)} dimensions")
    if not input.array.ndim:
        dims_of(dims, 0)
        return clone(input)
    return _roll(input, shifts, tuple([axis_of(dim, input.array.ndim) for dim in dims]))


def rot90(input, k=1, dims=(0, 1)):
    """The tensor turned by 90 degrees, ``k`` times, from the first of two dimensions towards the second.

    Raises:
        ShapeError: When not two different dimensions are given.
    """
    if len(dims) != 2:
        raise ShapeError(f"rot90() turns in two dimensions, not {tuple(dims)}")
    first, second = dims_of(tuple(dims), input.array.ndim)
    turns = k % 4
    if turns == 0:
        return clone(input)
    if turns == 2:
        return flip(input, first, second)
    if turns == 1:
        return clone(flip(input, second).transpose(first, second))
    return flip(input.transpose(first, second), second)


# --- repetition ---


@op(samples=[((2, 3), (2, 1)), ((3,), (2, 2)), ((2, 3), (0, 1)), ((), (3,))], tensors=1, name="repeat")
def _repeat(xp, a, times):
    """The tensor laid side by side ``times`` along each dimension."""
    shape = (1,) * (len(times) - a.ndim) + tuple(a.shape)
    split = tuple([n for pair in zip(times, shape, strict=True) for n in pair])
    axes = tuple(range(0, 2 * len(times), 2))
    return xp.tile(a, times), (lambda g: g.reshape(split).sum(axes).reshape(shape),)


def repeat(input, *repeats):
    """The tensor laid side by side: once for each number, for its dimensions and new ones in front.

    Raises:
        ShapeError: With fewer numbers than dimensions, or a negative one.
    """
    times = sizes(repeats)
    if len(times) < input.array.ndim or any(n < 0 for n in times):
        raise ShapeError(f"repeat() of shape {tuple(input.shape)} takes a number >= 0 for each dimension, not {times}")
    return _repeat(input, times)


def tile(input, *dims):
    """The tensor laid side by side; missing numbers in front count as 1."""
    times = sizes(dims)
    return repeat(input, (1,) * (input.array.ndim - len(times)) + times)


# --- grids ---


def meshgrid(*tensors, indexing=None):
    """Vectors (or 0-d tensors) as the coordinates of a grid: one tensor of the grid's shape for each.

    Args:
        tensors: The coordinates of each axis.
        indexing: ``"ij"`` (default): the first vector runs along the first dimension; ``"xy"``: along the second.

    Raises:
        ShapeError: When one has more dimensions.
        ValueRangeError: When the indexing is neither.
    """
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if indexing not in (None, "ij", "xy"):
        raise ValueRangeError(f"meshgrid() indexes 'ij' or 'xy', not {indexing!r}")
    if not tensors or any(x.array.ndim > 1 for x in tensors):
        raise ShapeError(f"meshgrid() takes vectors, not shapes {[tuple(x.shape) for x in tensors]}")
    swap = indexing == "xy" and len(tensors) > 1
    axes = [1, 0, *range(2, len(tensors))] if swap else list(range(len(tensors)))
    shape = [1] * len(tensors)
    for x, axis in zip(tensors, axes, strict=True):
        shape[axis] = x.array.size
    grids = []
    for x, axis in zip(tensors, axes, strict=True):
        line = [1] * len(tensors)
        line[axis] = x.array.size
        grids.append(broadcast_to(reshape(x, tuple(line)), tuple(shape)))
    return tuple(grids)


def cartesian_prod(*tensors):
    """All combinations of one element of each vector, as rows."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(x, (-1,)) for x in meshgrid(*tensors)], 1)


def combinations(input, r=2, with_replacement=False):
    """All ways to take ``r`` elements of a vector, in order, as rows.

    Raises:
        ShapeError: When it is no vector, or r is negative.
    """
    if input.array.ndim != 1 or r < 0:
        raise ShapeError(f"combinations() takes a vector and r >= 0, not shape {tuple(input.shape)} and {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if r == 0:
        return input[:0]
    return input[np.array(list(choose(range(input.array.size), r)), np.int64).reshape(-1, r)]
