"""Reductions: sums, products, extremes and truth over one dimension, several, or all."""

import math

from ddpflow.autograd.kernels.spread import spread
from ddpflow.autograd.op import Bools, Ints, apply, op
from ddpflow.autograd.ops.dims import (
    axes_of,
    axis_of,
    is_half,
    kept_shape,
    named_result,
    narrow,
    need_real,
    some_axes,
    wide,
)
from ddpflow.autograd.ops.gathering import gather, place_each
from ddpflow.autograd.ops.pairwise import maximum, minimum
from ddpflow.dtype import as_dtype, as_numpy
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError

__all__ = [
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nanmean",
    "nansum",
    "prod",
    "sum",
]

_DIMS = [((3, 4),), ((3, 4), 1), ((2, 3, 4), [0, -1], True), ((), None), ((1,), 0), ((2, 3, 4), [1])]
_EMPTY = ((0, 3), 0)


def _total(xp, a, axes, keepdim):
    """The sum with PyTorch's accumulator: float32 for halves, int64 for the integers."""
    if is_half(a.dtype):
        return a.sum(axes, dtype=xp.float32, keepdims=keepdim).astype(a.dtype)
    if a.dtype.kind in "biu":
        return a.sum(axes, dtype=xp.int64, keepdims=keepdim)
    return a.sum(axes, keepdims=keepdim)


@op(samples=[*_DIMS, _EMPTY, (Ints((3, 2), 5), 0)])
def sum(xp, input, dim=None, keepdim=False, dtype=None):
    """Sum over the given dimensions, or all; integers and booleans give int64, halves are added in float32."""
    axes, shape = some_axes(dim, input.ndim), input.shape
    kept = kept_shape(shape, axes)
    a = input if dtype is None else input.astype(as_numpy(dtype))
    return _total(xp, a, axes, keepdim), lambda g: spread(xp, g, kept, shape)


@op(samples=_DIMS)
def mean(xp, input, dim=None, keepdim=False, dtype=None):
    """Mean over the given dimensions, or all; of nothing it is NaN.

    Raises:
        DtypeError: For integers and booleans; convert them first.
    """
    a = input if dtype is None else input.astype(as_numpy(dtype))
    if a.dtype.kind in "biu":
        raise DtypeError(
            f"mean() takes a floating tensor, not {as_dtype(a.dtype)}; convert it, or pass dtype=ddpflow.float32"
        )
    axes, shape = some_axes(dim, input.ndim), input.shape
    kept = kept_shape(shape, axes)
    count = input.size if axes is None else math.prod([shape[axis] for axis in axes])
    if count == 0:
        return input.sum(axes, keepdims=keepdim) * xp.nan, lambda g: spread(xp, g, kept, shape)
    if is_half(a.dtype):
        out = (a.sum(axes, dtype=xp.float32, keepdims=keepdim) / count).astype(a.dtype)
    else:
        out = a.sum(axes, keepdims=keepdim) / count
    return out, lambda g: spread(xp, g / count, kept, shape)


@op(samples=[*_DIMS, _EMPTY])
def nansum(xp, input, dim=None, keepdim=False, dtype=None):
    """Sum that counts NaN as 0."""
    axes = axes_of(dim, input.ndim)
    kept = kept_shape(input.shape, axes)
    a = input if dtype is None else input.astype(as_numpy(dtype))
    return _total(xp, narrow(xp.where(a == a, a, 0), a.dtype), axes, keepdim), lambda g: xp.where(
        input == input, g.reshape(kept), 0
    )


def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """Mean of the elements that are not NaN."""
    return nansum(input, dim, keepdim, dtype) / sum(input == input, dim, keepdim)


@op(samples=_DIMS[:-1])
def amax(xp, input, dim=None, keepdim=False):
    """The greatest element over the given dimensions, or all; equal ones share the gradient evenly."""
    axes = axes_of(dim, input.ndim)
    if input.size == 0:
        _nonempty(input.shape, axes, dim)
    out = xp.asarray(input.max(axes, keepdims=keepdim))
    return out, lambda g: _even_share(xp, g, input, out, axes)


