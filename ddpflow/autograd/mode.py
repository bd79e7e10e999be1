"""Whether operations record a graph: a switch per thread."""

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["enable_grad", "grad_mode", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]


class _GradMode(threading.local):
    enabled = True  # the class attribute is every new thread's start


grad_mode = _GradMode()


def is_grad_enabled() -> bool:
    """True when operations of this thread record a graph."""
    return grad_mode.enabled


class _Switch:
    """A context manager and decorator that sets the switch and puts it back, also after an exception."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(grad_mode.enabled)
        grad_mode.enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        grad_mode.enabled = self._before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        enabled = self.enabled
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                # The switch must not leak to the consumer between two items.
                items = function(*args, **kwargs)
                while True:
                    with _Switch(enabled):
                        try:
                            item = next(items)
                        except StopIteration as stop:
                            return stop.value
                    yield item

            return generator

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with _Switch(enabled):
                return function(*args, **kwargs)

        return wrapper


class no_grad(_Switch):
    """Operations inside record nothing; a context manager or a decorator.

    Example:
        >>> import ddpflow
        >>> x = ddpflow.ones(2, requires_grad=True)
        >>> with ddpflow.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(False)

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """The switch, or the function that it decorates."""
        return super().__new__(cls) if function is None else _Switch(False)(function)


class enable_grad(_Switch):
    """Operations inside record a graph again; a context manager or a decorator."""

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        super().__init__(True)

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """The switch, or the function that it decorates."""
        return super().__new__(cls) if function is None else _Switch(True)(function)


class set_grad_enabled(_Switch):
    """Switch recording on or off: at once when called as a function, until the block's end in a ``with``."""

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode))
        self._before.append(grad_mode.enabled)
        grad_mode.enabled = self.enabled

    def __enter__(self) -> None:
        grad_mode.enabled = self.enabled

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run with the switch set."""
        grad_mode.enabled = self._before.pop()  # used as a decorator: the switch belongs to the calls
        return super().__call__(function)


class inference_mode(_Switch):
    """Like `no_grad`; kept under PyTorch's name. ``inference_mode(False)`` does nothing."""

    def __init__(self, mode: Any = True) -> None:
        super().__init__(grad_mode.enabled and not mode)

    def __new__(cls, mode: Any = True) -> Any:
        """The switch, or the function that it decorates."""
        return _Switch(False)(mode) if callable(mode) else super().__new__(cls)
