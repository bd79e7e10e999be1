"""Learning-rate schedules: each changes the ``lr`` of an optimizer's groups when `LRScheduler.step` is called."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ddpflow.errors import DtypeError, ValueRangeError
from ddpflow.optim.optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "SequentialLR",
    "StepLR",
]


class LRScheduler:
    """The base: a subclass gives the next rates in `get_lr`, from ``last_epoch`` and the groups' current rates.

    Args:
        optimizer: Whose rates to change.
        last_epoch: Where to go on; -1 starts anew and remembers each group's rate as ``initial_lr``.

    Raises:
        DtypeError: When it is not an optimizer.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise DtypeError(f"{type(self).__name__} takes an optimizer, not {type(optimizer).__name__}")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueRangeError(f"group {i} has no 'initial_lr', which resuming at last_epoch={last_epoch} needs")
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr: list[float] = []
        self._first_step()

    def _first_step(self) -> None:
        self.step()

    def get_lr(self) -> list[float]:
        """The rate of each group at ``last_epoch``."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rates that the last `step` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to the one given, and set the rates."""
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            rates = self.get_lr() if closed is None else closed()
        self._set(rates)

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def _current(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """The initial rate times ``lr_lambda(epoch)``; one function, or one for each group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas = _per_group(optimizer, lr_lambda, "lr_lambda")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Initial rates times the functions."""
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and the functions."""
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class MultiplicativeLR(LambdaLR):
    """The current rate times ``lr_lambda(epoch)``."""

    def get_lr(self) -> list[float]:
        """Current rates times the functions."""
        if self.last_epoch == 0:
            return self._current()
        return [rate * f(self.last_epoch) for rate, f in zip(self._current(), self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """The rate times ``gamma`` every ``step_size`` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates, times gamma at the end of a step."""
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each of the milestones."""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates, times gamma for each milestone of this epoch."""
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [rate * factor for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times ``factor`` until ``total_iters`` epochs have passed."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueRangeError(f"factor must be between 0 and 1, not {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates, changed at the first and at the last of these epochs."""
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._current()]
        if self.last_epoch != self.total_iters:
            return self._current()
        return [rate / self.factor for rate in self._current()]


class LinearLR(LRScheduler):
    """The factor on the rate goes in a line from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueRangeError(f"factors must be between 0 and 1, not {start_factor} and {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates, moved along the line."""
        start, span = self.start_factor, self.end_factor - self.start_factor
        if self.last_epoch == 0:
            return [rate * start for rate in self._current()]
        if self.last_epoch > self.total_iters:
            return self._current()
        factor = 1.0 + span / (self.total_iters * start + (self.last_epoch - 1) * span)
        return [rate * factor for rate in self._current()]


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` each epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates times gamma."""
        return self._current() if self.last_epoch == 0 else [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The rate falls to 0 as ``(1 - epoch / total_iters) ** power``."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates, moved along the polynomial."""
        if self.last_epoch == 0 or self.last_epoch > self.total_iters:
            return self._current()
        now, before = 1 - self.last_epoch / self.total_iters, 1 - (self.last_epoch - 1) / self.total_iters
        return [rate * (now / before) ** self.power for rate in self._current()]


class CosineAnnealingLR(LRScheduler):
    """The rate goes along half a cosine to ``eta_min`` in ``T_max`` epochs, then back (SGDR without restarts)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Current rates, moved along the cosine."""
        epoch, period, low = self.last_epoch, self.T_max, self.eta_min
        if epoch == 0:
            return self._current()
        if (epoch - 1 - period) % (2 * period) == 0:
            factor = (1 - math.cos(math.pi / period)) / 2
            return [rate + (base - low) * factor for rate, base in zip(self._current(), self.base_lrs, strict=True)]
        ratio = (1 + math.cos(math.pi * epoch / period)) / (1 + math.cos(math.pi * (epoch - 1) / period))
        return [ratio * (rate - low) + low for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the initial rate to ``eta_min``, each ``T_mult`` times as long as the last (SGDR)."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueRangeError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueRangeError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_i = T_0
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The cosine at ``T_cur`` of ``T_i``."""
        wave = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a fraction of one (``epoch + i / batches``)."""
        if epoch is None:
            epoch = self.last_epoch + 1
        elif epoch < 0:
            raise ValueRangeError(f"Expected non-negative epoch, but got {epoch}")
        self.T_cur, self.T_i = epoch, self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
            if self.T_mult == 1:
                self.T_cur %= self.T_i
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())


class SequentialLR(LRScheduler):
    """One schedule after another; the next takes over at each milestone."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ValueRangeError(
                f"{len(schedulers)} schedulers need {len(schedulers) - 1} milestones, not {len(milestones)}"
            )
        if any(s.optimizer is not optimizer for s in schedulers):
            raise ValueRangeError("all schedulers of SequentialLR must belong to its optimizer")
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        # Each scheduler took a first step when it was made: undo them, and let the first alone begin.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0]._first_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """One step of the schedule whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler.step(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Its own state and its schedules'."""
        own = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**own, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})


class ChainedScheduler(SequentialLR):
    """Several schedules at once: each changes what the one before left."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueRangeError("ChainedScheduler needs at least one scheduler")
        self.optimizer = optimizer or schedulers[0].optimizer
        if any(s.optimizer is not self.optimizer for s in schedulers):
            raise ValueRangeError("all schedulers of ChainedScheduler must belong to one optimizer")
        self._schedulers = list(schedulers)
        self._last_lr = self._current()

    def step(self, epoch: int | None = None) -> None:
        """One step of every schedule."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()


def _per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    """One value for each parameter group."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueRangeError(f"{name} has {len(value)} entries for {groups} parameter groups")
    return list(value)
