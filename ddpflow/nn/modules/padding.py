"""Padding layers: values put around the last dimensions."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module
from ddpflow.nn.modules.sizes import tuple_of

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Padding whose subclasses name the number of padded dimensions and the mode."""

    dims: int
    mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = tuple_of(padding, 2 * self.dims)

    def forward(self, input: Tensor) -> Any:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Any:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Any:
        if input.ndim not in (self.dims + 1, self.dims + 2):
            raise ValueRangeError(
                f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.ndim}D input of shape "
                f"{tuple(input.shape)})"
            )
        return super().forward(input)


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class CircularPad1d(_CircularPad):
    """Pads ``(N, C, L)`` or ``(C, L)`` with the values of the opposite side.

    Args:
        padding: How much on all sides, or one number for each: left, right; negative numbers cut off.
    """

    dims = 1


class CircularPad2d(_CircularPad):
    """Pads ``(N, C, H, W)`` or ``(C, H, W)`` with the values of the opposite side.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom; negative numbers cut off.
    """

    dims = 2


class CircularPad3d(_CircularPad):
    """Pads ``(N, C, D, H, W)`` or ``(C, D, H, W)`` with the values of the opposite side.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom, front, back;
            negative numbers cut off.
    """

    dims = 3


class ConstantPad1d(_ConstantPad):
    """Pads ``(N, C, L)`` or ``(C, L)`` with one value.

    Args:
        padding: How much on all sides, or one number for each: left, right; negative numbers cut off.
        value: The value.
    """

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Pads ``(N, C, H, W)`` or ``(C, H, W)`` with one value.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom; negative numbers cut off.
        value: The value.
    """

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Pads ``(N, C, D, H, W)`` or ``(C, D, H, W)`` with one value.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom, front, back;
            negative numbers cut off.
        value: The value.
    """

    dims = 3


class ReflectionPad1d(_ReflectionPad):
    """Pads ``(N, C, L)`` or ``(C, L)`` with the mirror image of what is inside, without the edge.

    Args:
        padding: How much on all sides, or one number for each: left, right; negative numbers cut off.
    """

    dims = 1


class ReflectionPad2d(_ReflectionPad):
    """Pads ``(N, C, H, W)`` or ``(C, H, W)`` with the mirror image of what is inside, without the edge.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom; negative numbers cut off.
    """

    dims = 2


class ReflectionPad3d(_ReflectionPad):
    """Pads ``(N, C, D, H, W)`` or ``(C, D, H, W)`` with the mirror image of what is inside, without the edge.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom, front, back;
            negative numbers cut off.
    """

    dims = 3


class ReplicationPad1d(_ReplicationPad):
    """Pads ``(N, C, L)`` or ``(C, L)`` with the value at the edge.

    Args:
        padding: How much on all sides, or one number for each: left, right; negative numbers cut off.
    """

    dims = 1


class ReplicationPad2d(_ReplicationPad):
    """Pads ``(N, C, H, W)`` or ``(C, H, W)`` with the value at the edge.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom; negative numbers cut off.
    """

    dims = 2


class ReplicationPad3d(_ReplicationPad):
    """Pads ``(N, C, D, H, W)`` or ``(C, D, H, W)`` with the value at the edge.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom, front, back;
            negative numbers cut off.
    """

    dims = 3


class ZeroPad1d(_ZeroPad):
    """Pads ``(N, C, L)`` or ``(C, L)`` with zeros.

    Args:
        padding: How much on all sides, or one number for each: left, right; negative numbers cut off.
    """

    dims = 1


class ZeroPad2d(_ZeroPad):
    """Pads ``(N, C, H, W)`` or ``(C, H, W)`` with zeros.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom; negative numbers cut off.
    """

    dims = 2


class ZeroPad3d(_ZeroPad):
    """Pads ``(N, C, D, H, W)`` or ``(C, D, H, W)`` with zeros.

    Args:
        padding: How much on all sides, or one number for each: left, right, top, bottom, front, back;
            negative numbers cut off.
    """

    dims = 3
