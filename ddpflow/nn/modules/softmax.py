"""The softmax family as modules."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class _AlongDim(Module):
    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """``exp(x) / sum(exp(x))`` along a dimension.

    Args:
        dim: The dimension; None means 0 for inputs of 0, 1 or 3 dimensions, else 1.
    """

    def forward(self, input: Tensor) -> Any:
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongDim):
    """The logarithm of `Softmax`, without overflow.

    Args:
        dim: The dimension; None as for `Softmax`.
    """

    def forward(self, input: Tensor) -> Any:
        return F.log_softmax(input, self.dim)


class Softmin(_AlongDim):
    """`Softmax` of the negative.

    Args:
        dim: The dimension; None as for `Softmax`.
    """

    def forward(self, input: Tensor) -> Any:
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """`Softmax` over the channels of each place of an image ``(N, C, H, W)`` or ``(C, H, W)``."""

    def forward(self, input: Tensor) -> Any:
        if input.ndim not in (3, 4):
            raise ValueRangeError(f"Softmax2d: expected input to be 3D or 4D, got shape {tuple(input.shape)}")
        return F.softmax(input, -3)
