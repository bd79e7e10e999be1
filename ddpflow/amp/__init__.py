"""Mixed precision under PyTorch's names: `autocast` blocks, and `GradScaler` for what float16 cannot hold.

Example:
    >>> import ddpflow
    >>> w = ddpflow.tensor([[1.0, 2.0]], requires_grad=True)
    >>> with ddpflow.amp.autocast("cpu", dtype=ddpflow.float16):
    ...     y = ddpflow.nn.functional.linear(ddpflow.ones(1, 2), w)
    >>> y.sum().backward()
    >>> y.dtype, w.grad.dtype
    (ddpflow.float16, ddpflow.float32)
"""

from ddpflow.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
from ddpflow.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]
