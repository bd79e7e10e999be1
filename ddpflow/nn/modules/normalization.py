"""Normalization of each sample by itself: layer, group, RMS and local response normalization."""

import numbers
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.factories import empty
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    if isinstance(normalized_shape, numbers.Integral):
        return (int(normalized_shape),)
    return tuple(normalized_shape)


class LayerNorm(Module):
    """Gives the last dimensions of each sample mean 0 and variance 1, then a learned scale and shift (Ba et al. 2016).

    Args:
        normalized_shape: The lengths of the dimensions to normalize over, the last ones.
        eps: Added to the variance.
        elementwise_affine: Learn a scale and a shift for each element.
        bias: With ``elementwise_affine``, learn the shift.
        device: Where the parameters live.
        dtype: Their type.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = affine = elementwise_affine
        self.register_parameter("weight", Parameter(empty(shape, device=device, dtype=dtype)) if affine else None)
        shifted = affine and bias
        self.register_parameter("bias", Parameter(empty(shape, device=device, dtype=dtype)) if shifted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Any:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Gives each group of channels of each sample mean 0 and variance 1, then a learned scale and shift.

    Args:
        num_groups: How many groups the channels make.
        num_channels: The number of channels, a multiple of that.
        eps: Added to the variance.
        affine: Learn a scale and a shift for each channel.
        device: Where the parameters live.
        dtype: Their type.
        bias: With ``affine``, learn the shift.

    Raises:
        ValueRangeError: When the groups do not divide the channels.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueRangeError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        place = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(empty(num_channels, **place)) if affine else None)
        self.register_parameter("bias", Parameter(empty(num_channels, **place)) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Any:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides the last dimensions of each sample by their root mean square, then scales (Zhang and Sennrich 2019).

    Args:
        normalized_shape: The lengths of the dimensions to normalize over, the last ones.
        eps: Added to the mean square; None takes the dtype's machine epsilon.
        elementwise_affine: Learn a scale for each element.
        device: Where the parameter lives.
        dtype: Its type.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = affine = elementwise_affine
        self.register_parameter("weight", Parameter(empty(shape, device=device, dtype=dtype)) if affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Any:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(Module):
    """Divides each channel by a power of the mean square of its neighbours (Krizhevsky et al. 2012).

    Args:
        size: How many channels are neighbours.
        alpha: The weight of the mean square.
        beta: The power.
        k: Added to it.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Any:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """`LocalResponseNorm` of images, under its older name."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