@op(samples=_DIMS[:-1])
def amin(xp, input, dim=None, keepdim=False):
    """The least element over the given dimensions, or all; equal ones share the gradient evenly."""
    axes = axes_of(dim, input.ndim)
    if input.size == 0:
        _nonempty(input.shape, axes, dim)
    out = xp.asarray(input.min(axes, keepdims=keepdim))
    return out, lambda g: _even_share(xp, g, input, out, axes)


def _even_share(xp, g, input, out, axes):
    kept = kept_shape(input.shape, axes)
    chosen = input == out.reshape(kept)
    return xp.where(chosen, g.reshape(kept) / chosen.sum(axes, keepdims=True), 0)


def _nonempty(shape, axes, dim=0):
    if dim is None:
        raise ShapeError(f"no greatest or least of no elements: give a dimension for a tensor of shape {tuple(shape)}")
    for axis in axes:
        if shape[axis] == 0:
            raise IndexRangeError(
                f"no greatest or least element over an empty dimension: shape {tuple(shape)}, dim {axis}"
            )
    return axes


def _composite_max(xp, input, dim, keepdim):
    index = argmax(input, dim, True)
    values = gather(input, dim, index)
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


def _composite_min(xp, input, dim, keepdim):
    index = argmin(input, dim, True)
    values = gather(input, dim, index)
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


@op(samples=[((3, 4), 1, False), ((2, 3, 4), 0, True), ((), 0, False)], tensors=1, composite=_composite_max)
def max_along(xp, input, dim, keepdim):
    """The greatest elements along a dimension and their indices; the gradient goes to the element at the index."""
    return _extreme(xp, input, dim, keepdim, input.max, input.argmax)


@op(samples=[((3, 4), 1, False), ((2, 3, 4), 0, True), ((), 0, False)], tensors=1, composite=_composite_min)
def min_along(xp, input, dim, keepdim):
    """The least elements along a dimension and their indices; the gradient goes to the element at the index."""
    return _extreme(xp, input, dim, keepdim, input.min, input.argmin)


def _extreme(xp, input, dim, keepdim, extreme, arg):
    axis = axis_of(dim, input.ndim)
    if input.ndim == 0:
        return (input.copy(), xp.zeros((), xp.int64)), (lambda g, _: g,)
    if input.size == 0:
        _nonempty(input.shape, (axis,))
    values, index = extreme(axis, keepdims=keepdim), arg(axis, keepdims=keepdim)
    shape, kept = input.shape, kept_shape(input.shape, (axis,))
    return (values, index), (lambda g, _: apply(xp, place_each, g.reshape(kept), axis, index.reshape(kept), shape),)


_Max = named_result("max", "values", "indices")
_Min = named_result("min", "values", "indices")
_AminmaxResult = named_result("aminmax", "min", "max")


def max(input, dim=None, keepdim=False, *, other=None):
    """The greatest element; along a dimension with its index; or of two tensors element by element (`maximum`).

    Args:
        input: The tensor.
        dim: A dimension; or a second tensor.
        keepdim: Keep the dimension with length 1.
        other: The second tensor, by name.

    Returns:
        A tensor; with ``dim`` a named tuple (values, indices), where the gradient goes to the chosen element only.
    """
    if other is not None or hasattr(dim, "array"):
        return maximum(input, dim if other is None else other)
    return amax(input) if dim is None else _Max(*max_along(input, dim, keepdim))


def min(input, dim=None, keepdim=False, *, other=None):
    """The least element; along a dimension with its index; or of two tensors element by element. See `max`."""
    if other is not None or hasattr(dim, "array"):
        return minimum(input, dim if other is None else other)
    return amin(input) if dim is None else _Min(*min_along(input, dim, keepdim))


def aminmax(input, *, dim=None, keepdim=False):
    """The least and the greatest element, as a named tuple (min, max)."""
    return _AminmaxResult(amin(input, dim, keepdim), amax(input, dim, keepdim))


@op(samples=[((3, 4),), ((3, 4), 1), ((3, 4), 0, True), ((),)], differentiable=False)
def argmax(xp, input, dim=None, keepdim=False):
    """The index of the greatest element along a dimension, or in the flattened tensor; the first of equal ones."""
    return _arg(xp.argmax, input, dim, keepdim)


@op(samples=[((3, 4),), ((3, 4), 1), ((3, 4), 0, True), ((),)], differentiable=False)
def argmin(xp, input, dim=None, keepdim=False):
    """The index of the least element along a dimension, or in the flattened tensor; the first of equal ones."""
    return _arg(xp.argmin, input, dim, keepdim)


