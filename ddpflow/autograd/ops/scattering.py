"""Writing one element, or slice, for each index, or reducing all that fall on one place."""

import numpy as np

from ddpflow.autograd.op import Ints, apply, op
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.autograd.ops.gathering import fitting, gather, place_each, positions
from ddpflow.autograd.ops.indexing import getitem
from ddpflow.autograd.ops.shape import broadcast_to, reshape
from ddpflow.device import array_module, unwrap
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["index_reduce", "scatter", "scatter_add", "scatter_reduce"]

_INDEX = Ints((3, 2), 4)
_PLACES = np.array([[3, 1], [0, 2], [1, 0]])


@op(samples=[((3, 4), (3, 2), 1, _PLACES), ((4, 3), (3, 2), 0, _PLACES)], tensors=2, name="scatter")
def _scatter(xp, a, src, dim, index):
    """A copy with the elements of a source, or one number, written where `gather` would read."""
    out = a.copy()
    if index.size:
        flat = positions(xp, a.shape or (1,), dim, index.reshape(index.shape or (1,)))
        out.reshape(-1)[flat] = src.reshape(flat.shape) if hasattr(src, "dtype") else src
    return out, (lambda g: apply(xp, _scatter, g, 0, dim, index), lambda g: apply(xp, gather, g, dim, index))


def _prepared(name, input, dim, index, src):
    """The checked dimension, the index, and the part of the source that the index covers."""
    raw = unwrap(index)
    dim, _ = fitting(
        name, array_module(input.array), input.array, dim, raw, unwrap(src) if hasattr(src, "array") else None
    )
    if hasattr(src, "array"):
        if src.array.dtype != input.array.dtype:
            raise ShapeError(f"{name}(): source of {src.dtype} for a tensor of {input.dtype}; they must be equal")
        if src.array.shape != raw.shape and raw.size:
            src = getitem(src, tuple([slice(n) for n in raw.shape]))
    return dim, src


def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """A copy with elements of ``src`` (a tensor, or one number) written where `gather` would read with that index.

    Where an index appears twice, the last write counts. ``reduce="add"`` and ``"multiply"`` combine with what is there.

    Raises:
        IndexRangeError: When an index is out of range.
        ShapeError: When shapes or dtypes do not fit.
        ValueRangeError: For another reduction.
    """
    src = value if src is None else src
    dim, src = _prepared("scatter", input, dim, index, src)
    if not unwrap(index).size:
        return input.clone()
    if reduce is None:
        return _scatter(input, src, dim, index)
    if reduce not in ("add", "multiply"):
        raise ValueRangeError(f"scatter() reduces by 'add' or 'multiply', not {reduce!r}")
    if not hasattr(src, "array"):
        src = input.new_full(unwrap(index).shape, src)
    return scatter_reduce(input, dim, index, src, "sum" if reduce == "add" else "prod")


def scatter_add(input, dim, index, src):
    """A copy with elements of ``src`` added where `gather` would read; all that fall on one place are added up.

    Raises:
        IndexRangeError: When an index is out of range.
        ShapeError: When shapes or dtypes do not fit.
    """
    dim, src = _prepared("scatter_add", input, dim, index, src)
    return input + place_each(src, dim, index, tuple(input.array.shape)) if unwrap(index).size else input.clone()


