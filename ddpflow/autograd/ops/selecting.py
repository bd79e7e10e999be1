"""Reading along a dimension or under a mask, writing whole slices or under a mask."""

import math

from ddpflow.autograd.kernels.accumulate import accumulate
from ddpflow.autograd.kernels.choose import choose
from ddpflow.autograd.op import Bools, Ints, apply, op
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.autograd.ops.gathering import checked_index, gather
from ddpflow.autograd.ops.indexing import getitem, index_put
from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.ops.shape import broadcast_shapes, broadcast_to, reshape
from ddpflow.device import array_module, unwrap
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError

__all__ = [
    "argwhere",
    "fill",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "narrow",
    "narrow_copy",
    "nonzero",
    "nonzero_static",
    "put",
    "repeat_interleave",
    "select",
    "select_scatter",
    "slice_scatter",
    "take",
    "take_along_dim",
]


def _along(dim, part):
    return (slice(None),) * dim + (part,)


# --- whole slices by number ---


@op(
    samples=[((3, 4), 0, Ints((5,), 3)), ((2, 3, 4), 1, Ints((4,), 3)), ((3, 4), 1, Ints((2,), 4))],
    tensors=1,
    name="index_select",
)
def _index_select(xp, a, dim, index):
    """The slices with the given numbers along a dimension."""
    length = a.shape[dim]
    return a.take(index, dim), (lambda g: apply(xp, _place_slices, g, dim, index, length),)


@op(samples=[((5, 4), 0, Ints((5,), 3), 3), ((2, 4, 2), 1, Ints((4,), 3), 3)], tensors=1, name="place_slices")
def _place_slices(xp, g, dim, index, length):
    """Zeros with slices added at the given numbers along a dimension."""
    if dim == 0:
        rows = g.reshape(g.shape[0], math.prod(g.shape[1:]))
        out = accumulate(xp, length, index, rows).reshape((length, *g.shape[1:]))
    else:
        moved = xp.moveaxis(g, dim, 0)
        rows = moved.reshape(moved.shape[0], math.prod(moved.shape[1:]))
        out = xp.moveaxis(accumulate(xp, length, index, rows).reshape((length, *moved.shape[1:])), 0, dim)
    return out, (lambda h: apply(xp, _index_select, h, dim, index),)


def index_select(input, dim, index):
    """The slices with the given numbers (a vector) along a dimension, as a copy.

    Raises:
        IndexRangeError: When a number is out of range.
        ShapeError: When the index has more than one dimension.
    """
    array = input.array
    index, dim = array_module(array).asarray(unwrap(index)), axis_of(dim, array.ndim)
    if index.ndim > 1:
        raise ShapeError(f"index_select() takes a vector of indices, not shape {tuple(index.shape)}")
    index = checked_index("index_select", array_module(array), index, array.shape[dim] if array.ndim else 1, dim)
    index = index.reshape(-1).copy()
    if not array.ndim:
        return reshape(_index_select(reshape(input, (1,)), 0, index), ())
    return _index_select(input, dim, index)


def _slices(name, input, dim, index):
    """The checked dimension and vector of indices of the functions that write whole slices."""
    array = input.array
    index, dim = array_module(array).asarray(unwrap(index)), axis_of(dim, array.ndim)
    if index.ndim > 1:
        raise ShapeError(f"{name}() takes a vector of indices, not shape {tuple(index.shape)}")
    index = checked_index(name, array_module(array), index, array.shape[dim] if array.ndim else 1, dim)
    return dim, index.reshape(-1).copy()


