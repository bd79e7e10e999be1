"""Schedules that go up and down again, and move momentum the other way: cyclic rates and the one-cycle policy."""

import math
from collections.abc import Callable
from typing import Any

from ddpflow.errors import ValueRangeError
from ddpflow.optim.lr_scheduler.base import LRScheduler, per_group
from ddpflow.optim.optimizer import Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


def _momentum(group: dict[str, Any]) -> float:
    return float(group["betas"][0] if "betas" in group else group["momentum"])


def _set_momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


def _check_momentum(optimizer: Optimizer, who: str) -> None:
    if not all("betas" in g or "momentum" in g for g in optimizer.param_groups):
        raise ValueRangeError(f"{who} cycles momentum, which this optimizer has not: pass cycle_momentum=False")


class CyclicLR(LRScheduler):
    """The rate goes up from ``base_lr`` to ``max_lr`` and back, again and again (Smith 2017).

    Args:
        optimizer: Whose rates to change.
        base_lr: The lower rate, or one for each group.
        max_lr: The upper rate, or one for each group.
        step_size_up: Steps on the way up.
        step_size_down: Steps on the way down; as many as up when None.
        mode: ``"triangular"``, ``"triangular2"`` (half the height in each cycle), ``"exp_range"`` (``gamma ** step``).
        gamma: For ``"exp_range"``.
        scale_fn: The height as a function, in place of a mode.
        scale_mode: Whether ``scale_fn`` takes the ``"cycle"`` or the ``"iterations"``.
        cycle_momentum: Move momentum the other way.
        base_momentum: The lower momentum.
        max_momentum: The upper momentum.
        last_epoch: Where to go on.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        lows = per_group(optimizer, base_lr, "base_lr")
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                group["lr"] = low
        self.max_lrs = per_group(optimizer, max_lr, "max_lr")
        self.total_size = float(step_size_up) + float(step_size_up if step_size_down is None else step_size_down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueRangeError(f"mode {mode!r}: choose 'triangular', 'triangular2' or 'exp_range', or pass scale_fn")
        self.mode = mode
        self.gamma = gamma
        self.scale_fn = scale_fn
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _check_momentum(optimizer, "CyclicLR")
            self.base_momentums = per_group(optimizer, base_momentum, "base_momentum")
            self.max_momentums = per_group(optimizer, max_momentum, "max_momentum")
            if last_epoch == -1:
                for group, high in zip(optimizer.param_groups, self.max_momentums, strict=True):
                    _set_momentum(group, high)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def _scale(self, cycle: int) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (cycle - 1))
        return float(self.gamma**self.last_epoch) if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[float]:
        """The rates of this step of the cycle; momentum is set too."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = height * self._scale(cycle)
        rates = [low + (high - low) * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]
        if self.cycle_momentum:
            pairs = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
            for group, low, high in pairs:
                _set_momentum(group, high - (high - low) * scale)
        return rates


class OneCycleLR(LRScheduler):
    """One cycle over the whole training: up to ``max_lr``, then down far below the first rate (Smith and Topin 2017).

    Args:
        optimizer: Whose rates to change.
        max_lr: The highest rate, or one for each group.
        total_steps: Steps in all; or give the next two.
        epochs: Epochs in all.
        steps_per_epoch: Steps in each.
        pct_start: Share of the steps on the way up.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum: Move momentum the other way.
        base_momentum: The lower momentum.
        max_momentum: The upper momentum.
        div_factor: The first rate is ``max_lr / div_factor``.
        final_div_factor: The last is the first divided by this.
        three_phase: Go down to the first rate as fast as up, then on to the last.
        last_epoch: Where to go on.

    Raises:
        ValueRangeError: When the number of steps is not given, or `step` is called more often.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueRangeError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ValueRangeError(f"total_steps must be positive, not {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueRangeError(f"pct_start must be between 0 and 1, not {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueRangeError(f"anneal_strategy {anneal_strategy!r}: choose 'cos' or 'linear'")
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        up = float(pct_start * total_steps) - 1
        if three_phase:
            down = float(2 * pct_start * total_steps) - 2
            self._phases = [(up, "initial", "max"), (down, "max", "initial"), (total_steps - 1, "initial", "min")]
        else:
            self._phases = [(up, "initial", "max"), (total_steps - 1, "max", "min")]
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _check_momentum(optimizer, "OneCycleLR")
        highs = per_group(optimizer, max_lr, "max_lr")
        lows = per_group(optimizer, base_momentum, "base_momentum")
        tops = per_group(optimizer, max_momentum, "max_momentum")
        if last_epoch == -1:
            for group, high, low, top in zip(optimizer.param_groups, highs, lows, tops, strict=True):
                group["max_lr"] = high
                group["initial_lr"] = high / div_factor
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["base_momentum"], group["max_momentum"] = low, top
                    _set_momentum(group, top)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)
        return (end - start) * share + start

    def get_lr(self) -> list[float]:
        """The rates of this step; momentum is set too."""
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueRangeError(f"OneCycleLR: step {step} after the last of {self.total_steps}")
        ends = [end for end, _, _ in self._phases]
        k = next((i for i, end in enumerate(ends) if step <= end), len(ends) - 1)
        end, first, second = self._phases[k]
        start = ends[k - 1] if k else 0.0
        share = (step - start) / (end - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal(group[f"{first}_lr"], group[f"{second}_lr"], share))
            if self.cycle_momentum:
                low, high = group["base_momentum"], group["max_momentum"]
                _set_momentum(
                    group, self._anneal(low if first == "max" else high, low if second == "max" else high, share)
                )
        return rates
