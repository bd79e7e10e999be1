"""Distances and similarities of vectors, and vectors of length 1; PyTorch's names and arguments."""

import numpy as np

from ddpflow.autograd.autocast import in_float32
from ddpflow.autograd.ops.statistics import vector_norm
from ddpflow.errors import ShapeError

__all__ = ["cdist", "cosine_similarity", "normalize", "pairwise_distance", "pdist"]


@in_float32
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of ``x1 - x2 + eps`` over the last dimension (PyTorch's ``F.pairwise_distance``)."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along a dimension; lengths count as at least ``eps``."""
    try:
        shape = np.broadcast_shapes(x1.shape, x2.shape)
    except ValueError:
        raise ShapeError(
            f"cosine_similarity(): shapes {tuple(x1.shape)} and {tuple(x2.shape)} do not broadcast"
        ) from None
    x1, x2 = x1.expand(*shape), x2.expand(*shape)
    length1, length2 = vector_norm(x1, 2, dim, True), vector_norm(x2, 2, dim, True)
    return (x1 / length1.clamp(min=eps) * (x2 / length2.clamp(min=eps))).sum(dim)


@in_float32
def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """The input divided by its p-norm along a dimension, or by ``eps`` where that is larger.

    Raises:
        ShapeError: When ``out`` is given: results are new tensors here.
    """
    if out is not None:
        raise ShapeError("normalize(): out= is not supported; assign the result instead")
    return input / vector_norm(input, p, dim, True).clamp(min=eps)


@in_float32
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The p-norm distance of every row of ``x1`` from every row of ``x2`` (PyTorch's ``torch.cdist``).

    Args:
        x1: Shape ``(*, P, D)``.
        x2: Shape ``(*, R, D)``.
        p: Degree of the norm.
        compute_mode: Taken for compatibility; differences are always formed, which is exact.

    Returns:
        Shape ``(*, P, R)``.

    Raises:
        ShapeError: When the widths differ or there are too few dimensions.
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist(): shapes {tuple(x1.shape)} and {tuple(x2.shape)} do not fit: (*, P, D) and (*, R, D)")
    return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


@in_float32
def pdist(input, p=2.0):
    """The p-norm distances of all pairs of rows of ``(N, D)``, as PyTorch's ``F.pdist`` orders them.

    Raises:
        ShapeError: When the input is not 2-d.
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    first, second = np.triu_indices(input.shape[0], 1)
    return vector_norm(input[first] - input[second], p, -1)
