"""Mixed precision for GPUs under PyTorch's older names, which do not take the kind of device."""

from typing import Any

from ddpflow.amp import autocast_mode, grad_scaler
from ddpflow.dtype import float16

__all__ = ["GradScaler", "autocast"]


class autocast(autocast_mode.autocast):
    """`ddpflow.amp.autocast` for GPUs.

    Args:
        enabled: False switches an outer block off.
        dtype: The half type.
        cache_enabled: Accepted; casts of weights are not cached.
    """

    def __init__(self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(grad_scaler.GradScaler):
    """`ddpflow.amp.GradScaler`, for gradients wherever they are.

    Args:
        init_scale: The first scale.
        growth_factor: What the scale is multiplied by after a run of good steps.
        backoff_factor: What the scale is multiplied by after an overflow.
        growth_interval: How many good steps make a run.
        enabled: False makes every method pass through.
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
