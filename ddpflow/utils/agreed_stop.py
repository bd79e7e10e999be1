"""Stopping in good order: a signal to any rank becomes a stop of all ranks at the same step."""

import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

import numpy as np

from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.world import current_group
from ddpflow.errors import ValueRangeError

__all__ = ["AgreedStop"]


class AgreedStop:
    """Notes signals such as a batch system's warning, and lets all ranks stop at the same step.

        with AgreedStop() as stop:
            for step in range(steps):
                ...  # train
                if stop.agreed():
                    checkpoints.save(step, model=model, optimizer=optimizer)
                    break

    Args:
        signals: What to listen to while in the block, in the main thread; elsewhere only `request` counts.
        every: Ranks ask each other in every ``every``-th call of `agreed`: one all-reduce of a few bytes.
        group: The ranks; the current group when None.

    Attributes:
        signal: The highest signal number that a rank got, once agreed; 0 for a `request`, None before.

    Raises:
        ValueRangeError: When ``every`` is below 1.

    Example:
        >>> with AgreedStop() as stop:
        ...     before = stop.agreed()
        ...     signal.raise_signal(signal.SIGUSR1)
        ...     (before, stop.agreed())
        (False, True)
    """

    def __init__(
        self,
        signals: Sequence[int] = (signal.SIGTERM, signal.SIGUSR1),
        *,
        every: int = 1,
        group: Any = None,
    ) -> None:
        if every < 1:
            raise ValueRangeError(f"every must be at least 1, not {every}")
        self.signal: int | None = None
        self._signals = tuple(signals)
        self._every = every
        self._group = group
        self._calls = 0
        self._wanted = 0  # 1 + the signal's number
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._wanted = max(self._wanted, 1 + number)

    def request(self) -> None:
        """Ask for a stop from here, as a signal would."""
        self._wanted = max(self._wanted, 1)

    def agreed(self) -> bool:
        """True on all ranks alike, once any of them got a signal; every rank must call it equally often."""
        if self.signal is not None:
            return True
        self._calls += 1
        if self._calls % self._every == 0:
            wanted = np.array([self._wanted], np.int64)
            group = current_group() if self._group is None else self._group
            group.all_reduce(wanted, ReduceOp.MAX, tag="whether to stop")
            if wanted[0]:
                self.signal = int(wanted[0]) - 1
        return self.signal is not None
