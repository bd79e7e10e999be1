"""Mixed precision under PyTorch's names.

Inside an ``autocast`` block, matrix products, convolutions, attention and recurrent layers give a half type; softmax,
losses and layer norm give float32. On the CPU, where NumPy has no fast products of half types, they are computed in
float32 and rounded once.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.autocast import autocast_mode
from ddpflow.autograd.base import TensorBase
from ddpflow.device import array_module
from ddpflow.dtype import DType, as_dtype, dtype_of
from ddpflow.errors import AutogradError, ValueRangeError

__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]

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


class GradScaler:
    """Scales the loss so that small gradients of half types do not vanish, and skips steps that overflowed.

    Source: PyTorch's ``torch.amp.GradScaler``: the scale halves after an overflow, and doubles after as many steps
    without one as ``growth_interval`` says.

    Args:
        device: Accepted; gradients are checked where they are.
        init_scale: The first scale.
        growth_factor: What the scale is multiplied by after a run of good steps.
        backoff_factor: What the scale is multiplied by after an overflow.
        growth_interval: How many good steps make a run.
        enabled: False makes every method pass through.
    """

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise ValueRangeError("the growth factor must be above 1 and the backoff factor between 0 and 1")
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._good_steps = 0
        self._unscaled: dict[int, bool] = {}  # by optimizer: whether an overflow was found

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale of now."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """A loss (or a list of tensors) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, TensorBase):
            return outputs * self._scale  # type: ignore[operator]
        return type(outputs)(self.scale(output) for output in outputs)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, once for each step.

        Raises:
            AutogradError: When it was done already since the last update.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._unscaled:
            raise AutogradError("unscale_() was called already on this optimizer since the last update()")
        overflow = False
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    array = parameter.grad.array
                    with np.errstate(all="ignore"):
                        array *= 1.0 / self._scale
                    parameter.grad.bump_version()
                    overflow = overflow or not bool(array_module(array).isfinite(array).all())
        self._unscaled[id(optimizer)] = overflow

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the optimizer's step, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        return None if self._unscaled[id(optimizer)] else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Adjust the scale to what was found since the last update."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif any(self._unscaled.values()):
            self._scale *= self._backoff_factor
            self._good_steps = 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._good_steps = 0
        self._unscaled.clear()

    def state_dict(self) -> dict[str, Any]:
        """The scale and its bookkeeping."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._good_steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if not self._enabled:
            return
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._good_steps = state_dict["_growth_tracker"]
