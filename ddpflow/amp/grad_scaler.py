"""GradScaler: keeps small gradients of float16 from vanishing, and skips steps that overflowed."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.device import array_module
from ddpflow.errors import AutogradError, ValueRangeError

__all__ = ["GradScaler"]

_READY, _UNSCALED, _STEPPED = range(3)  # what became of an optimizer since the last update


class GradScaler:
    """Scales the loss so that small gradients of half types do not vanish, and skips steps that overflowed.

    The scale halves after an overflow, and doubles after as many steps without one as ``growth_interval`` says. Under
    DistributedDataParallel all ranks decide alike without a word: gradients are averaged before they are looked at, and
    an infinity on one rank is one in everybody's mean.

    Args:
        device: Accepted; gradients are checked where they are.
        init_scale: The first scale.
        growth_factor: What the scale is multiplied by after a run of good steps.
        backoff_factor: What the scale is multiplied by after an overflow.
        growth_interval: How many good steps make a run.
        enabled: False makes every method pass through.

    Raises:
        ValueRangeError: When the factors would not let the scale grow and shrink.

    Example:
        >>> import ddpflow
        >>> w = ddpflow.tensor([1.0], requires_grad=True)
        >>> optimizer = ddpflow.optim.SGD([w], lr=0.5)
        >>> scaler = GradScaler(init_scale=1024.0)
        >>> scaler.scale((w * 3).sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> w.tolist()
        [-0.5]

    Source: PyTorch's ``torch.amp.GradScaler``.
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
            raise ValueRangeError(
                f"the growth factor must be above 1 and the backoff factor between 0 and 1, not {growth_factor} and "
                f"{backoff_factor}"
            )
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._good_steps = 0
        self._stages: dict[int, int] = {}  # by optimizer
        self._overflow: dict[int, Any] = {}  # by optimizer: a bool, or on a GPU an array until somebody must know

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale of now."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by after a run of good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Change what the scale is multiplied by after a run of good steps."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Change what the scale is multiplied by after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many good steps make a run."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Change how many good steps make a run."""
        self._growth_interval = new_interval

    def scale(self, outputs: Any) -> Any:
        """A loss (or a list or tuple of tensors) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, TensorBase):
            return outputs * self._scale  # type: ignore[operator]
        return type(outputs)(self.scale(output) for output in outputs)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, as before clipping them.

        Raises:
            AutogradError: When it was done already since the last update, or after `step`.
            ValueRangeError: When a gradient is float16 itself: the division could lose it.
        """
        if not self._enabled:
            return
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _UNSCALED:
            raise AutogradError("unscale_() has already been called on this optimizer since the last update().")
        if stage == _STEPPED:
            raise AutogradError("unscale_() is being called after step().")
        self._overflow[id(optimizer)] = self._divide(optimizer)
        self._stages[id(optimizer)] = _UNSCALED

    def _divide(self, optimizer: Any) -> Any:
        """Unscale; true when a gradient is infinite or NaN, without a wait for a GPU's answer."""
        overflow: Any = False
        factor = 1.0 / self._scale
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                array = grad.array
                if array.dtype == np.float16:
                    raise ValueRangeError("Attempting to unscale FP16 gradients.")
                with np.errstate(all="ignore"):
                    array *= array.dtype.type(factor)
                grad.bump_version()
                overflow = ~array_module(array).isfinite(array).all() | overflow
        return overflow

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the optimizer's step, unless a gradient is infinite or NaN; unscales first if that was not done.

        Raises:
            AutogradError: When it is called twice without `update`, or with a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise AutogradError("Closure use is not currently supported if GradScaler is enabled.")
        stage = self._stages.get(id(optimizer), _READY)
        if stage == _STEPPED:
            raise AutogradError("step() has already been called since the last update().")
        if stage == _READY:
            self.unscale_(optimizer)
        overflow = self._overflow[id(optimizer)] = bool(self._overflow[id(optimizer)])
        result = None if overflow else optimizer.step(*args, **kwargs)
        self._stages[id(optimizer)] = _STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Adjust the scale to what was found since the last update.

        Args:
            new_scale: The new scale, a number or a tensor with one element, instead.

        Raises:
            AutogradError: When there was neither `step` nor `unscale_` since the last update.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._overflow:
            raise AutogradError("No inf checks were recorded prior to update.")
        elif any(self._overflow.values()):
            self._scale *= self._backoff_factor
            self._good_steps = 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._good_steps = 0
        self._stages.clear()
        self._overflow.clear()

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
        """Go on from what `state_dict` gave.

        Raises:
            AutogradError: When that is empty, because it came from a scaler that was switched off.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise AutogradError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._good_steps = state_dict["_growth_tracker"]
