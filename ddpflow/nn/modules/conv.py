"""Convolutions in one to three dimensions."""

import math
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.factories import empty
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.modules.sizes import tuple_of
from ddpflow.nn.parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvNd"]

_MODES = ("zeros", "reflect", "replicate", "circular")


class ConvNd(Module):
    """What all convolutions share: the checks, the parameters and how they start.

    The arguments are those of `Conv2d`, and:

    Args:
        dims: The number of spatial dimensions.
        transposed: Whether the weight is ``(in, out / groups, ...)``.
        output_padding: For transposed convolutions.

    Raises:
        ValueRangeError: When ``groups`` does not divide the channels, a size is not positive, or a padding is unknown.
    """

    bias: Parameter | None
    padding: Any

    def __init__(
        self,
        dims: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueRangeError(f"groups must be a positive integer, not {groups}")
        if in_channels % groups != 0:
            raise ValueRangeError(f"in_channels must be divisible by groups: {in_channels} channels, {groups} groups")
        if out_channels % groups != 0:
            raise ValueRangeError(f"out_channels must be divisible by groups: {out_channels} channels, {groups} groups")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueRangeError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        if padding_mode not in _MODES:
            raise ValueRangeError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = tuple_of(kernel_size, dims)
        self.stride = tuple_of(stride, dims)
        self.padding = padding if isinstance(padding, str) else tuple_of(padding, dims)
        self.dilation = tuple_of(dilation, dims)
        self.transposed = transposed
        self.output_padding = tuple_of(output_padding, dims)
        self.groups = groups
        self.padding_mode = padding_mode
        if padding == "same" and any(step != 1 for step in self.stride):
            raise ValueRangeError("padding='same' is not supported for strided convolutions")
        channels = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty((*channels, *self.kernel_size), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _edges(self) -> list[int]:
        """How much to pad each side, last dimension first, for the modes that `pad` knows."""
        sides: list[int] = []
        for dim in reversed(range(len(self.kernel_size))):
            if self.padding == "valid":
                sides += [0, 0]
            elif self.padding == "same":
                total = self.dilation[dim] * (self.kernel_size[dim] - 1)
                sides += [total // 2, total - total // 2]
            else:
                sides += [self.padding[dim]] * 2
        return sides

    def extra_repr(self) -> str:
        count = len(self.kernel_size)
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * count:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * count:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * count:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


_ConvNd = ConvNd  # PyTorch's name, by which scripts recognise every convolution


class _Conv(ConvNd):
    """A convolution whose subclass names the number of dimensions."""

    dims: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            self.dims,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _padded(self, input: Tensor) -> tuple[Any, Any]:
        """The input and the padding that is left to do, after padding by another mode than zeros."""
        if self.padding_mode == "zeros":
            return input, self.padding
        return F.pad(input, self._edges(), mode=self.padding_mode), 0


class Conv1d(_Conv):
    """Convolution of ``(N, C, L)`` or ``(C, L)``; the arguments are those of `Conv2d`."""

    dims = 1

    def forward(self, input: Tensor) -> Any:
        input, padding = self._padded(input)
        return F.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """Convolution of images ``(N, C, H, W)`` or ``(C, H, W)``: each output is a weighted sum of a window.

    Sizes are one number, or one for each spatial dimension.

    Args:
        in_channels: The input's channels.
        out_channels: The output's channels.
        kernel_size: The window.
        stride: Steps between windows.
        padding: Zeros around the input; ``"valid"`` for none, ``"same"`` for an output of the input's size.
        dilation: Steps within a window.
        groups: Independent blocks of channels.
        bias: Add a learned constant.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
        device: Where the parameters live.
        dtype: Their type.

    Raises:
        ValueRangeError: When ``groups`` does not divide the channels, or a padding is unknown.

    Example:
        >>> import ddpflow
        >>> ddpflow.nn.Conv2d(3, 8, kernel_size=3, padding=1)(ddpflow.ones(2, 3, 5, 5)).shape
        ddpflow.Size([2, 8, 5, 5])
    """

    dims = 2

    def forward(self, input: Tensor) -> Any:
        if self.padding_mode == "zeros":
            return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        input, padding = self._padded(input)
        return F.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """Convolution of ``(N, C, D, H, W)`` or ``(C, D, H, W)``; the arguments are those of `Conv2d`."""

    dims = 3

    def forward(self, input: Tensor) -> Any:
        input, padding = self._padded(input)
        return F.conv3d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
