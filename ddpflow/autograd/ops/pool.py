"""Max and average pooling over one, two and three axes, and unpooling."""

import math

import numpy as np

from ddpflow.autograd.kernels import max_pool as max_kernels
from ddpflow.autograd.kernels import pool as kernels
from ddpflow.autograd.kernels.pool import Window
from ddpflow.autograd.op import Ints, apply, op
from ddpflow.errors import IndexRangeError, ShapeError

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "sum_pool",
    "take_spatial",
]

_TILES = Window((2, 2), (2, 2), (0, 0), (1, 1), (4, 6), (2, 3))
_OVERLAP = Window((3,), (2,), (1,), (1,), (6,), (3,))


@op(samples=[((2, 3, 6), Ints((2, 3, 4), 6))], tensors=2)
def take_spatial(xp, input, index):
    """Values of ``(N, C, *L)`` at flat indices of the spatial plane; the output has the indices' shape."""
    size = input.shape[2:]
    flat = xp.take_along_axis(input.reshape(*input.shape[:2], -1), index.reshape(*index.shape[:2], -1), 2)
    return flat.reshape(index.shape), (lambda g: apply(xp, put_spatial, g, index, size), None)


@op(samples=[((2, 3, 4), Ints((2, 3, 4), 6), (6,)), ((2, 3, 4), Ints((2, 3, 4), 6), (2, 3))], tensors=2)
def put_spatial(xp, input, index, size):
    """The adjoint of `take_spatial`: adds each value to its place in a plane of zeros of shape ``size``."""
    planes, count = math.prod(index.shape[:2]), math.prod(size)
    places = index.reshape(planes, -1) + xp.arange(planes)[:, None] * count
    out = xp.zeros(planes * count, input.dtype)
    xp.add.at(out, places.ravel(), input.ravel())
    return out.reshape(*index.shape[:2], *size), (lambda g: apply(xp, take_spatial, g, index), None)


@op(samples=[((2, 3, 4, 6), _TILES), ((1, 2, 6), _OVERLAP)], differentiable=False)
def max_pool_indices(xp, input, window):
    """The flat spatial index of the largest value of each window."""
    _, winners = max_kernels.max_pool(xp, input, window)
    return max_kernels.winner_index(xp, winners, window).reshape(*input.shape[:2], *window.out)


def _max_composite(xp, input, window):
    return take_spatial(input, max_pool_indices(input, window))


@op(samples=[((2, 3, 4, 6), _TILES), ((1, 2, 6), _OVERLAP)], tensors=1, composite=_max_composite)
def max_pool(xp, input, window):
    """The largest value of each window."""
    out, winners = max_kernels.max_pool(xp, input, window)
    return out, lambda g: max_kernels.max_pool_backward(xp, g, winners, window)


@op(samples=[((2, 3, 4, 6), _TILES), ((1, 2, 6), _OVERLAP)], tensors=1)
def sum_pool(xp, input, window):
    """The sum of each window."""
    return kernels.sum_pool(xp, input, window), lambda g: apply(xp, sum_unpool, g, window)


@op(samples=[((2, 3, 2, 3), _TILES), ((1, 2, 3), _OVERLAP)], tensors=1)
def sum_unpool(xp, input, window):
    """The adjoint of `sum_pool`: each value to all places of its window."""
    return kernels.sum_pool_backward(xp, input, window), lambda g: apply(xp, sum_pool, g, window)


def _numbers(value, axes, name):
    if isinstance(value, int):
        return (value,) * axes
    values = tuple(value)
    if len(values) not in (1, axes):
        raise ShapeError(f"{name} must either be a single int, or a tuple of {axes} ints, got {values}")
    return values * axes if len(values) == 1 else values


