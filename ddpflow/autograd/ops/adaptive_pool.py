"""Adaptive pooling: the output's size is given and the windows follow from it."""

import math

import numpy as np

from ddpflow.autograd.kernels.pool import Window
from ddpflow.autograd.op import op
from ddpflow.autograd.ops.pool import max_pool, sum_pool, take_spatial
from ddpflow.dtype import as_numpy
from ddpflow.errors import ShapeError

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
]


def _target(name, axes, input, output_size):
    """The output's spatial shape, arguments checked; None in it keeps the input's size."""
    if input.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}(): expected a {axes + 1}D or {axes + 2}D input, got shape {tuple(input.shape)}")
    size = tuple(input.shape[-axes:])
    given = (output_size,) * axes if output_size is None or isinstance(output_size, int) else tuple(output_size)
    if len(given) != axes:
        raise ShapeError(f"{name}(): output_size must have {axes} elements, got {given}")
    target = tuple([n if m is None else m for n, m in zip(size, given, strict=True)])
    if min(target) < 0 or 0 in size:
        raise ShapeError(f"{name}(): cannot pool an input of shape {tuple(input.shape)} to the size {target}")
    return size, target


def _even(axes, size, target):
    """The plain window that does the same, where the sizes divide; else None."""
    if 0 in target or any(n % m for n, m in zip(size, target, strict=True)):
        return None
    kernel = tuple([n // m for n, m in zip(size, target, strict=True)])
    return Window(kernel, kernel, (0,) * axes, (1,) * axes, size, target)


def _bounds(n, m):
    """Start and end of each of m windows over n places: ``floor(i * n / m)`` to ``ceil((i + 1) * n / m)``."""
    return [(i * n // m, -((-(i + 1) * n) // m)) for i in range(m)]


@op(samples=[((2, 3, 5), 2, 3), ((2, 5, 2), 1, 3)], tensors=1)
def average_axis(xp, input, axis, length):
    """Means of ``length`` windows that cover an axis evenly, as in adaptive pooling."""
    matrix = np.zeros((length, input.shape[axis]))
    for i, (start, end) in enumerate(_bounds(input.shape[axis], length)):
        matrix[i, start:end] = 1 / (end - start)
    weights = xp.asarray(matrix.astype(as_numpy(input.dtype)))
    out = (input.swapaxes(axis, -1) @ weights.T).swapaxes(axis, -1)
    return out, lambda g: (g.swapaxes(axis, -1) @ weights).swapaxes(axis, -1)


def _average(axes, input, output_size):
    size, target = _target(f"adaptive_avg_pool{axes}d", axes, input, output_size)
    if set(target) == {1}:
        return input.mean(tuple(range(-axes, 0)), keepdim=True)
    window = _even(axes, size, target)
    if window is not None:
        return (
            sum_pool(input if input.ndim == axes + 2 else input.unsqueeze(0), window) / float(math.prod(window.kernel))
        ).reshape(*input.shape[:-axes], *target)
    for i, (n, m) in enumerate(zip(size, target, strict=True)):
        if n != m:
            input = average_axis(input, input.ndim - axes + i, m)
    return input


@op(samples=[((2, 3, 5), [3]), ((2, 3, 5, 4), [2, 3])], differentiable=False, tensors=1)
def adaptive_max_indices(xp, input, target):
    """The flat spatial index of the largest value of each adaptive window."""
    size = input.shape[2:]
    out = xp.empty((*input.shape[:2], *target), xp.int64)
    for cell in np.ndindex(*target):
        bounds = [_bounds(n, m)[i] for n, m, i in zip(size, target, cell, strict=True)]
        part = input[(..., *[slice(a, b) for a, b in bounds])]
        spans = part.shape[2:]
        rest = part.reshape(*part.shape[:2], -1).argmax(2)
        index = 0
        for n, (start, _), place in zip(size, bounds, np.unravel_index(rest, spans), strict=True):
            index = index * n + place + start
        out[(..., *cell)] = index
    return out


def _max(axes, input, output_size, return_indices):
    size, target = _target(f"adaptive_max_pool{axes}d", axes, input, output_size)
    batched = input if input.ndim == axes + 2 else input.unsqueeze(0)
    window = _even(axes, size, target)
    if window is not None and not return_indices:
        out = max_pool(batched, window)
        return out if input.ndim == axes + 2 else out.squeeze(0)
    index = adaptive_max_indices(batched, target)
    out = take_spatial(batched, index)
    if input.ndim != axes + 2:
        out, index = out.squeeze(0), index.squeeze(0)
    return (out, index) if return_indices else out


def adaptive_avg_pool1d(input, output_size):
    """Means of ``output_size`` windows that cover the last axis evenly; see `adaptive_avg_pool2d`."""
    return _average(1, input, output_size)


def adaptive_avg_pool2d(input, output_size):
    """Means of windows that cover the last two axes evenly (PyTorch's ``F.adaptive_avg_pool2d``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        output_size: The output's ``(H, W)``; a number for both; None keeps an axis.

    Raises:
        ShapeError: When the sizes do not fit.
    """
    return _average(2, input, output_size)


def adaptive_avg_pool3d(input, output_size):
    """Means of windows that cover the last three axes evenly; see `adaptive_avg_pool2d`."""
    return _average(3, input, output_size)


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """Largest values of windows that cover the last axis evenly; see `adaptive_max_pool2d`."""
    return _max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """Largest values of windows that cover the last two axes evenly (PyTorch's ``F.adaptive_max_pool2d``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        output_size: The output's ``(H, W)``; a number for both; None keeps an axis.
        return_indices: Also return the flat spatial index of each value.

    Raises:
        ShapeError: When the sizes do not fit.
    """
    return _max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """Largest values of windows that cover the last three axes evenly; see `adaptive_max_pool2d`."""
    return _max(3, input, output_size, return_indices)
