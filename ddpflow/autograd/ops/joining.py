"""Tensors joined into one, and one taken apart into several."""

from functools import reduce
from itertools import accumulate

from ddpflow.autograd.op import op
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.autograd.ops.shape import atleast_1d, atleast_2d, atleast_3d, flatten, reshape
from ddpflow.device import unwrap
from ddpflow.dtype import promote_types
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError

__all__ = [
    "cat",
    "chunk",
    "column_stack",
    "concat",
    "concatenate",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "row_stack",
    "split",
    "split_with_sizes",
    "stack",
    "tensor_split",
    "unbind",
    "unsafe_chunk",
    "unsafe_split",
    "vsplit",
    "vstack",
]


def _along(dim, part):
    """The index that takes ``part`` of dimension ``dim``."""
    return (slice(None),) * dim + (part,)


@op(
    samples=[
        ((2, 3), (2, 3), {"dim": 0}),
        ((2, 1), (2, 3), (2, 2), {"dim": 1}),
        ((3,), {"dim": 0}),
        ((0, 2), (1, 2), {"dim": 0}),
    ],
    name="cat",
)
def _cat(xp, *xs, dim):
    """Tensors one after another along a dimension."""
    ends = list(accumulate([x.shape[dim] for x in xs]))
    starts = [0, *ends[:-1]]

    def vjp(g):
        return [g[_along(dim, slice(a, b))] for a, b in zip(starts, ends, strict=True)]

    return xp.concatenate(xs, dim), vjp


def cat(tensors, dim=0, *, axis=None):
    """The tensors one after another along a dimension; all other sizes must be equal.

    Raises:
        ShapeError: When they differ in another dimension or in the number of dimensions.
        ValueRangeError: When there is none.
    """
    tensors = list(tensors)
    if not tensors:
        raise ValueRangeError("cat() needs at least one tensor")
    arrays = [unwrap(x) for x in tensors]
    first = arrays[0]
    ndim = max([x.ndim for x in arrays]) if len(arrays) > 1 else first.ndim
    dim = axis_of(dim if axis is None else axis, ndim)
    if min([x.ndim for x in arrays]) != ndim:
        # An empty vector beside larger tensors counts for nothing, as it always did in PyTorch.
        tensors = [t for t, x in zip(tensors, arrays, strict=True) if x.shape != (0,)]
    elif not ndim:
        raise ShapeError("cat() takes tensors with dimensions; stack() joins 0-d ones")
    return _cat(*_one_dtype(tensors), dim=dim)


def _one_dtype(tensors):
    """The tensors, cast to the dtype that PyTorch gives to all of them together where they differ."""
    dtype = unwrap(tensors[0]).dtype
    if all(unwrap(x).dtype == dtype for x in tensors):
        return tensors
    dtype = reduce(promote_types, [unwrap(x).dtype for x in tensors])
    return [x.to(dtype=dtype) for x in tensors]


def concat(tensors, dim=0, *, axis=None):
    """The tensors one after another along a dimension: `cat` under another name."""
    return cat(tensors, dim, axis=axis)


def concatenate(tensors, dim=0, *, axis=None):
    """The tensors one after another along a dimension: `cat` under NumPy's name."""
    return cat(tensors, dim, axis=axis)


@op(
    samples=[((2, 3), (2, 3), {"dim": 0}), ((2,), (2,), (2,), {"dim": 1}), ((), (), {"dim": 0})],
    name="stack",
)
def _stack(xp, *xs, dim):
    """Tensors of one shape side by side along a new dimension."""
    count = len(xs)

    def vjp(g):
        return [g[_along(dim, i)] for i in range(count)]

    return xp.concatenate([x[_along(dim, None)] for x in xs], dim), vjp


