"""Batch normalization over the batches of all ranks together."""

from typing import Any

from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.comm.world import current_group
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.factories import tensor
from ddpflow.nn.module import Module
from ddpflow.nn.modules.batchnorm import BatchNorm
from ddpflow.nn.parallel.collectives import all_reduce

__all__ = ["SyncBatchNorm", "convert_sync_batchnorm"]


class SyncBatchNorm(BatchNorm):
    """Batch normalization whose statistics are those of all ranks' batches, of whatever size, empty ones too.

    The ranks exchange sums and counts, not means, so unequal batches are weighted as one large batch would be. In
    evaluation it is plain batch normalization, and nothing is exchanged. Works on the CPU and on the GPU.

    Args:
        num_features: Channels: the input's second dimension.
        eps: Added to the variance.
        momentum: Share of a batch in the running statistics; None averages over all batches.
        affine: With weight and bias.
        track_running_stats: Keep running statistics for evaluation.
        process_group: The ranks; the current group of the call when None.
        device, dtype: Of the parameters and buffers.

    Raises:
        ValueRangeError: In training, when all ranks together have at most one value per channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Any:
        """Normalize; in training every rank of the group must call it."""
        group = current_group() if self.process_group is None else self.process_group
        if not self.training or group.size() == 1:
            return super().forward(input)
        if input.ndim < 2 or input.shape[1] != self.num_features:
            raise ShapeError(
                f"expected at least 2D input with {self.num_features} channels, got shape {tuple(input.shape)}"
            )
        share = self.count_batch()
        dims = [0, *range(2, input.ndim)]
        per_channel = [1, -1] + [1] * (input.ndim - 2)
        local = input.numel() // self.num_features
        own = tensor([float(local)], dtype=input.dtype, device=input.device)
        sums = all_reduce(cat([input.sum(dims), own]), group=group)
        count = round(sums[-1].item())
        if count <= 1:
            raise ValueRangeError(f"Expected more than 1 value per channel when training, got {count} on all ranks")
        mean = sums[:-1] / count
        centred = input - mean.reshape(per_channel)
        variance = all_reduce((centred * centred).sum(dims), group=group) / count
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            with no_grad():
                spread = variance.detach() * (count / (count - 1))
                write(self.running_mean, self.running_mean * (1 - share) + mean.detach() * share)
                write(self.running_var, self.running_var * (1 - share) + spread * share)
        out = centred * (variance + self.eps).rsqrt().reshape(per_channel)
        if self.weight is not None:
            out = out * self.weight.reshape(per_channel)
        return out if self.bias is None else out + self.bias.reshape(per_channel)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replace every batch norm in a module by a `SyncBatchNorm` with the same parameters and statistics.

        Returns:
            The module itself, or its replacement when it is a batch norm.
        """
        return convert_sync_batchnorm(module, process_group)


def convert_sync_batchnorm(module: Module, process_group: Any = None) -> Module:
    """See `SyncBatchNorm.convert_sync_batchnorm`."""
    if isinstance(module, BatchNorm) and not isinstance(module, SyncBatchNorm):
        new = SyncBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            process_group,
        )
        new._parameters.update(module._parameters)
        new._buffers.update(module._buffers)
        new.__dict__.update({**module._parameters, **module._buffers})
        return new.train(module.training)
    for name, child in module.named_children():
        converted = convert_sync_batchnorm(child, process_group)
        if converted is not child:
            setattr(module, name, converted)
    return module
