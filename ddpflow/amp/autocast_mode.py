"""autocast: blocks in which products are computed in half types.

Inside an ``autocast`` block, matrix products, convolutions, attention and recurrent layers give a half type; softmax,
losses and norms give float32; the rest promotes. On the CPU, where NumPy has no fast products of half types, they are
computed in float32 and rounded once.
"""

import functools
from collections.abc import Callable
from typing import Any

from ddpflow.autograd.autocast import autocast_mode
from ddpflow.dtype import DType, as_dtype, dtype_of
from ddpflow.errors import ValueRangeError

__all__ = ["autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]

_DEFAULT = {"cpu": "bfloat16", "cuda": "float16"}


class autocast:
    """A block, or a function, in which matrix products and their like give a half type.

    Args:
        device_type: ``"cpu"`` or ``"cuda"``: for tensors on which device.
        dtype: The half type; bfloat16 on the CPU and float16 on a GPU unless given.
        enabled: False switches an outer block off.
        cache_enabled: Accepted; casts of weights are not cached.

    Raises:
        ValueRangeError: For another device type, or a dtype that is no half type.
        BackendUnavailable: For bfloat16 without the package ml_dtypes (extra ``bf16``).

    Example:
        >>> import ddpflow
        >>> with ddpflow.amp.autocast("cpu", dtype=ddpflow.float16):
        ...     y = ddpflow.ones(2, 2) @ ddpflow.ones(2, 2)
        >>> y.dtype
        ddpflow.float16
    """

    def __init__(
        self, device_type: str = "cuda", dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        kind = device_type.partition(":")[0]
        if kind not in _DEFAULT:
            raise ValueRangeError(f"autocast knows the devices 'cpu' and 'cuda', not {device_type!r}")
        self.device_type = kind
        self.dtype: DType = as_dtype(_DEFAULT[kind] if dtype is None else dtype)
        if self.dtype.itemsize != 2 or not self.dtype.is_floating_point:
            raise ValueRangeError(f"autocast takes float16 or bfloat16, not {self.dtype}")
        self.enabled = enabled
        self._before: list[Any] = []

    def __enter__(self) -> "autocast":
        chosen = self.dtype.dtype if self.enabled else None
        self._before.append(getattr(autocast_mode, self.device_type))
        setattr(autocast_mode, self.device_type, chosen)
        return self

    def __exit__(self, *exc: object) -> None:
        setattr(autocast_mode, self.device_type, self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run inside the block."""

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """True inside an enabled autocast block for that kind of device."""
    return getattr(autocast_mode, device_type) is not None


def is_autocast_available(device_type: str) -> bool:
    """True for the kinds of devices that autocast accepts."""
    return device_type in _DEFAULT


def get_autocast_dtype(device_type: str) -> DType:
    """The half type of the autocast block for that kind of device, or the one it would have."""
    found = getattr(autocast_mode, device_type)
    return as_dtype(_DEFAULT[device_type]) if found is None else dtype_of(found)
