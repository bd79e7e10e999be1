"""Making tensors of random numbers."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.inference import default_of, module_of, placed, shape_of
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.dtype import as_numpy
from ddpflow.errors import DeviceError, DtypeError, ValueRangeError
from ddpflow.random import Generator, default_generator, draw_normal, draw_uniform, stream

__all__ = ["get_rng_state", "normal", "rand", "randint", "randn", "randperm", "set_rng_state"]


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Even draws from [0, 1)."""
    made = draw_uniform(module_of(device), shape_of(size), default_of(dtype), generator)
    return placed(made, device, requires_grad, pin_memory)


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Draws from the standard normal distribution."""
    made = draw_normal(module_of(device), shape_of(size), default_of(dtype), generator)
    return placed(made, device, requires_grad, pin_memory)


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = int,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers from ``[low, high)``: ``randint(high, size)`` or ``randint(low, high, size)``.

    Raises:
        ValueRangeError: When the range is empty.
    """
    if size is None or isinstance(high, (tuple, list)):
        low, high, size = (0, low, size if high is None else high)
    elif high is None:
        low, high = 0, low
    if size is None:
        raise DtypeError("randint() needs a size, such as randint(0, 10, (2, 3))")
    if high <= low:
        raise ValueRangeError(f"randint() needs low < high, not [{low}, {high})")
    xp = module_of(device)
    made = xp.asarray(stream(xp, generator).integers(low, high, shape_of((size,)))).astype(as_numpy(dtype), copy=False)
    return placed(made, device, requires_grad)


def randperm(
    n: int, *, generator: Generator | None = None, dtype: Any = int, device: Any = None, pin_memory: bool = False
) -> Tensor:
    """The integers from 0 to ``n - 1`` in random order."""
    xp = module_of(device if generator is None or device is not None else generator.device)
    source = stream(xp, generator)
    order = source.permutation(n) if xp is np else xp.argsort(source.random(n))  # CuPy's generators do not permute
    return placed(order.astype(as_numpy(dtype), copy=False), device, False, pin_memory)


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draws from normal distributions: one mean and deviation for a ``size``, or a tensor of means and/or deviations.

    Raises:
        ValueRangeError: When a deviation is negative.
    """
    like = next((value.array for value in (mean, std) if isinstance(value, TensorBase)), None)
    centre, spread = getattr(mean, "array", mean), getattr(std, "array", std)
    if not (spread >= 0 if not hasattr(spread, "all") else bool((spread >= 0).all())):
        raise ValueRangeError("normal() takes a standard deviation >= 0")
    if size is not None:
        shape = shape_of((size,))
    elif like is None:
        raise DeviceError("normal() of two numbers needs a size")
    else:
        shape = np.broadcast_shapes(np.shape(centre), np.shape(spread))
    xp = module_of(device) if like is None else array_module(like)
    chosen = default_of(dtype) if like is None or dtype is not None else like.dtype
    drawn = draw_normal(xp, shape, chosen, generator) * spread + centre
    return placed(drawn.astype(chosen, copy=False), device, requires_grad)


def get_rng_state() -> Tensor:
    """The state of this thread's CPU stream, as bytes."""
    return wrap(default_generator().get_state())


def set_rng_state(new_state: Tensor) -> None:
    """Go on from a state that `get_rng_state` gave."""
    default_generator().set_state(new_state)
