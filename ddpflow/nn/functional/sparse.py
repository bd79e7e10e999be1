"""Sums, means and maxima of rows of a table."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops.lookup import embedding
from ddpflow.autograd.ops.scattering import scatter_reduce
from ddpflow.autograd.ops.selecting import index_add
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.errors import DtypeError, ValueRangeError

__all__ = ["embedding_bag"]


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """The sum, mean or maximum of several rows of a table for each bag.

    Args:
        input: Row numbers: bags as the rows of a matrix, or one bag after another.
        weight: The table, ``(rows, width)``.
        offsets: Where each bag starts, for an input of one dimension.
        max_norm: Rows longer than this are scaled down, in place, when looked up.
        norm_type: The norm's degree for ``max_norm``.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs.
        mode: ``"sum"``, ``"mean"`` or ``"max"``; an empty bag gives zeros.
        sparse: Accepted; gradients are always dense here.
        per_sample_weights: Scales the rows, of the input's shape; for ``"sum"`` only.
        include_last_offset: ``offsets`` also holds where the last bag ends.
        padding_idx: A row that does not take part.

    Raises:
        ValueRangeError: When shapes or options do not fit together.
        DtypeError: When the row numbers are no integers.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueRangeError(f"mode has to be one of sum, mean or max, not {mode!r}")
    if weight.ndim != 2:
        raise ValueRangeError(f"weight has to be a 2D Tensor, but got shape {tuple(weight.shape)}")
    if input.array.dtype.kind not in "iu":
        raise DtypeError(f"embedding_bag() takes integer row numbers, not {input.dtype}")
    if mode == "max" and (scale_grad_by_freq or sparse):
        raise ValueRangeError("max mode does not support scaling the gradient by the frequency, nor sparse weights")
    if per_sample_weights is not None:
        if mode != "sum":
            raise ValueRangeError(f"per_sample_weights is only supported for mode='sum', not {mode!r}")
        if per_sample_weights.shape != input.shape:
            raise ValueRangeError(
                f"per_sample_weights of shape {tuple(per_sample_weights.shape)} for an input of shape "
                f"{tuple(input.shape)}: they must have the same shape"
            )
        per_sample_weights = per_sample_weights.reshape(-1)
    bags, count = _bags(input, offsets, include_last_offset)
    rows = input.reshape(-1)
    if padding_idx is not None:
        kept = np.flatnonzero(rows.numpy(force=True) != padding_idx % weight.shape[0])
        chosen = wrap(array_module(rows.array).asarray(kept))
        bags, rows = bags[kept], rows[chosen]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[chosen]
    vectors = embedding(rows, weight, None, max_norm, norm_type, scale_grad_by_freq)
    if per_sample_weights is not None:
        vectors = vectors * per_sample_weights.unsqueeze(-1)
    xp = array_module(weight.array)
    index = wrap(xp.asarray(bags))
    empty = wrap(xp.zeros((count, weight.shape[1]), weight.array.dtype))
    if mode == "max":
        index = index.unsqueeze(-1).expand(-1, weight.shape[1])
        return scatter_reduce(empty, 0, index, vectors, "amax", include_self=False)
    total = index_add(empty, 0, index, vectors)
    if mode == "sum":
        return total
    sizes = np.maximum(np.bincount(bags, minlength=count), 1).reshape(-1, 1)
    return total / wrap(xp.asarray(sizes.astype(weight.array.dtype)))


def _bags(input: Any, offsets: Tensor | None, include_last_offset: bool) -> tuple[Any, int]:
    """The bag of each row number, as a NumPy array, and the number of bags."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueRangeError("if input is 2D, then offsets has to be None, as each row is a bag")
        count, length = input.shape
        return np.repeat(np.arange(count), length), count
    if input.ndim != 1:
        raise ValueRangeError(f"input has to be 1D or 2D Tensor, but got shape {tuple(input.shape)}")
    if offsets is None or offsets.ndim != 1:
        raise ValueRangeError("offsets has to be a 1D Tensor for an input of one dimension")
    starts = offsets.numpy(force=True).astype(np.int64)
    total = input.shape[0]
    if starts.size and (starts[0] != 0 or starts.max() > total or (np.diff(starts) < 0).any()):
        raise ValueRangeError(f"offsets must rise from 0 to at most {total}, not {starts.tolist()}")
    if include_last_offset:
        if not starts.size:
            raise ValueRangeError("include_last_offset: number of offset should be at least 1")
        starts = starts[:-1]
    ends = np.append(starts[1:], total) if starts.size else starts
    return np.repeat(np.arange(starts.size), ends - starts), int(starts.size)
