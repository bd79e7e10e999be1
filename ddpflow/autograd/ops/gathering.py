"""One element for each index along a dimension: gather, and what scatter and the gradients share with it."""

import math

import numpy as np

from ddpflow.autograd.kernels.accumulate import accumulate
from ddpflow.autograd.op import Ints, apply, op
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.errors import DtypeError, PlaceError, ShapeError

__all__ = ["checked_index", "fitting", "gather", "place_each", "positions"]


def checked_index(name, xp, index, length, dim=None):
    """An array of indices, which must lie in ``[0, length)``.

    On a GPU that is not asked, for the host would have to wait: there, indices out of range wrap around.

    Raises:
        DtypeError: When they are not integers.
        PlaceError: When one is out of range.
    """
    if index.dtype.kind not in "iu":
        raise DtypeError(f"{name}() takes integer indices, not {index.dtype}")
    if index.size and xp is np:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= length:
            where = "," if dim is None else f" of dimension {dim},"
            raise PlaceError(
                f"{name}(): index {low if low < 0 else high} is out of bounds for length {length}{where} "
                f"which takes 0 to {length - 1}"
            )
    return index


def positions(xp, shape, dim, index):
    """For each index the place, in the flattened tensor, of the element that `gather` reads there."""
    stride, flat = 1, 0
    for i in range(len(shape) - 1, -1, -1):
        if i == dim:
            flat = flat + index * stride
        else:
            line = [1] * index.ndim
            line[i] = index.shape[i]
            flat = flat + xp.arange(index.shape[i]).reshape(line) * stride
        stride *= shape[i]
    return flat


def fitting(name, xp, a, dim, index, source=None):
    """The dimension and the indices of gather and scatter, checked; 0-d tensors count as vectors of one element."""
    shape, other = a.shape or (1,), index.shape or (1,)
    dim = axis_of(dim, a.ndim)
    if index.size == 0:
        return dim, index.reshape(other)
    small = [i for i in range(len(shape)) if len(shape) == len(other) and i != dim and other[i] > shape[i]]
    if len(shape) != len(other) or small:
        raise ShapeError(
            f"{name}(): indices of shape {tuple(index.shape)}, a tensor of shape {tuple(a.shape)}: they need the same "
            f"number of dimensions, and no size larger than the tensor's outside dimension {dim}"
        )
    if source is not None:
        held = source.shape or (1,)
        if len(held) != len(other) or any(n > m for n, m in zip(other, held, strict=True)):
            raise ShapeError(f"{name}(): indices of shape {tuple(index.shape)}, a source of {tuple(source.shape)}")
    return dim, checked_index(name, xp, index, shape[dim], dim).reshape(other)


@op(
    samples=[((3, 4), 1, Ints((3, 2), 4)), ((3, 4), 0, Ints((5, 3), 3)), ((2, 3, 2), -1, Ints((2, 3, 4), 2))], tensors=1
)
def gather(xp, input, dim, index, *, sparse_grad=False):
    """For each index the element at that number along a dimension, at the index's place in the others.

    Raises:
        IndexRangeError: When an index is out of range.
        ShapeError: When the indices do not fit.
    """
    shape = input.shape
    dim, places = fitting("gather", xp, input, dim, index)
    if not places.size:
        found = xp.zeros(index.shape, input.dtype)
    else:
        full = shape or (1,)
        part = tuple([slice(None) if i == dim else slice(places.shape[i]) for i in range(len(full))])
        found = xp.take_along_axis(input.reshape(full)[part], places, dim).reshape(index.shape)
    return found, (lambda g: apply(xp, place_each, g, dim, index, shape),)


@op(samples=[((3, 2), 1, Ints((3, 2), 4), (3, 4)), ((4, 3), 0, Ints((4, 3), 3), (3, 4))], tensors=1)
def place_each(xp, g, dim, index, shape):
    """Zeros of a shape with each element added where `gather` would read it."""
    count = math.prod(shape)
    if index.size:
        flat = positions(xp, shape or (1,), dim, index.reshape(index.shape or (1,))).reshape(-1)
        out = accumulate(xp, count, flat, g.reshape(-1, 1)).reshape(shape)
    else:
        out = xp.zeros(shape, g.dtype)
    return out, (lambda h: apply(xp, gather, h, dim, index),)
