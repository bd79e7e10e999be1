"""Distances and similarities of pairs of vectors."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps`` over the last dimension.

    Args:
        p: The norm's degree.
        eps: Keeps the gradient finite where the vectors are equal.
        keepdim: Keep the dimension, with length 1.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along a dimension.

    Args:
        dim: The dimension.
        eps: The least length that is divided by.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
