"""Adaptive pooling layers: the windows are chosen so that the output has a given size."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
]


class _AdaptiveAvgPool(Module):
    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(_AdaptiveAvgPool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of as many windows of ``(N, C, L)`` or ``(C, L)`` as the output has places.

    Args:
        output_size: The length of the output.
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of as many windows of images ``(N, C, H, W)`` or ``(C, H, W)`` as the output has places.

    Args:
        output_size: The size of the output: one number, or one for each spatial dimension, None to keep it.
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of as many windows of ``(N, C, D, H, W)`` or ``(C, D, H, W)`` as the output has places.

    Args:
        output_size: The size of the output: one number, or one for each spatial dimension, None to keep it.
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The maxima of as many windows of ``(N, C, L)`` or ``(C, L)`` as the output has places.

    Args:
        output_size: The length of the output.
        return_indices: Also return where the maxima were.
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The maxima of as many windows of images ``(N, C, H, W)`` or ``(C, H, W)`` as the output has places.

    Args:
        output_size: The size of the output: one number, or one for each spatial dimension, None to keep it.
        return_indices: Also return where the maxima were.
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The maxima of as many windows of ``(N, C, D, H, W)`` or ``(C, D, H, W)`` as the output has places.

    Args:
        output_size: The size of the output: one number, or one for each spatial dimension, None to keep it.
        return_indices: Also return where the maxima were.
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)