def _window(name, axes, input, kernel_size, stride, padding, dilation, ceil_mode):
    """The window of a call, its arguments checked."""
    if input.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}() expects a {axes + 1}D or {axes + 2}D input, got shape {tuple(input.shape)}")
    kernel = _numbers(kernel_size, axes, "kernel_size")
    no_stride = stride is None or (not isinstance(stride, int) and not len(stride))
    stride = kernel if no_stride else _numbers(stride, axes, "stride")
    padding, dilation = _numbers(padding, axes, "padding"), _numbers(dilation, axes, "dilation")
    size = tuple(input.shape[-axes:])
    if min(kernel) < 1 or min(stride) < 1 or min(dilation) < 1:
        raise ShapeError(
            f"{name}(): kernel_size {kernel}, stride {stride} and dilation {dilation} must be greater than zero"
        )
    if any(p < 0 or p > (d * (k - 1) + 1) // 2 for p, k, d in zip(padding, kernel, dilation, strict=True)):
        raise ShapeError(
            f"pad should be at most half of effective kernel size, but got pad={padding}, kernel_size={kernel}"
        )
    out = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1
        m = (span + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (m - 1) * s >= n + p:
            m -= 1  # the last window must start inside the input or its padding before
        out.append(m)
    if min(out) < 1:
        raise ShapeError(
            f"{name}(): given input size {tuple(input.shape)}, the calculated output size {tuple(out)} is too small"
        )
    return Window(kernel, stride, padding, dilation, size, tuple(out))


def _batched(input, axes, function):
    """Calls a function on ``(N, C, *L)``, giving an unbatched input a batch of one."""
    if input.ndim == axes + 2:
        return function(input)
    result = function(input.unsqueeze(0))
    return tuple([r.squeeze(0) for r in result]) if isinstance(result, tuple) else result.squeeze(0)


def _max(axes, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    window = _window(f"max_pool{axes}d", axes, input, kernel_size, stride, padding, dilation, ceil_mode)
    if not return_indices:
        return _batched(input, axes, lambda x: max_pool(x, window))

    def both(x):
        index = max_pool_indices(x, window)
        return take_spatial(x, index), index

    return _batched(input, axes, both)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Largest value of each window over one axis; see `max_pool2d`."""
    return _max(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Largest value of each window over two axes (PyTorch's ``F.max_pool2d``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        kernel_size: Of the window, a number or a pair.
        stride: Its steps; None takes the kernel size.
        padding: Places of -inf on both sides, at most half the kernel.
        dilation: Steps inside the window.
        ceil_mode: Keep a last window that reaches over the end.
        return_indices: Also return the flat spatial index of each value (for `max_unpool2d`).

    Raises:
        ShapeError: When the arguments do not fit the input.
    """
    return _max(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Largest value of each window over three axes; see `max_pool2d`."""
    return _max(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    """`max_pool1d` and the index of each value."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    """`max_pool2d` and the index of each value."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    """`max_pool3d` and the index of each value."""
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def _unpool(axes, input, indices, kernel_size, stride, padding, output_size):
    kernel = _numbers(kernel_size, axes, "kernel_size")
    stride = kernel if stride is None else _numbers(stride, axes, "stride")
    padding = _numbers(padding, axes, "padding")
    if tuple(indices.shape) != tuple(input.shape):
        raise ShapeError(
            f"max_unpool: indices of shape {tuple(indices.shape)} for an input of shape {tuple(input.shape)}"
        )
    sizes = zip(input.shape[-axes:], kernel, stride, padding, strict=True)
    size = [(n - 1) * s + k - 2 * p for n, k, s, p in sizes] if output_size is None else list(output_size)[-axes:]
    flat = indices.array
    if flat.size and (flat.min() < 0 or flat.max() >= math.prod(size)):
        raise IndexRangeError(f"max_unpool: index outside the output of size {tuple(size)}")
    return (
        put_winners(input, indices, tuple(size))
        if input.ndim == axes + 2
        else put_winners(input.unsqueeze(0), indices.unsqueeze(0), tuple(size)).squeeze(0)
    )


@op(samples=[((2, 3, 1), Ints((2, 3, 1), 6), (6,))], tensors=2)
def put_winners(xp, input, index, size):
    """Zeros of spatial shape ``size`` with each value at its flat index; of values with one index the last stays."""
    out = xp.zeros((*index.shape[:2], math.prod(size)), input.dtype)
    flat = index.reshape(*index.shape[:2], -1)
    xp.put_along_axis(out, flat, input.reshape(flat.shape), 2)
    return out.reshape(*index.shape[:2], *size), (lambda g: apply(xp, take_spatial, g, index), None)


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Partial inverse of `max_pool1d`: values at their indices, zeros elsewhere."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Partial inverse of `max_pool2d`: values at their indices, zeros elsewhere.

    Raises:
        IndexRangeError: For an index outside the output.
    """
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Partial inverse of `max_pool3d`: values at their indices, zeros elsewhere."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _divisors(window, count_include_pad, dtype):
    """The number of places that each window's sum is divided by; a number where all are alike."""
    total = np.ones((1,) * len(window.size))
    for axis, (n, k, s, p, m) in enumerate(
        zip(window.size, window.kernel, window.stride, window.padding, window.out, strict=True)
    ):
        start = np.arange(m) * s - p
        end = np.minimum(start + k, n + p)
        lengths = end - start if count_include_pad else np.minimum(end, n) - np.maximum(start, 0)
        shape = [1] * len(window.size)
        shape[axis] = m
        total = total * lengths.reshape(shape)
    return float(total.flat[0]) if (total == total.flat[0]).all() else total.astype(dtype)


@op(samples=[((2, 3, 4), 6.0)], tensors=1)
def scaled_by(xp, input, divisors):
    """Quotient by constants: a number, or an array of the spatial shape."""
    scale = 1 / (divisors if isinstance(divisors, float) else xp.asarray(divisors))
    return input * scale, lambda g: g * scale


def _average(axes, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    window = _window(f"avg_pool{axes}d", axes, input, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is not None:
        if divisor_override == 0:
            raise ShapeError("divisor must be not zero")
        divisors = float(divisor_override)
    else:
        divisors = _divisors(window, count_include_pad, input.array.dtype)
    return _batched(
        input,
        axes,
        lambda x: (
            sum_pool(x, window) / divisors if divisors.__class__ is float else scaled_by(sum_pool(x, window), divisors)
        ),
    )


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """Mean of each window over one axis; see `avg_pool2d`."""
    return _average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """Mean of each window over two axes (PyTorch's ``F.avg_pool2d``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        kernel_size: Of the window, a number or a pair.
        stride: Its steps; None takes the kernel size.
        padding: Zeros on both sides, at most half the kernel.
        ceil_mode: Keep a last window that reaches over the end.
        count_include_pad: Count the padding's zeros in the mean.
        divisor_override: Divide by this number instead.

    Raises:
        ShapeError: When the arguments do not fit the input.
    """
    return _average(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """Mean of each window over three axes; see `avg_pool2d`."""
    return _average(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _power(axes, input, norm_type, kernel_size, stride, ceil_mode):
    kernel = _numbers(kernel_size, axes, "kernel_size")
    summed = _average(axes, input.pow(norm_type), kernel, stride, 0, ceil_mode, True, None) * math.prod(kernel)
    return (summed.sign() * summed.abs()).clamp(min=0).pow(1.0 / norm_type)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Power mean of each window over one axis; see `lp_pool2d`."""
    return _power(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """``(sum of x**p over the window) ** (1 / p)`` over two axes (PyTorch's ``F.lp_pool2d``)."""
    return _power(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """Power mean of each window over three axes; see `lp_pool2d`."""
    return _power(3, input, norm_type, kernel_size, stride, ceil_mode)
