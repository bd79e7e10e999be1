"""Pooling layers: the maximum, mean or norm of each window, or of a given number of windows."""

from collections.abc import Sequence
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module
from ddpflow.nn.modules.sizes import tuple_of

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _MaxPool(Module):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class _MaxUnpool(Module):
    dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = tuple_of(kernel_size, self.dims)
        self.stride = tuple_of(kernel_size if stride is None else stride, self.dims)
        self.padding = tuple_of(padding, self.dims)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPool(Module):
    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The maximum of each window of ``(N, C, L)`` or ``(C, L)``.

    Sizes are one number, or one for each spatial dimension.

    Args:
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        padding: Places around the input that never win.
        dilation: Steps within a window.
        return_indices: Also return where the maxima were, for `MaxUnpool1d`.
        ceil_mode: Round the output's size up.
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool2d(_MaxPool):
    """The maximum of each window of images ``(N, C, H, W)`` or ``(C, H, W)``.

    Sizes are one number, or one for each spatial dimension.

    Args:
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        padding: Places around the input that never win.
        dilation: Steps within a window.
        return_indices: Also return where the maxima were, for `MaxUnpool2d`.
        ceil_mode: Round the output's size up.
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool3d(_MaxPool):
    """The maximum of each window of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    Sizes are one number, or one for each spatial dimension.

    Args:
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        padding: Places around the input that never win.
        dilation: Steps within a window.
        return_indices: Also return where the maxima were, for `MaxUnpool3d`.
        ceil_mode: Round the output's size up.
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxUnpool1d(_MaxUnpool):
    """Puts maxima back where `MaxPool1d` found them, with zeros elsewhere; ``forward`` takes both of its results.

    Args:
        kernel_size: The window of that pooling.
        stride: Its stride.
        padding: Its padding.
    """

    dims = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Any:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Puts maxima back where `MaxPool2d` found them, with zeros elsewhere; ``forward`` takes both of its results.

    Args:
        kernel_size: The window of that pooling.
        stride: Its stride.
        padding: Its padding.
    """

    dims = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Any:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Puts maxima back where `MaxPool3d` found them, with zeros elsewhere; ``forward`` takes both of its results.

    Args:
        kernel_size: The window of that pooling.
        stride: Its stride.
        padding: Its padding.
    """

    dims = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Any:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class AvgPool1d(_AvgPool):
    """The mean of each window of ``(N, C, L)`` or ``(C, L)``.

    Args:
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        padding: Zeros around the input.
        ceil_mode: Round the output's size up.
        count_include_pad: Let those zeros count in the mean.
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        stride = tuple_of(kernel_size if stride is None else stride, 1)
        super().__init__(tuple_of(kernel_size, 1), stride, tuple_of(padding, 1), ceil_mode, count_include_pad)

    def forward(self, input: Tensor) -> Any:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window of images ``(N, C, H, W)`` or ``(C, H, W)``.

    Sizes are one number, or one for each spatial dimension.

    Args:
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        padding: Zeros around the input.
        ceil_mode: Round the output's size up.
        count_include_pad: Let those zeros count in the mean.
        divisor_override: Divide by this instead of the window's size.
    """

    def forward(self, input: Tensor) -> Any:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(_AvgPool):
    """The mean of each window of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    Sizes are one number, or one for each spatial dimension.

    Args:
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        padding: Zeros around the input.
        ceil_mode: Round the output's size up.
        count_include_pad: Let those zeros count in the mean.
        divisor_override: Divide by this instead of the window's size.
    """

    def forward(self, input: Tensor) -> Any:
        return F.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of ``(N, C, L)`` or ``(C, L)``.

    Args:
        norm_type: The norm's degree ``p``.
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        ceil_mode: Round the output's size up.
    """

    def forward(self, input: Tensor) -> Any:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The p-norm of each window of images ``(N, C, H, W)`` or ``(C, H, W)``.

    Args:
        norm_type: The norm's degree ``p``.
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        ceil_mode: Round the output's size up.
    """

    def forward(self, input: Tensor) -> Any:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """The p-norm of each window of ``(N, C, D, H, W)`` or ``(C, D, H, W)``.

    Args:
        norm_type: The norm's degree ``p``.
        kernel_size: The window.
        stride: Steps between windows; by default the window.
        ceil_mode: Round the output's size up.
    """

    def forward(self, input: Tensor) -> Any:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