def stack(tensors, dim=0):
    """The tensors, all of one shape, side by side along a new dimension.

    Raises:
        ShapeError: When shapes differ.
        ValueRangeError: When there is none.
    """
    tensors = list(tensors)
    if not tensors:
        raise ValueRangeError("stack() needs at least one tensor")
    shape = unwrap(tensors[0]).shape
    for x in tensors:
        if unwrap(x).shape != shape:
            raise ShapeError(
                f"stack() needs equal shapes, not {', '.join([str(tuple(unwrap(x).shape)) for x in tensors])}"
            )
    return _stack(*_one_dtype(tensors), dim=axis_of(dim, len(shape) + 1))


@op(
    samples=[((5, 2), (2, 3), 0), ((2, 4), (1, 1, 2), 1), ((3,), (0, 3), 0)],
    view=True,
    tensors=1,
    several=True,
    name="split",
)
def _split(xp, a, lengths, dim):
    """Pieces of the given lengths along a dimension."""
    ends = list(accumulate(lengths))
    outs = tuple([a[_along(dim, slice(end - n, end))] for n, end in zip(lengths, ends, strict=True)])
    shapes, dtype = [out.shape for out in outs], a.dtype

    def vjp(*gs):
        return xp.concatenate([xp.zeros(s, dtype) if g is None else g for g, s in zip(gs, shapes, strict=True)], dim)

    return outs, (vjp,)


def split(tensor, split_size_or_sections=None, dim=0, *, split_size=None):
    """Pieces along a dimension: all of one size (the last may be smaller), or of the sizes in a list.

    Raises:
        ShapeError: When listed sizes do not add up to the length, or the size is not positive.
    """
    wanted = split_size if split_size_or_sections is None else split_size_or_sections
    shape = tensor.array.shape
    if not shape:
        raise ShapeError("split() needs a tensor with dimensions")
    dim = axis_of(dim, len(shape))
    length = shape[dim]
    if isinstance(wanted, (tuple, list)):
        lengths = tuple([n.__index__() for n in wanted])
        if sum(lengths) != length or any(n < 0 for n in lengths):
            raise ShapeError(
                f"split(): sizes {list(lengths)} do not add up to {length}, dimension {dim} of {tuple(shape)}"
            )
    else:
        size = wanted.__index__()
        if size <= 0 and (size < 0 or length):
            raise ShapeError(f"split() needs a size above 0, not {size}")
        full, rest = divmod(length, size) if size else (1, 0)
        lengths = (size,) * full + ((rest,) if rest or not full else ())
    return _split(tensor, lengths, dim)


def split_with_sizes(input, split_sizes, dim=0):
    """Pieces of the given sizes along a dimension."""
    return split(input, tuple(split_sizes), dim)


def unsafe_split(tensor, split_size, dim=0):
    """Pieces along a dimension: `split` under the name of PyTorch's unchecked form."""
    return split(tensor, split_size, dim)