def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Each slice along a dimension (of the flattened tensor, without one) repeated, as often as ``repeats`` says.

    Args:
        input: The tensor; alone, it is the repeats, and the result the numbers to repeat by.
        repeats: A number, or a vector with one for each slice.
        dim: The dimension.
        output_size: Accepted; the length of the result.

    Raises:
        ShapeError: When there is not one repeat for each slice, or one is negative.
    """
    if repeats is None:
        return repeat_interleave(input.new_tensor(list(range(input.array.size))), input)
    if dim is None:
        input, dim = reshape(input, (-1,)), 0
    elif not input.array.ndim:
        axis_of(dim, 0)
        input, dim = reshape(input, (1,)), 0
    dim = axis_of(dim, input.array.ndim)
    counts = unwrap(repeats)
    length = input.array.shape[dim]
    xp = array_module(input.array)
    counts = xp.asarray(counts).reshape(-1)
    if counts.size not in (1, length) or (counts.size and int(counts.min()) < 0):
        raise ShapeError(
            f"repeat_interleave() needs one repeat >= 0 for each of {length} slices, not {counts.tolist()}"
        )
    return _index_select(input, dim, xp.repeat(xp.arange(length), xp.broadcast_to(counts, (length,))))


def index_add(input, dim, index, source, *, alpha=1):
    """A copy with slices of ``source`` (times ``alpha``) added at the given numbers along a dimension.

    Raises:
        IndexRangeError: When a number is out of range.
        ShapeError: When the source does not fit.
    """
    dim, index = _slices("index_add", input, dim, index)
    if not input.array.ndim:
        return input + (reshape(source, (-1,)) * alpha).sum()
    wanted = (*input.array.shape[:dim], len(index), *input.array.shape[dim + 1 :])
    if tuple(source.array.shape) != wanted:
        raise ShapeError(f"index_add(): source of shape {tuple(source.shape)}, expected {wanted}")
    source = source if alpha == 1 else source * alpha
    return input + _place_slices(source.to(input.array.dtype), dim, index, input.array.shape[dim])


def index_copy(input, dim, index, source):
    """A copy with slices of ``source`` written at the given numbers along a dimension."""
    dim, index = _slices("index_copy", input, dim, index)
    result = input.clone()
    if not input.array.ndim:
        result[...] = reshape(source, ())
    else:
        result[_along(dim, index)] = source
    return result


def fill(input, value):
    """One value (a number or a 0-d tensor) in the shape of a tensor."""
    return input.clone().fill_(value)


def index_fill(input, dim, index, value):
    """A copy with one value written to the slices of the given numbers along a dimension."""
    dim, index = _slices("index_fill", input, dim, index)
    result = input.clone()
    result[_along(dim, index) if input.array.ndim else ...] = value
    return result


# --- one element for each index ---


def take_along_dim(input, indices, dim=None):
    """What `gather` gives, after the two were broadcast together; without ``dim`` on the flattened tensor."""
    if dim is None:
        return gather(reshape(input, (-1,)), 0, reshape(indices, (-1,)))
    a, b = input.array.shape, unwrap(indices).shape
    if len(a) != len(b):
        raise ShapeError(f"take_along_dim() needs equal numbers of dimensions, not shapes {tuple(a)} and {tuple(b)}")
    dim = axis_of(dim, len(a))
    common = broadcast_shapes((*a[:dim], 1, *a[dim + 1 :]), (*b[:dim], 1, *b[dim + 1 :])) if a else ()
    if not a:
        return gather(input, 0, indices)
    raw = unwrap(indices)
    if raw.size and int(raw.min()) < 0 <= int(raw.min()) + a[dim]:
        indices = indices % a[dim]  # unlike gather, this takes numbers from the end
    input = broadcast_to(input, (*common[:dim], a[dim], *common[dim + 1 :]))
    return gather(input, dim, broadcast_to(indices, (*common[:dim], b[dim], *common[dim + 1 :])))


def take(input, index):
    """The elements at places of the flattened tensor, in the index's shape."""
    return getitem(reshape(input, (-1,)), index if unwrap(index).ndim else reshape(index, (1,))).reshape(
        unwrap(index).shape
    )


def put(input, index, source, accumulate=False):
    """A copy with the elements of a source written (or added) at places of the flattened tensor.

    Raises:
        IndexRangeError: When a place is out of range.
        ShapeError: When the source has another number of elements than the index.
    """
    if unwrap(index).size != source.array.size:
        raise ShapeError(f"put(): {source.array.size} elements for {unwrap(index).size} places")
    flat = index_put(reshape(input, (-1,)), (reshape(index, (-1,)),), reshape(source, (-1,)), accumulate)
    return reshape(flat, tuple(input.array.shape))


# --- under a mask ---


@op(
    samples=[((3, 4), 2.5, Bools((3, 4))), ((3, 4), (), Bools((4,))), ((3, 1), -1.0, Bools((2, 1, 4)))],
    tensors=2,
    name="masked_fill",
)
def _masked_fill(xp, a, value, mask):
    """A value where the mask is true, the tensor elsewhere."""
    filler = value if not hasattr(value, "astype") else value.astype(a.dtype)
    return choose(xp, mask, filler, a).astype(a.dtype, copy=False), (
        lambda g: choose(xp, mask, 0, g),
        lambda g: choose(xp, mask, g, 0),
    )