def _arg(function, input, dim, keepdim):
    if dim is None:
        _nonempty(input.shape, tuple(range(input.ndim)))
        out = function(input)
        return out.reshape((1,) * input.ndim) if keepdim else out
    axis = axis_of(dim, input.ndim)
    if input.ndim == 0:
        return function(input)
    _nonempty(input.shape, (axis,))
    return function(input, axis, keepdims=keepdim)


@op(samples=[*_DIMS, (Bools((3, 4)), 0), _EMPTY], differentiable=False)
def any(xp, input, dim=None, keepdim=False):
    """True where at least one element is non-zero."""
    out = xp.any(input, axes_of(dim, input.ndim), keepdims=keepdim)
    return out.astype(input.dtype) if input.dtype == xp.uint8 else out


@op(samples=[*_DIMS, (Bools((3, 4)), 0), _EMPTY], differentiable=False)
def all(xp, input, dim=None, keepdim=False):
    """True where all elements are non-zero."""
    out = xp.all(input, axes_of(dim, input.ndim), keepdims=keepdim)
    return out.astype(input.dtype) if input.dtype == xp.uint8 else out


@op(samples=[((3, 4),), (Ints((3, 4), 2), 1), (Bools((2, 3)), [0, 1])], differentiable=False)
def count_nonzero(xp, input, dim=None, keepdim=False):
    """How many elements are non-zero."""
    return (input != 0).sum(axes_of(dim, input.ndim), dtype=xp.int64, keepdims=keepdim)


@op(samples=[*_DIMS, _EMPTY, ((3, 0), 0)])
def prod(xp, input, dim=None, keepdim=False, dtype=None):
    """Product over a dimension, or all; the gradient needs no division, so that zeros are no problem."""
    axes = axes_of(dim, input.ndim)
    kept = kept_shape(input.shape, axes)
    a = input if dtype is None else input.astype(as_numpy(dtype))
    if dtype is None and a.dtype.kind in "biu":
        a = a.astype(xp.int64)
    out = xp.asarray(narrow(wide(xp, a).prod(axes, keepdims=keepdim), a.dtype))

    def vjp(g):
        if not (input == 0).any():
            return (g * out).reshape(kept) / input
        return g.reshape(kept) * _product_of_others(xp, input, axes)

    return out, vjp


def _product_of_others(xp, a, axes):
    """For each element the product of the others along the axes: those on its left times those on its right."""
    rest = tuple([i for i in range(a.ndim) if i not in axes])
    order = (*rest, *axes)
    moved = xp.transpose(a, order)
    flat = moved.reshape((*[a.shape[i] for i in rest], -1))
    count = flat.shape[-1]
    left, right = [xp.ones_like(flat[..., 0])], [xp.ones_like(flat[..., 0])]
    for i in range(count - 1):
        left.append(left[-1] * flat[..., i])
        right.append(right[-1] * flat[..., count - 1 - i])
    others = xp.stack(left, -1) * xp.stack(right[::-1], -1)
    back = [order.index(i) for i in range(a.ndim)]
    return xp.transpose(others.reshape(moved.shape), back)


@op(samples=[*_DIMS], promote="float")
def logsumexp(xp, input, dim=None, keepdim=False):
    """``log(sum(exp(x)))`` over the given dimensions without overflow; -inf everywhere gives -inf, with gradient 0."""
    need_real("logsumexp", input)
    axes = axes_of(dim, input.ndim)
    kept = kept_shape(input.shape, axes)
    a = wide(xp, input)
    if a.size == 0:
        out = xp.log(xp.exp(a).sum(axes, keepdims=keepdim))
    else:
        top = a.max(axes, keepdims=True)
        top = xp.where(xp.isfinite(top), top, 0)
        out = xp.log(xp.exp(a - top).sum(axes, keepdims=True)) + top
        out = out if keepdim else out.reshape([n for i, n in enumerate(input.shape) if i not in axes])
    out = xp.asarray(narrow(out, input.dtype))

    def vjp(g):
        y = out.reshape(kept)
        return g.reshape(kept) * xp.exp(input - xp.where(y == -xp.inf, 0, y))

    return out, vjp