def chunk(input, chunks, dim=0):
    """At most ``chunks`` pieces of equal size along a dimension; the last may be smaller.

    Raises:
        ShapeError: When the number is not positive.
    """
    if chunks <= 0:
        raise ShapeError(f"chunk() needs a number of chunks above 0, not {chunks}")
    dim = axis_of(dim, input.array.ndim)
    if not input.array.ndim:
        raise ShapeError("chunk() needs a tensor with dimensions")
    length = input.array.shape[dim]
    size = -(-length // chunks)
    return split(input, size, dim) if size else split(input, [0] * chunks, dim)


def unsafe_chunk(input, chunks, dim=0):
    """Pieces of equal size along a dimension: `chunk` under the name of PyTorch's unchecked form."""
    return chunk(input, chunks, dim)


def tensor_split(input, indices_or_sections, dim=0):
    """Pieces along a dimension: a number of nearly equal ones (longer ones first), or cut before the given indices.

    Raises:
        ShapeError: When the number is not positive, or the tensor has no dimensions.
    """
    if not input.array.ndim:
        raise ShapeError("tensor_split() needs a tensor with dimensions")
    dim = axis_of(dim, input.array.ndim)
    length = input.array.shape[dim]
    if hasattr(indices_or_sections, "array"):
        indices_or_sections = indices_or_sections.array.tolist()
    if not isinstance(indices_or_sections, (tuple, list)):
        count = indices_or_sections.__index__()
        if count <= 0:
            raise ShapeError(f"tensor_split() needs a number of pieces above 0, not {count}")
        small, longer = divmod(length, count)
        return _split(input, (small + 1,) * longer + (small,) * (count - longer), dim)
    # Like slices, the cuts may lie outside or go backwards: every piece is input[start:end].
    cuts = [slice(None, cut).indices(length)[1] for cut in indices_or_sections]
    starts, ends = [0, *cuts], [*cuts, length]
    if all(a <= b for a, b in zip(starts, ends, strict=True)):
        return _split(input, tuple([b - a for a, b in zip(starts, ends, strict=True)]), dim)
    return tuple([input[_along(dim, slice(a, max(a, b)))] for a, b in zip(starts, ends, strict=True)])


def hsplit(input, indices_or_sections):
    """Pieces along the second dimension (of a vector: the first)."""
    return _even_split("hsplit", input, indices_or_sections, 1, 0 if input.array.ndim == 1 else 1)


def vsplit(input, indices_or_sections):
    """Pieces along the first dimension of a tensor with at least two."""
    return _even_split("vsplit", input, indices_or_sections, 2, 0)


def dsplit(input, indices_or_sections):
    """Pieces along the third dimension."""
    return _even_split("dsplit", input, indices_or_sections, 3, 2)


def _even_split(name, input, parts, ndim, dim):
    shape = input.array.shape
    if len(shape) < ndim:
        raise ShapeError(f"{name}() needs at least {ndim} dimensions, not shape {tuple(shape)}")
    if not isinstance(parts, (tuple, list)) and (parts <= 0 or shape[dim] % parts):
        raise ShapeError(
            f"{name}() cannot divide length {shape[dim]} of shape {tuple(shape)} into {parts} equal pieces"
        )
    return tensor_split(input, parts, dim)


@op(samples=[((3, 2), 0), ((2, 4), 1), ((3,), 0)], view=True, tensors=1, several=True, name="unbind")
def _unbind(xp, a, dim):
    """The slices along a dimension; one gradient for all of them."""
    outs = tuple([a[_along(dim, i)] for i in range(a.shape[dim])])
    shape, dtype = a.shape[:dim] + a.shape[dim + 1 :], a.dtype

    def vjp(*gs):
        return xp.stack([xp.zeros(shape, dtype) if g is None else g for g in gs], dim)

    return outs, (vjp,)


def unbind(input, dim=0):
    """The slices along a dimension, which disappears: what iterating over a tensor gives.

    Raises:
        DtypeError: For a 0-d tensor.
    """
    if not input.array.ndim:
        raise DtypeError("a 0-d tensor cannot be taken apart or iterated over")
    return _unbind(input, axis_of(dim, input.array.ndim))


def _each(tensors, lift):
    tensors = list(tensors)
    if not tensors:
        raise ValueRangeError("there must be at least one tensor to join")
    return [lift(x) for x in tensors]


def hstack(tensors):
    """The tensors side by side: along the second dimension, vectors along their only one."""
    lifted = _each(tensors, atleast_1d)
    return cat(lifted, 0 if lifted[0].array.ndim == 1 else 1)


def vstack(tensors):
    """The tensors on top of each other: along the first dimension, vectors as rows."""
    return cat(_each(tensors, atleast_2d), 0)


def row_stack(tensors):
    """The tensors on top of each other: `vstack` under another name."""
    return vstack(tensors)


def dstack(tensors):
    """The tensors behind each other: along the third dimension."""
    return cat(_each(tensors, atleast_3d), 2)


def column_stack(tensors):
    """The tensors side by side along the second dimension, vectors as columns."""
    return cat(_each(tensors, lambda x: x if x.array.ndim > 1 else reshape(flatten(x), (-1, 1))), 1)
