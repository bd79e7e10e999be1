"""The backward passes under way: what runs at their end, and how passes inside passes are told apart."""

import threading
from collections.abc import Callable

from ddpflow.errors import AutogradError

__all__ = ["Pass", "outermost_pass", "queue_callback", "running"]


class Pass:
    """One backward pass under way.

    Attributes:
        callbacks: What runs at its end.
        on_nested: What runs when another pass starts inside it (in a hook, or in checkpointed code).
        on_error: What runs when it ends in an exception, in place of the callbacks.
    """

    __slots__ = ("callbacks", "on_error", "on_nested")

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self.on_nested: list[Callable[[], None]] = []
        self.on_error: list[Callable[[], None]] = []


class _Running(threading.local):
    """The passes under way in this thread, outermost first."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []


running = _Running()


def outermost_pass() -> Pass | None:
    """The outermost backward pass under way in this thread; None outside of one.

    A pass that ends in an exception runs no end-of-backward callbacks: whoever keeps state for a pass tells it from
    stale state by this object.
    """
    return running.passes[0] if running.passes else None


def queue_callback(callback: Callable[[], None]) -> None:
    """Run ``callback()`` at the end of the backward pass that is under way in this thread (the innermost one).

    Raises:
        AutogradError: When none is.
    """
    if not running.passes:
        raise AutogradError("no backward pass is under way in this thread, so there is no end of one to wait for")
    running.passes[-1].callbacks.append(callback)
