"""Anomaly mode: backward names the operation whose gradient holds the first NaN."""

from typing import Any

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.node import Node
from ddpflow.autograd.zeros import StaticZeros
from ddpflow.device import array_module
from ddpflow.dtype import is_floating
from ddpflow.errors import AutogradError

__all__ = ["check_gradients", "detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]

_enabled = False
_check_nan = True


def is_anomaly_enabled() -> bool:
    """True when backward looks for the operation that makes the first NaN."""
    return _enabled and _check_nan


class set_detect_anomaly:
    """Switch anomaly mode: at once when called as a function, until the block's end in a ``with``.

    Args:
        mode: On or off.
        check_nan: Look for NaN.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        global _enabled, _check_nan
        self._before = (_enabled, _check_nan)
        _enabled, _check_nan = bool(mode), bool(check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        global _enabled, _check_nan
        _enabled, _check_nan = self._before


class detect_anomaly:
    """Within the block backward raises at the operation whose gradient holds the first NaN, and names it.

    Each gradient is looked through, so it is slow: for debugging.

    Args:
        check_nan: Look for NaN.

    Example:
        >>> import ddpflow
        >>> x = ddpflow.tensor([0.0], requires_grad=True)
        >>> with ddpflow.autograd.detect_anomaly():
        ...     (ddpflow.sqrt(x) * 0.0).sum().backward()
        Traceback (most recent call last):
        ...
        ddpflow.errors.AutogradError: 'sqrt' made the first NaN of this backward: gradient of input 0, shape (1,)
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._switches: list[set_detect_anomaly] = []

    def __enter__(self) -> None:
        self._switches.append(set_detect_anomaly(True, self._check_nan))

    def __exit__(self, *exc: object) -> None:
        self._switches.pop().__exit__(*exc)


def check_gradients(node: Node, grads: list[Any]) -> None:
    """Look through the gradients that a node passes on.

    Raises:
        AutogradError: Naming the operation and the input whose gradient holds a NaN.
    """
    for i, g in enumerate(grads):
        if g is None or g.__class__ is StaticZeros:
            continue
        array = g.array if isinstance(g, TensorBase) else g
        if is_floating(array.dtype) and bool(array_module(array).isnan(array).any()):
            raise AutogradError(
                f"{node.name!r} made the first NaN of this backward: gradient of input {i}, shape {tuple(array.shape)}"
            )
