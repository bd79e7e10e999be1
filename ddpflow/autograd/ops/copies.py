"""PyTorch's ``*_copy`` functions: what the views of the same name show, as copies with memory of their own."""

from ddpflow.autograd.ops.arrange import clone
from ddpflow.autograd.ops.casting import cast
from ddpflow.autograd.ops.diagonals import diagonal
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.autograd.ops.indexing import getitem
from ddpflow.autograd.ops.joining import split, unbind
from ddpflow.autograd.ops.shape import expand, permute, reshape, squeeze, t, transpose, unfold, unsqueeze, view
from ddpflow.dtype import as_numpy
from ddpflow.errors import ShapeError

__all__ = [
    "alias_copy",
    "diagonal_copy",
    "expand_copy",
    "permute_copy",
    "slice_copy",
    "split_copy",
    "split_with_sizes_copy",
    "squeeze_copy",
    "sum_to_size",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_copy",
    "unsqueeze_copy",
    "view_copy",
]


def alias_copy(input):
    """A copy."""
    return clone(input)


def diagonal_copy(input, offset=0, dim1=0, dim2=1):
    """A copy of a diagonal; see `diagonal`."""
    return clone(diagonal(input, offset, dim1, dim2))


def expand_copy(input, size, *, implicit=False):
    """A copy of the tensor expanded; see `expand`."""
    return clone(expand(input, *size))


def permute_copy(input, dims):
    """A copy with the dimensions in another order; see `permute`."""
    return clone(permute(input, dims))


def slice_copy(input, dim=0, start=None, end=None, step=1):
    """A copy of the slices ``start:end:step`` along a dimension."""
    place = (slice(None),) * axis_of(dim, input.array.ndim) + (slice(start, end, step),)
    return clone(getitem(input, place))


def split_copy(input, split_size, dim=0):
    """Copies of the pieces that `split` gives."""
    return tuple([clone(piece) for piece in split(input, split_size, dim)])


def split_with_sizes_copy(input, split_sizes, dim=0):
    """Copies of the pieces of the given sizes; see `split`."""
    return split_copy(input, tuple(split_sizes), dim)


def squeeze_copy(input, dim=None):
    """A copy without dimensions of length 1; see `squeeze`."""
    return clone(squeeze(input, dim))


def t_copy(input):
    """A copy of the transposed matrix; see `t`."""
    return clone(t(input))


def transpose_copy(input, dim0, dim1):
    """A copy with two dimensions exchanged; see `transpose`."""
    return clone(transpose(input, dim0, dim1))


def unbind_copy(input, dim=0):
    """Copies of the slices along a dimension; see `unbind`."""
    return tuple([clone(part) for part in unbind(input, dim)])


def unfold_copy(input, dimension, size, step):
    """A copy of the windows along a dimension; see `unfold`."""
    return clone(unfold(input, dimension, size, step))


def unsqueeze_copy(input, dim):
    """A copy with a new dimension of length 1; see `unsqueeze`."""
    return clone(unsqueeze(input, dim))


def view_copy(input, size):
    """A copy in another shape, or of the same bytes as another dtype; see `view`."""
    if isinstance(size, (tuple, list)):
        return clone(reshape(input, size))
    wanted = as_numpy(size)
    return cast(input, wanted) if wanted == input.array.dtype else clone(view(input, size))


def sum_to_size(input, *size):
    """The sum over the dimensions along which a tensor of the given shape was broadcast to this one's.

    Raises:
        ShapeError: When such a tensor does not broadcast to this one's shape.
    """
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    held = input.array.shape
    lead = len(held) - len(shape)
    fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, held[lead:], strict=True))
    if not fits:
        raise ShapeError(f"sum_to_size(): shape {tuple(shape)} does not broadcast to {tuple(held)}")
    axes = [*range(lead), *[i + lead for i, n in enumerate(shape) if n == 1 and held[i + lead] != 1]]
    return reshape(input.sum(axes, keepdim=True), shape) if axes else clone(input)