def masked_fill(input, mask, value):
    """A copy with one value (a number or a 0-d tensor) where the mask is true; the two shapes broadcast.

    Raises:
        DtypeError: When the mask does not hold booleans.
        ShapeError: When the value is no single number.
    """
    if unwrap(mask).dtype.kind != "b":
        raise DtypeError(f"masked_fill() takes a mask of booleans, not {unwrap(mask).dtype}")
    if getattr(unwrap(value), "ndim", 0):
        raise ShapeError(f"masked_fill() fills with one number, not with a tensor of shape {tuple(value.shape)}")
    return _masked_fill(input, value, mask)


def masked_select(input, mask):
    """The elements where the mask is true, as a vector; the two shapes broadcast."""
    raw = unwrap(mask)
    if raw.dtype.kind != "b":
        raise DtypeError(f"masked_select() takes a mask of booleans, not {raw.dtype}")
    shape = broadcast_shapes(input.array.shape, raw.shape)
    return reshape(getitem(broadcast_to(input, shape), broadcast_to(mask, shape)), (-1,))


def masked_scatter(input, mask, source):
    """A copy with the elements of a source, in order, written where the mask is true.

    Raises:
        ShapeError: When the source has too few elements.
    """
    shape = broadcast_shapes(input.array.shape, mask.array.shape)
    full = broadcast_to(mask, shape)
    count = int(full.array.sum())
    if source.array.size < count:
        raise ShapeError(f"masked_scatter() has {source.array.size} elements for {count} places")
    result = broadcast_to(input, shape).clone()
    if count:
        result[full] = reshape(source, (-1,))[:count]
    return result


@op(samples=[(Bools((3, 4)),), (Bools(()),)], differentiable=False)
def argwhere(xp, input):
    """The indices of all elements that are not zero, one row each."""
    return xp.argwhere(input)


def nonzero(input, *, as_tuple=False):
    """The indices of all elements that are not zero: one row each, or one vector for each dimension."""
    if not as_tuple:
        return argwhere(input)
    return argwhere(input if input.array.ndim else reshape(input, (1,))).unbind(1)


def nonzero_static(input, *, size, fill_value=-1):
    """The first ``size`` rows of `nonzero`, filled up with ``fill_value``."""
    found = argwhere(input)[:size]
    missing = size - found.array.shape[0]
    return cat([found, found.new_full((missing, found.array.shape[1]), fill_value)]) if missing else found


# --- a part, as a view or replaced ---


def select(input, dim, index):
    """The slice with one number along a dimension, which disappears; a view.

    Raises:
        IndexRangeError: When it is out of range.
    """
    array = input.array
    if not array.ndim:
        raise IndexRangeError("select() needs a tensor with dimensions")
    dim, index = axis_of(dim, array.ndim), int(index)
    if not -array.shape[dim] <= index < array.shape[dim]:
        raise IndexRangeError(f"select(): index {index} is out of range for length {array.shape[dim]}, dimension {dim}")
    return getitem(input, _along(dim, index))


def narrow(input, dim, start, length):
    """``length`` slices along a dimension from ``start`` on; a view.

    Raises:
        IndexRangeError: When the start is out of range.
        ShapeError: When there are fewer slices than that.
    """
    array = input.array
    if not array.ndim:
        raise ShapeError("narrow() needs a tensor with dimensions")
    dim, start, length = axis_of(dim, array.ndim), int(start), int(length)
    size = array.shape[dim]
    if not -size <= start <= size:
        raise IndexRangeError(f"narrow(): start {start} is out of range for length {size}, dimension {dim}")
    start += size if start < 0 else 0
    if length < 0 or start + length > size:
        raise ShapeError(f"narrow(): {start} + {length} exceeds length {size}, dimension {dim} of {tuple(array.shape)}")
    return getitem(input, _along(dim, slice(start, start + length)))


def narrow_copy(input, dim, start, length):
    """``length`` slices along a dimension from ``start`` on; a copy."""
    return narrow(input, dim, start, length).clone()


def select_scatter(input, src, dim, index):
    """A copy with one slice along a dimension replaced."""
    part = select(input, dim, index)
    if part.array.shape != src.array.shape:
        raise ShapeError(f"select_scatter(): source of shape {tuple(src.shape)}, expected {tuple(part.shape)}")
    result = input.clone()
    result[_along(axis_of(dim, input.array.ndim), int(index))] = src
    return result


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy with the slices ``start:end:step`` along a dimension replaced."""
    result = input.clone()
    place = _along(axis_of(dim, input.array.ndim), slice(start, end, step))
    if input.array[place].shape != src.array.shape:
        raise ShapeError(f"slice_scatter(): source of shape {tuple(src.shape)}, expected {input.array[place].shape}")
    result[place] = src
    return result
