"""The operations on shape, order and places as tensor methods, under PyTorch's names."""

from typing import Any

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.ops import (
    arrange,
    copies,
    diagonals,
    gathering,
    indexing,
    joining,
    sampling,
    scattering,
    selecting,
    shape,
    sorting,
    strided,
)

__all__ = ["ShapeMethods"]


class ShapeMethods(TensorBase):
    """The methods of `ddpflow.autograd.ops`' shape, joining, arrange and sampling families, bound."""

    __slots__ = ()

    # shape
    T = property(shape.reverse_dims)
    mT = property(shape.matrix_transpose)
    H = mH = property(shape.adjoint)
    adjoint = shape.adjoint
    reshape = shape.reshape
    reshape_as = shape.reshape_as
    view = shape.view
    view_as = shape.view_as
    permute = shape.permute
    transpose = shape.transpose
    t = shape.t
    swapaxes = shape.swapaxes
    swapdims = shape.swapdims
    movedim = shape.movedim
    moveaxis = shape.moveaxis
    broadcast_to = shape.broadcast_to
    expand = shape.expand
    expand_as = shape.expand_as
    squeeze = shape.squeeze
    unsqueeze = shape.unsqueeze
    flatten = shape.flatten
    unflatten = shape.unflatten
    ravel = shape.ravel
    diagonal = diagonals.diagonal
    unfold = shape.unfold
    as_strided = strided.as_strided

    # taking apart
    split = joining.split
    split_with_sizes = joining.split_with_sizes
    unsafe_split = joining.unsafe_split
    chunk = joining.chunk
    unsafe_chunk = joining.unsafe_chunk
    tensor_split = joining.tensor_split
    hsplit = joining.hsplit
    vsplit = joining.vsplit
    dsplit = joining.dsplit
    unbind = joining.unbind

    def __iter__(self) -> Any:
        return iter(joining.unbind(self))

    # parts
    __getitem__ = indexing.getitem
    index_put = indexing.index_put
    index_select = selecting.index_select
    index_add = selecting.index_add
    index_copy = selecting.index_copy
    index_fill = selecting.index_fill
    index_reduce = scattering.index_reduce
    repeat_interleave = selecting.repeat_interleave
    put = selecting.put
    sum_to_size = copies.sum_to_size
    gather = gathering.gather
    take_along_dim = selecting.take_along_dim
    take = selecting.take
    select = selecting.select
    narrow = selecting.narrow
    narrow_copy = selecting.narrow_copy
    select_scatter = selecting.select_scatter
    slice_scatter = selecting.slice_scatter
    diagonal_scatter = diagonals.diagonal_scatter
    masked_fill = selecting.masked_fill
    masked_select = selecting.masked_select
    masked_scatter = selecting.masked_scatter
    nonzero = selecting.nonzero
    nonzero_static = selecting.nonzero_static
    argwhere = selecting.argwhere
    scatter = scattering.scatter
    scatter_add = scattering.scatter_add
    scatter_reduce = scattering.scatter_reduce

    # order of values
    sort = sorting.sort
    argsort = sorting.argsort
    msort = sorting.msort
    topk = sorting.topk
    kthvalue = sorting.kthvalue
    unique = sorting.unique
    unique_consecutive = sorting.unique_consecutive
    bincount = sorting.bincount
    histc = sorting.histc

    def __contains__(self, element: Any) -> bool:
        return bool((self == element).any())

    # order, repetition, triangles
    clone = arrange.clone
    contiguous = arrange.contiguous
    flip = arrange.flip
    fliplr = arrange.fliplr
    flipud = arrange.flipud
    roll = arrange.roll
    rot90 = arrange.rot90
    repeat = arrange.repeat
    tile = arrange.tile
    tril = diagonals.tril
    triu = diagonals.triu
    diag = diagonals.diag
    diag_embed = diagonals.diag_embed
    diagflat = diagonals.diagflat

    # sampling
    bernoulli = sampling.bernoulli
    multinomial = sampling.multinomial
