"""Dropout: elements or channels set to zero at random, in training."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueRangeError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Sets elements to zero with probability ``p`` in training, and scales the rest by ``1 / (1 - p)``.

    Args:
        p: The probability.
        inplace: Overwrite the input.

    Raises:
        ValueRangeError: When ``p`` is no probability.
    """

    def forward(self, input: Tensor) -> Any:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """`Dropout` of whole channels of ``(N, C, L)`` or ``(C, L)``.

    Args:
        p: The probability.
        inplace: Overwrite the input.
    """

    def forward(self, input: Tensor) -> Any:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """`Dropout` of whole channels of ``(N, C, H, W)``.

    Args:
        p: The probability.
        inplace: Overwrite the input.
    """

    def forward(self, input: Tensor) -> Any:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """`Dropout` of whole channels of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    Args:
        p: The probability.
        inplace: Overwrite the input.
    """

    def forward(self, input: Tensor) -> Any:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance of what `SELU` gives (Klambauer et al. 2017).

    Args:
        p: The probability.
        inplace: Overwrite the input.
    """

    def forward(self, input: Tensor) -> Any:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels.

    Args:
        p: The probability.
        inplace: Overwrite the input.
    """

    def forward(self, input: Tensor) -> Any:
        return F.feature_alpha_dropout(input, self.p, self.training)
