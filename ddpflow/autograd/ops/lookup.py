"""Tables: rows by number, and numbers as rows of ones and zeros."""

import math

import numpy as np

from ddpflow.autograd.kernels.accumulate import accumulate
from ddpflow.autograd.op import Ints, apply, op
from ddpflow.autograd.ops.gathering import checked_index
from ddpflow.device import array_module, unwrap
from ddpflow.errors import DtypeError, ShapeError, UnsupportedDtypeError, ValueRangeError

__all__ = ["embedding", "one_hot"]

_SCALE = np.array([0.5, 2.0])  # a scale for each row, in test data


@op(samples=[((5, 3), Ints((4,), 5)), ((5, 3), Ints((2, 3), 5)), ((5, 3), Ints((), 5))], tensors=1, name="embedding")
def _embedding(xp, weight, index, padding_idx=None, scale=None):
    """The table's rows with the given numbers; in the gradient each row may be scaled, and one left out."""
    count = weight.shape[0]
    return weight.take(index, 0), (lambda g: apply(xp, _place_rows, g, index, count, padding_idx, scale),)


@op(
    samples=[
        ((4, 3), Ints((4,), 5), 5),
        ((4, 3), Ints((4,), 5), 5, 1),
        ((4, 3), Ints((4,), 2), 2, None, _SCALE),
    ],
    tensors=1,
    name="place_rows",
)
def _place_rows(xp, g, index, count, padding_idx=None, scale=None):
    """Rows, each times its number's scale, added up by number into a table of zeros: the gradient of `embedding`."""
    width = math.prod(g.shape[index.ndim :])
    out = accumulate(xp, count, index.reshape(-1), g.reshape(index.size, width))
    if scale is not None:
        out = out * scale[:, None].astype(out.dtype)
    out = out.reshape((count, *g.shape[index.ndim :]))
    if padding_idx is not None:
        out[padding_idx] = 0

    def vjp(h):
        picked = apply(xp, _embedding, h, index)
        if padding_idx is not None:
            picked = xp.where((index == padding_idx)[..., None], 0, picked)
        return picked if scale is None else picked * scale[index][..., None]

    return out, (vjp,)


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of a table with the given numbers (PyTorch's ``F.embedding``).

    Args:
        input: Integers of any shape.
        weight: The table, shape (rows, width).
        padding_idx: A row that gets no gradient.
        max_norm: First scale down, in place, the used rows whose norm is larger.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide each row's gradient by how often it was used.
        sparse: Accepted; gradients are always dense.

    Raises:
        DtypeError: When the numbers are not integers.
        IndexRangeError: When one is not a row of the table.
        ValueRangeError: When ``padding_idx`` is not a row of the table.
    """
    index, table = unwrap(input), weight.array
    if index.dtype.kind not in "iu":
        raise UnsupportedDtypeError(f"embedding() takes integer indices, not {index.dtype}; call long() on them")
    if table.ndim != 2:
        raise ShapeError(f"embedding() takes a table of two dimensions, not shape {tuple(table.shape)}")
    rows = table.shape[0]
    checked_index("embedding", array_module(table), index, rows, 0)
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ValueRangeError(f"embedding(): padding_idx {padding_idx} is not a row of a table of {rows} rows")
        padding_idx %= rows
    if max_norm is not None:
        _renormalise(weight, index, max_norm, norm_type)
    scale = None
    if scale_grad_by_freq:
        xp = array_module(table)
        scale = (1 / xp.maximum(xp.bincount(index.reshape(-1), minlength=rows), 1)).astype(table.dtype)
    return _embedding(weight, input, padding_idx, scale)


def _renormalise(weight, index, max_norm, norm_type):
    """Scale the used rows of a table down to a norm, in place, outside the graph."""
    table = weight.array
    xp = array_module(table)
    used = xp.unique(index)
    rows = table[used]
    norms = xp.linalg.norm(rows, norm_type, 1, keepdims=True)
    table[used] = xp.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
    weight.bump_version()


@op(samples=[(Ints((2, 3), 4), 4), (Ints((), 3), 5)], differentiable=False, tensors=1, name="one_hot")
def _one_hot(xp, a, num_classes):
    """Rows of zeros with a one at each element's number."""
    out = xp.zeros((a.size, num_classes), "int64")
    out[xp.arange(a.size), a.reshape(-1)] = 1
    return out.reshape((*a.shape, num_classes))


def one_hot(tensor, num_classes=-1):
    """For each integer a row of zeros with a one at its place (PyTorch's ``F.one_hot``).

    Args:
        tensor: Integers from 0 on, of any shape.
        num_classes: The length of the rows; -1 takes the largest number plus one.

    Raises:
        DtypeError: When they are not int64.
        ShapeError: When a number is negative or too large, or nothing tells the length.
    """
    array = tensor.array
    if array.dtype.kind not in "iu":
        raise DtypeError(f"one_hot() takes integers, not {array.dtype}")
    if not array.size and num_classes <= 0:
        raise ShapeError("one_hot() of nothing needs num_classes")
    high = int(array.max()) if array.size else 0
    if array.size and int(array.min()) < 0:
        raise ShapeError(f"one_hot(): class {int(array.min())} is negative")
    if num_classes != -1 and high >= num_classes:
        raise ShapeError(f"one_hot(): class {high} does not fit into {num_classes} classes")
    return _one_hot(tensor, high + 1 if num_classes == -1 else num_classes)
