"""Batch normalization and instance normalization, with running statistics."""

import warnings
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.errors import ValueRangeError
from ddpflow.factories import empty, ones, tensor, zeros
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Parameter

__all__ = [
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
]


class _RunningNorm(Module):
    """What batch and instance normalization share: the parameters and the running statistics."""

    _version = 2
    ranks: tuple[int, ...] = ()  # how many dimensions the input may have; subclasses say
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        place = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(empty(num_features, **place)) if affine else None)
        self.register_parameter("bias", Parameter(empty(num_features, **place)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **place) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **place) if tracked else None)
        self.register_buffer("num_batches_tracked", tensor(0, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Start the running statistics anew: mean 0, variance 1."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                write(buffer, value)

    def reset_parameters(self) -> None:
        """Start anew: weight 1, bias 0, and the running statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if self.ranks and input.ndim not in self.ranks:
            wanted = " or ".join(f"{rank}D" for rank in self.ranks)
            raise ValueRangeError(f"expected {wanted} input (got {input.ndim}D input of shape {tuple(input.shape)})")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm(_RunningNorm):
    """Batch normalization without a check of the input's dimensions; users take `BatchNorm1d` to `BatchNorm3d`."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Any:
        self._check_input_dim(input)
        share = self.count_batch()
        if self.training and not self.track_running_stats:
            return F.batch_norm(input, None, None, self.weight, self.bias, True, share, self.eps)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_batch, share, self.eps
        )

    def count_batch(self) -> float:
        """Count a training batch, and return the share that it has in the running statistics."""
        counter = self.num_batches_tracked
        if self.training and self.track_running_stats and counter is not None:
            counter.array += 1
            counter.bump_version()
            if self.momentum is None:
                return 1.0 / float(counter.item())
        return 0.0 if self.momentum is None else self.momentum

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # State dicts from before version 2 have no counter.
        counter = self.num_batches_tracked
        if (local_metadata.get("version") or 0) < 2 and counter is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", counter)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


_BatchNorm = BatchNorm  # PyTorch's name, by which scripts recognise every batch norm


class BatchNorm1d(BatchNorm):
    """Batch normalization of ``(N, C)`` or ``(N, C, L)``; the arguments are those of `BatchNorm2d`."""

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """Batch normalization of images ``(N, C, H, W)``: each channel gets mean 0 and variance 1, then a learned scale.

    In training the batch decides (its variance over n), and the running statistics move towards it (variance over
    n - 1) by ``new = (1 - momentum) * old + momentum * batch``; in evaluation the running statistics decide.
    Source: Ioffe and Szegedy 2015; PyTorch's conventions.

    Args:
        num_features: The number of channels.
        eps: Added to the variance.
        momentum: The share of the newest batch; None averages over all batches alike.
        affine: Learn a scale and a shift.
        track_running_stats: Keep running statistics; without them the batch decides in evaluation too.
        device: Where parameters and buffers live.
        dtype: Their type.
        bias: With ``affine``, learn the shift.

    Raises:
        ValueRangeError: In ``forward``, for another number of dimensions, or one value per channel in training.
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """Batch normalization of ``(N, C, D, H, W)``; the arguments are those of `BatchNorm2d`."""

    ranks = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Any:
        self._check_input_dim(input)
        batched = input.ndim == self.ranks[1]
        channels = input.shape[1 if batched else 0]
        if channels != self.num_features:
            text = f"input of shape {tuple(input.shape)} has {channels} channels, num_features is {self.num_features}"
            if self.affine:
                raise ValueRangeError(f"expected input's size at dim={int(batched)} to match num_features: {text}")
            warnings.warn(f"{text}; affine=False, so it is not used", stacklevel=3)
        output = F.instance_norm(
            input if batched else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return output if batched else output.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of ``(N, C, L)`` or ``(C, L)``; the arguments are those of `InstanceNorm2d`."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of images: each channel of each sample gets mean 0 and variance 1.

    Args:
        num_features: The number of channels.
        eps: Added to the variance.
        momentum: The share of the newest batch in the running statistics.
        affine: Learn a scale and a shift.
        track_running_stats: Keep running statistics, and use them in evaluation.
        device: Where parameters and buffers live.
        dtype: Their type.
        bias: With ``affine``, learn the shift.

    Raises:
        ValueRangeError: In ``forward``, for another number of dimensions, or of channels with ``affine``.
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of ``(N, C, D, H, W)`` or ``(C, D, H, W)``; arguments as for `InstanceNorm2d`."""

    ranks = (4, 5)