def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """A copy in which all elements of ``src`` that fall on one place are reduced, together with what was there.

    Args:
        input: The tensor that the copy is of.
        dim: The dimension that the indices number.
        index: Where each element goes.
        src: The elements.
        reduce: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        include_self: Whether the tensor's own element takes part where something falls on it.

    Raises:
        ValueRangeError: For another reduction.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ValueRangeError(f"scatter_reduce() reduces by sum, prod, mean, amax or amin, not {reduce!r}")
    dim, src = _prepared("scatter_reduce", input, dim, index, src)
    if not unwrap(index).size:
        return input.clone()
    shape = tuple(input.array.shape)
    if reduce in ("sum", "mean"):
        kept = input if include_self else _scatter(input, 0, dim, index)
        total = kept + place_each(src, dim, index, shape)
        if reduce == "sum":
            return total
        ones = src.new_ones(src.array.shape)
        count = place_each(ones, dim, index, shape)
        count = count + 1 if include_self else count.clamp(min=1)
        return total / count if input.is_floating_point() else total.div(count, rounding_mode="floor")
    if reduce == "prod":
        return _scatter_prod(input, src, dim, index, include_self)
    return _scatter_extreme(input, src, dim, index, reduce, include_self)


def _start(xp, a, dim, index, include_self, identity):
    """A flat working copy of the tensor, the flat positions, and the identity put where something will fall."""
    out = a.copy()
    flat = positions(xp, a.shape or (1,), dim, index.reshape(index.shape or (1,)))
    if not include_self:
        out.reshape(-1)[flat] = identity
    return out, flat


@op(
    samples=[((3, 4), (3, 2), 1, _INDEX, "amax", True), ((3, 4), (3, 2), 1, _INDEX, "amin", False)],
    tensors=2,
    name="scatter_extreme",
)
def _scatter_extreme(xp, a, src, dim, index, kind, include_self):
    """The largest or smallest of all that fall on one place; ties share the gradient."""
    info = xp.finfo(a.dtype) if a.dtype.kind == "f" else xp.iinfo(a.dtype) if a.dtype.kind in "iu" else None
    if a.dtype.kind == "f":
        identity = -xp.inf if kind == "amax" else xp.inf
    elif info is None:
        identity = kind != "amax"
    else:
        identity = info.min if kind == "amax" else info.max
    out, flat = _start(xp, a, dim, index, include_self, identity)
    ufunc = xp.maximum if kind == "amax" else xp.minimum
    ufunc.at(out.reshape(-1), flat.reshape(-1), src.reshape(-1))
    shape = a.shape

    def own():
        """Where the tensor's own element is the result (1), as numbers; nowhere something fell, if it takes no part."""
        same = (a == out).astype(a.dtype)
        return same if include_self else same * 0

    def share(g):
        found = (src == apply(xp, gather, out, dim, index)).astype(src.dtype)
        count = apply(xp, place_each, found, dim, index, shape) + own()
        return found, g / xp.where(count == 0, 1, count)

    def to_self(g):
        if include_self:
            return share(g)[1] * own()
        return apply(xp, _scatter, g, 0, dim, index)

    def to_source(g):
        found, part = share(g)
        return found * apply(xp, gather, part, dim, index)

    return out, (to_self, to_source)


@op(samples=[((3, 4), (3, 2), 1, _INDEX, True), ((3, 4), (3, 2), 1, _INDEX, False)], tensors=2, name="scatter_prod")
def _scatter_prod(xp, a, src, dim, index, include_self):
    """The product of all that fall on one place."""
    out, flat = _start(xp, a, dim, index, include_self, 1)
    xp.multiply.at(out.reshape(-1), flat.reshape(-1), src.reshape(-1))
    shape = a.shape

    def others():
        """For each place the product without its zeros, and how many zeros it has."""
        zero_src, zero_self = src == 0, (a == 0) if include_self else (a != a)
        rest_src = xp.where(zero_src, 1, src)
        rest = apply(xp, _scatter_prod, xp.where(zero_self, 1, a), rest_src, dim, index, include_self)
        count = apply(xp, place_each, zero_src.astype(src.dtype), dim, index, shape) + zero_self.astype(a.dtype)
        return rest, count, zero_self, zero_src

    def without(g, rest, count, zero, x):
        """The product of the others: nothing if another is zero, all without zeros if x is the only zero, else / x."""
        return g * xp.where(zero, xp.where(count == 1, rest, 0), xp.where(count == 0, rest / xp.where(zero, 1, x), 0))

    def to_self(g):
        if not include_self:
            return apply(xp, _scatter, g, 0, dim, index)
        rest, count, zero, _ = others()
        return without(g, rest, count, zero, a)

    def to_source(g):
        rest, count, _, zero = others()
        rest, count, g = [apply(xp, gather, x, dim, index) for x in (rest, count, g)]
        return without(g, rest, count, zero, src)

    return out, (to_self, to_source)


def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """A copy in which all slices of ``source`` that fall on one number along a dimension are reduced.

    Args:
        input: The tensor that the copy is of.
        dim: The dimension that the indices number.
        index: The number for each slice of the source; a vector.
        source: The slices.
        reduce: ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
        include_self: Whether the tensor's own slice takes part where something falls on it.

    Raises:
        ValueRangeError: For another reduction.
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ValueRangeError(f"index_reduce() reduces by prod, mean, amax or amin, not {reduce!r}")
    shape = source.array.shape
    if not shape:
        return scatter_reduce(input, dim, reshape(index, ()), source, reduce, include_self=include_self)
    dim = axis_of(dim, len(shape))
    line = [1] * len(shape)
    line[dim] = shape[dim]
    full = broadcast_to(reshape(index, tuple(line)), tuple(shape))
    return scatter_reduce(input, dim, full, source, reduce, include_self=include_self)
