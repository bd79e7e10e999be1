"""What all schedules share: the rates they start from, the epoch they are at, and how they set rates."""

from collections.abc import Sequence
from typing import Any

from ddpflow.errors import DtypeError, ValueRangeError
from ddpflow.optim.optimizer import Optimizer

__all__ = ["LRScheduler", "per_group"]


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


def per_group(optimizer: Optimizer, value: Any, name: str) -> list[Any]:
    """One value for each parameter group, from one for all or a list.

    Raises:
        ValueRangeError: When the list has another length.
    """
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        raise ValueRangeError(f"{name} has {len(value)} entries for {groups} parameter groups")
    return list(value)
