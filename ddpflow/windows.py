"""Window functions of signal processing.

Source: the formulas of PyTorch's documentation; a periodic window is a symmetric one that
is one element longer, without its last.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.inference import default_of, placed
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ShapeError

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _window(
    length: int, periodic: bool, make: Callable[[Any], Any], dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    """The window whose value at the fraction x of its length, from 0 to 1, is ``make(x)``."""
    if length < 0:
        raise ShapeError(f"a window has a length >= 0, not {length}")
    if length == 1:
        values = np.ones(1)
    else:
        values = make(np.arange(length) / (length if periodic else length - 1))
    return placed(np.asarray(values).astype(default_of(dtype)), device, requires_grad)


def _cosines(*weights: float) -> Callable[[Any], Any]:
    """A sum of cosines with alternating signs."""

    def make(x: Any) -> Any:
        return sum((-1) ** k * weight * np.cos(2 * np.pi * k * x) for k, weight in enumerate(weights))

    return make


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle: 0 at the ends, 1 in the middle."""
    return _window(window_length, periodic, lambda x: 1 - np.abs(2 * x - 1), dtype, device, requires_grad)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """One period of a raised cosine, 0 at the ends."""
    return _window(window_length, periodic, _cosines(0.5, 0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """``alpha - beta * cos``: a raised cosine that does not reach 0."""
    return _window(window_length, periodic, _cosines(alpha, beta), dtype, device, requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A raised cosine with a second harmonic."""
    return _window(window_length, periodic, _cosines(0.42, 0.5, 0.08), dtype, device, requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The Kaiser window with the shape parameter ``beta``."""

    def make(x: Any) -> Any:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * x - 1) ** 2, 0))) / np.i0(beta)

    return _window(window_length, periodic, make, dtype, device, requires_grad)
