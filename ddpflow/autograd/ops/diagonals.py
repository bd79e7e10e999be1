"""Diagonals and triangles of matrices."""

from ddpflow.autograd.op import apply, op
from ddpflow.autograd.ops.arrange import clone
from ddpflow.autograd.ops.extents import dims_of
from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.ops.padding import constant_pad
from ddpflow.autograd.ops.shape import reshape
from ddpflow.errors import ShapeError

__all__ = ["block_diag", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "tril", "triu"]


@op(samples=[((3, 4), 0, 0, 1), ((2, 3, 4), 1, -1, 0), ((4, 3), -2, 1, 0)], view=True, tensors=1)
def diagonal(xp, input, offset=0, dim1=0, dim2=1):
    """The diagonal of the matrices in two dimensions, as the last dimension.

    Raises:
        ShapeError: When the two dimensions are the same.
    """
    dim1, dim2 = dims_of((dim1, dim2), input.ndim)
    shape = input.shape
    found = xp.diagonal(input, offset, dim1, dim2)
    if getattr(getattr(input, "flags", None), "writeable", False):
        found.flags.writeable = True  # NumPy's is read-only only to warn those who expect a copy
    return found, (lambda g: apply(xp, _place_diagonal, g, shape, offset, dim1, dim2),)


@op(samples=[((3,), (3, 4), 0, 0, 1), ((3, 1), (2, 3, 4), 1, 2, 0)], tensors=1, name="place_diagonal")
def _place_diagonal(xp, input, shape, offset, dim1, dim2):
    """Zeros of a shape whose `diagonal` is the input."""
    full = xp.zeros(shape, input.dtype)
    apply(xp, diagonal, full, offset, dim1, dim2)[...] = input
    return full, (lambda g: apply(xp, diagonal, g, offset, dim1, dim2),)


@op(samples=[((3, 4),), ((2, 3, 3), 1), ((4, 3), -1)], tensors=1)
def tril(xp, input, diagonal=0):
    """The lower triangle of the last two dimensions, zeros above; ``diagonal`` moves the border up."""
    if input.ndim < 2:
        raise ShapeError(f"tril() needs at least two dimensions, not shape {tuple(input.shape)}")
    return xp.tril(input, diagonal), (lambda g: xp.tril(g, diagonal),)


@op(samples=[((3, 4),), ((2, 3, 3), 1), ((4, 3), -1)], tensors=1)
def triu(xp, input, diagonal=0):
    """The upper triangle of the last two dimensions, zeros below; ``diagonal`` moves the border up."""
    if input.ndim < 2:
        raise ShapeError(f"triu() needs at least two dimensions, not shape {tuple(input.shape)}")
    return xp.triu(input, diagonal), (lambda g: xp.triu(g, diagonal),)


def diag(input, diagonal=0):
    """A matrix with the vector on a diagonal, or the diagonal of a matrix as a vector (a copy).

    Raises:
        ShapeError: With neither one nor two dimensions.
    """
    if input.array.ndim not in (1, 2):
        raise ShapeError(f"diag() takes one or two dimensions, not shape {tuple(input.shape)}")
    return diag_embed(input, diagonal) if input.array.ndim == 1 else clone(_diagonal(input, diagonal))


_diagonal = diagonal


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices, in two new dimensions, with the last dimension on a diagonal."""
    shape = input.array.shape
    dim1, dim2 = dims_of((dim1, dim2), len(shape) + 1)
    size = shape[-1] + abs(offset)
    if dim1 > dim2:
        dim1, dim2, offset = dim2, dim1, -offset
    full = list(shape[:-1])
    full.insert(dim1, size)
    full.insert(dim2, size)
    return _place_diagonal(input, tuple(full), offset, dim1, dim2)


def diagflat(input, offset=0):
    """A matrix with all elements, in order, on a diagonal."""
    return diag_embed(reshape(input, (-1,)), offset)


def block_diag(*tensors):
    """A matrix with matrices along its diagonal and zeros elsewhere; vectors count as rows."""
    blocks = [reshape(x, (1,) * (2 - x.array.ndim) + tuple(x.array.shape)) for x in tensors]
    if any(x.array.ndim > 2 for x in blocks):
        raise ShapeError(f"block_diag() takes at most two dimensions, not {[tuple(x.shape) for x in tensors]}")
    width = sum([x.array.shape[1] for x in blocks])
    rows, left = [], 0
    for x in blocks:
        n = x.array.shape[1]
        rows.append(constant_pad(x, ((0, 0), (left, width - left - n))))
        left += n
    return cat(rows, 0)


def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy with a diagonal replaced.

    Raises:
        ShapeError: When the source has not the diagonal's shape.
    """
    result = clone(input)
    place = _diagonal(result, offset, dim1, dim2)
    if place.array.shape != src.array.shape:
        raise ShapeError(f"diagonal_scatter(): source of shape {tuple(src.shape)}, expected {tuple(place.shape)}")
    place.copy_(src)
    return result
