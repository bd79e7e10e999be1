"""Adaptive and fractional pooling layers: the windows are chosen so that the output has a given size."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
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


class _FractionalMaxPool(Module):
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueRangeError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling ratio, and not both"
            )
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else [output_ratio]
        if output_ratio is not None and not all(0 < ratio < 1 for ratio in ratios):
            raise ValueRangeError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, output_size={self.output_size}, output_ratio={self.output_ratio}"

    def _options(self) -> tuple[Any, ...]:
        return self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest values of windows at random places of images ``(N, C, H, W)`` or ``(C, H, W)`` (Graham 2014).

    Args:
        kernel_size: The windows' size: one number, or one for each spatial dimension.
        output_size: The output's size.
        output_ratio: Instead, the output's size over the input's, between 0 and 1.
        return_indices: Also return where in its plane each value was.
        _random_samples: Where the windows lie, ``(N, C, 2)``; drawn at each forward when not given.

    Raises:
        ValueRangeError: When not exactly one of size and ratio is given, or the ratio is out of range.

    Example:
        >>> import ddpflow
        >>> ddpflow.nn.FractionalMaxPool2d(2, output_ratio=0.7)(ddpflow.ones(1, 3, 10, 10)).shape
        ddpflow.Size([1, 3, 7, 7])
    """

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(input, *self._options())


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest values of windows at random places of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    The arguments are those of `FractionalMaxPool2d`, with one more dimension.
    """

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(input, *self._options())
