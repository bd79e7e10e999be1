"""A schedule by what was achieved: lower the rate when a metric stops getting better."""

from typing import Any

from ddpflow.errors import DtypeError, ValueRangeError
from ddpflow.optim.lr_scheduler.base import LRScheduler, per_group
from ddpflow.optim.optimizer import Optimizer

__all__ = ["ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` after ``patience`` epochs without improvement; ``step(metric)`` once an epoch.

    Args:
        optimizer: Whose rates to change.
        mode: ``"min"`` when smaller is better, ``"max"`` when larger is.
        factor: Below 1.
        patience: Epochs without improvement that are let pass.
        threshold: How much counts as an improvement.
        threshold_mode: ``"rel"`` to the best, or ``"abs"``.
        cooldown: Epochs after a reduction in which none are counted.
        min_lr: The lowest rate, or one for each group.
        eps: A smaller change of the rate is not made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DtypeError(f"ReduceLROnPlateau takes an optimizer, not {type(optimizer).__name__}")
        if factor >= 1.0:
            raise ValueRangeError(f"factor should be < 1.0, not {factor}")
        if mode not in ("min", "max"):
            raise ValueRangeError(f"mode {mode!r}: choose 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueRangeError(f"threshold_mode {threshold_mode!r}: choose 'rel' or 'abs'")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lrs = per_group(optimizer, min_lr, "min_lr")
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._current()
        self._reset()

    def _reset(self) -> None:
        """Forget the best metric and all counts."""
        self.best = float("inf") if self.mode == "min" else float("-inf")
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether ``a`` is an improvement on ``best``."""
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            return a * sign > best * (1.0 + sign * self.threshold) * sign
        return a * sign > (best + sign * self.threshold) * sign

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Tell the metric of an epoch that ended."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, low in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lower = max(group["lr"] * self.factor, low)
                if group["lr"] - lower > self.eps:
                    group["lr"] = lower
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._current()
