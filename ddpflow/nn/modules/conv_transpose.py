"""Transposed convolutions: the gradients of convolutions as layers, which make images larger."""

from collections.abc import Sequence
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.modules.conv import ConvNd

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTranspose(ConvNd):
    """A transposed convolution whose subclass names the number of dimensions."""

    dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueRangeError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            self.dims,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            True,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding_for(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding that gives a wanted size.

        Raises:
            ValueRangeError: When no output padding does.
        """
        if output_size is None:
            return self.output_padding
        lead = input.ndim - self.dims
        if len(output_size) == lead + self.dims:
            output_size = output_size[lead:]
        if len(output_size) != self.dims:
            raise ValueRangeError(
                f"ConvTranspose{self.dims}D: for {input.ndim}D input, output_size must have {self.dims} or "
                f"{lead + self.dims} elements (got {len(output_size)})"
            )
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[lead:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        most = [size + step - 1 for size, step in zip(least, self.stride, strict=True)]
        if not all(low <= size <= high for low, size, high in zip(least, output_size, most, strict=True)):
            raise ValueRangeError(
                f"requested an output size of {tuple(output_size)}, but valid sizes range from {least} to {most} (for "
                f"an input of {tuple(input.shape[lead:])})"
            )
        return tuple(size - low for size, low in zip(output_size, least, strict=True))


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of ``(N, C, L)`` or ``(C, L)``; the arguments are those of `ConvTranspose2d`."""

    dims = 1

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Any:
        extra = self._output_padding_for(input, output_size)
        return F.conv_transpose1d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of images: each input pixel adds a weighted window to the output.

    Sizes are one number, or one for each spatial dimension. ``forward`` takes ``output_size`` where the stride leaves
    the output's size open.

    Args:
        in_channels: The input's channels.
        out_channels: The output's channels.
        kernel_size: The window.
        stride: Steps between windows.
        padding: Cut off this much (less one window) on each side of the output.
        output_padding: Add this much to one side of the output.
        groups: Independent blocks of channels.
        bias: Add a learned constant.
        dilation: Steps within a window.
        padding_mode: Only ``"zeros"``.
        device: Where the parameters live.
        dtype: Their type.

    Raises:
        ValueRangeError: When ``groups`` does not divide the channels, or for another padding mode.
    """

    dims = 2

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Any:
        extra = self._output_padding_for(input, output_size)
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of ``(N, C, D, H, W)``; the arguments are those of `ConvTranspose2d`."""

    dims = 3

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Any:
        extra = self._output_padding_for(input, output_size)
        return F.conv_transpose3d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )
