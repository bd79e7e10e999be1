"""Reading and writing with square brackets: numbers, slices, masks and arrays of indices, mixed as in PyTorch.

The gradient of a read adds up what was read twice. Of a write with an index that appears twice the last one counts, and
only it gets a gradient.
"""

import math
from typing import Any

import numpy as np

from ddpflow.autograd.kernels.accumulate import accumulate
from ddpflow.autograd.op import apply, op
from ddpflow.device import array_module, unwrap
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError

__all__ = ["getitem", "index_put", "parse"]

_BASIC = (int, slice, type(None), type(...))
_ALL = slice(None)


@op(
    samples=[((3, 4), (1, ...)), ((3, 4), (slice(None), slice(0, 4, 2), ...)), ((2, 3), (None, -1, ...))],
    view=True,
    tensors=1,
    name="getitem",
)
def _getitem(xp, a, index):
    """A view: numbers, slices, new dimensions."""
    shape = a.shape
    return a[index], (lambda g: apply(xp, _place, g, index, shape),)


@op(samples=[((4,), (1, ...), (3, 4)), ((3, 2), (slice(None), slice(0, 4, 2), ...), (3, 4))], tensors=1, name="place")
def _place(xp, g, index, shape):
    """Zeros of a shape with a tensor at an index: the gradient of a view."""
    out = xp.zeros(shape, g.dtype)
    out[index] = g
    return out, (lambda h: apply(xp, _getitem, h, index),)


@op(
    samples=[
        ((3, 4), (np.array([0, 0, 2]),)),
        ((3, 4, 2), (slice(None), np.array([[1, -1], [0, 1]]))),
        ((3, 4), (np.array([2, 0, 2]), np.array([1, 3, 1]))),
        ((2, 3), (np.array([[True, False, True], [False, False, True]]),)),
        ((2, 3, 4), (np.array([0, 1]), slice(None), np.array([3, 3]))),
    ],
    tensors=1,
    name="index",
)
def _index(xp, a, index):
    """A copy of what arrays of indices and masks select."""
    shape = a.shape
    return a[index], (lambda g: apply(xp, _place_sum, g, index, shape),)


@op(
    samples=[
        ((3, 4), (np.array([0, 0, 2]),), (3, 4)),
        ((3,), (np.array([2, 0, 2]), np.array([1, 3, 1])), (3, 4)),
        ((3,), (np.array([[True, False, True], [False, False, True]]),), (2, 3)),
    ],
    tensors=1,
    name="place_sum",
)
def _place_sum(xp, g, index, shape):
    """Zeros of a shape with a tensor added at an index: the gradient of a selection."""
    if not any(x.dtype.kind != "b" for x in index if x is not _ALL and hasattr(x, "dtype")):
        out = xp.zeros(shape, g.dtype)  # masks and slices alone select no place twice
        out[index] = g
    else:
        # The leading dimensions that the index takes, numbered; what follows stays together in rows.
        taken = sum([x.ndim if hasattr(x, "dtype") and x.dtype.kind == "b" else 1 for x in index])
        count, first = math.prod(shape[:taken]), index[0]
        if len(index) == 1 and first.dtype.kind != "b":
            positions = xp.where(first < 0, first + count, first).reshape(-1)
        else:
            positions = xp.arange(count).reshape(shape[:taken])[index].reshape(-1)
        out = accumulate(xp, count, positions, g.reshape(len(positions), math.prod(shape[taken:]))).reshape(shape)
    return out, (lambda h: apply(xp, _index, h, index),)


def parse(array, index):
    """An index as users write it, as two: one of numbers, slices and new dimensions, and one of arrays for its result.

    PyTorch takes numbers before arrays, NumPy together with them; taking them first, on their own, makes the two agree.

    Args:
        array: The raw array that is indexed.
        index: What stands in the square brackets.

    Returns:
        Two tuples; the first is None when it changes nothing, the second when there are no arrays.

    Raises:
        IndexRangeError: For too many indices, and for what is no index.
    """
    kind = index.__class__
    if kind is int or kind is slice:
        return (index, ...), None
    if kind is not tuple:
        index = _from_list(index) if kind is list else (index,)
    if all(item.__class__ in _BASIC for item in index):
        return (index if ... in index else (*index, ...)), None
    items = [_item(array, item) for item in index]
    taken = sum([_width(item) for item in items])
    if taken > array.ndim:
        raise IndexRangeError(f"{taken} indices for a tensor of {array.ndim} dimensions, shape {tuple(array.shape)}")
    dots = [i for i, item in enumerate(items) if item is ...]
    if len(dots) > 1:
        raise IndexRangeError("an index can only have one ellipsis (...)")
    if dots:
        items[dots[0] : dots[0] + 1] = [_ALL] * (array.ndim - taken)
    basic: list[Any] = []
    chosen: list[Any] = []
    for item in items:
        if hasattr(item, "dtype"):
            basic.extend([_ALL] * item.ndim if item.dtype.kind == "b" else [_ALL])
            chosen.append(item)
        elif item is True or item is False:
            basic.append(None)
            chosen.append(array_module(array).asarray([item]))
        else:
            basic.append(item)
            if item.__class__ is not int:
                chosen.append(_ALL)
    while chosen and chosen[-1] is _ALL:
        chosen.pop()
    plain = all(item is _ALL for item in basic)
    return None if plain and chosen else (*basic, ...), tuple(chosen) or None


def _from_list(index):
    """A list in square brackets: an array of indices, or, where it holds slices and the like, a tuple."""
    mixed = any(item.__class__ in (slice, type(None), type(...)) or getattr(unwrap(item), "ndim", 0) for item in index)
    return tuple(index) if mixed else (index,)


def _width(item):
    """How many dimensions an item takes."""
    if item is None or item is ... or item is True or item is False:
        return 0
    return item.ndim if hasattr(item, "dtype") and item.dtype.kind == "b" else 1


def _item(array, item):
    """One item of an index: a number, slice, None, Ellipsis, truth value, or a raw array of indices or truth values."""
    if item.__class__ in _BASIC or item is True or item is False:
        return item
    raw = unwrap(item)
    if isinstance(raw, (list, tuple, range)):
        raw = np.array([unwrap(x) for x in raw]) if len(raw) else np.zeros(0, np.int64)
    if not hasattr(raw, "dtype"):
        if hasattr(raw, "__index__"):
            return raw.__index__()
        raise IndexRangeError(
            f"a tensor is indexed by integers, slices, masks and arrays, not by {type(item).__name__}"
        )
    if raw.dtype == np.uint8:
        raw = raw.astype(bool)  # as PyTorch: bytes are masks
    if raw.dtype.kind not in "iub":
        raise IndexRangeError(f"tensors used as indices hold integers or booleans, not {raw.dtype}")
    if raw.ndim == 0:
        return bool(raw) if raw.dtype.kind == "b" else int(raw)
    return array_module(array).asarray(raw)


def getitem(input, index):
    """What ``input[index]`` gives: a view for numbers, slices, None and ``...``, a copy for arrays and masks.

    Raises:
        IndexRangeError: When an index is out of range, there are too many, or a mask does not fit.
    """
    basic, chosen = parse(input.array, index)
    if basic is not None:
        input = _getitem(input, basic)
    if chosen is None:
        return input
    if input.requires_grad:  # the user may change the indices before backward
        chosen = tuple([x if x is _ALL else x.copy() for x in chosen])
    return _index(input, chosen)


def index_put(input, indices, values, accumulate=False):
    """A copy with values written (or added) where a tuple of index tensors points.

    Raises:
        ShapeError: When the values do not fit.
    """
    result = input.clone()
    if not accumulate:
        result[tuple([_ALL if x is None else x for x in indices])] = values
        return result
    return input + _spread(input, tuple([_ALL if x is None else x for x in indices]), values)


def _spread(input, indices, values):
    """Zeros like a tensor, with values added at an index, all that fall on one place."""
    array = input.array
    basic, chosen = parse(array, indices)
    if chosen is None:
        full = input.detach() * 0
        full[indices] = values
        return full
    if basic is not None:
        raise DtypeError("index_put() takes tensors of indices, not numbers")
    shape = array[chosen].shape
    if not hasattr(values, "array"):
        values = input.new_tensor(values)
    try:
        values = values.broadcast_to(shape)
    except ShapeError:
        raise ShapeError(f"index_put(): values of shape {tuple(values.shape)} for a place of shape {shape}") from None
    return _place_sum(values.to(array.dtype), chosen, array.shape)
