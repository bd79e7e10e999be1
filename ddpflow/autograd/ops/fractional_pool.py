"""Fractional max pooling: windows at random places, for outputs of nearly any size."""

import numpy as np

from ddpflow.autograd.op import Floats, op
from ddpflow.autograd.ops.pool import take_spatial
from ddpflow.autograd.ops.sampling import rand_like
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["fractional_max_pool2d", "fractional_max_pool3d"]


@op(
    samples=[
        ((2, 3, 7), Floats((2, 3, 1), 0.0, 1.0), (3,), (4,)),
        ((2, 3, 6, 5), Floats((2, 3, 2), 0.0, 1.0), (2, 2), (3, 1)),
    ],
    differentiable=False,
    tensors=2,
)
def fractional_max_indices(xp, input, shares, kernel, target):
    """The flat spatial index of the largest value of each window.

    Along an axis of n places, window i of m starts at ``floor((i + u) * a) - floor(u * a)`` with
    ``a = (n - kernel) / (m - 1)`` and the plane's share u from 0 to 1, and the last one at ``n - kernel``.
    """
    planes, axes = input.shape[:2], len(kernel)
    index = xp.zeros((*planes, *[1] * (2 * axes)), np.int64)
    for axis, (n, k, m) in enumerate(zip(input.shape[2:], kernel, target, strict=True)):
        last = xp.full((*planes, 1), n - k, np.int64)
        share, step = shares[..., axis, None].astype(np.float64), (n - k) / max(m - 1, 1)
        starts = xp.floor((xp.arange(m - 1) + share) * step) - xp.floor(share * step)
        starts = xp.concatenate([starts.astype(np.int64), last], -1)
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = m, k
        index = index * n + (starts[..., None] + xp.arange(k)).reshape(*planes, *shape)
    index = index.reshape(*planes, -1)
    values = xp.take_along_axis(input.reshape(*planes, -1), index, 2).reshape(*planes, *target, -1)
    best = values.argmax(-1)
    return xp.take_along_axis(index.reshape(values.shape), best[..., None], -1)[..., 0]


def _pool(axes, input, kernel_size, output_size, output_ratio, return_indices, samples):
    name = f"fractional_max_pool{axes}d"
    if input.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}(): expected a {axes + 1}D or {axes + 2}D input, got shape {tuple(input.shape)}")
    size = input.shape[-axes:]
    if (output_size is None) == (output_ratio is None):
        raise ValueRangeError(f"{name}() requires specifying either an output_size or an output_ratio, and not both")
    if output_size is None:
        output_size = [int(n * ratio) for n, ratio in zip(size, _each(axes, output_ratio), strict=True)]
    kernel, target = _each(axes, kernel_size), _each(axes, output_size)
    if any(k < 1 or m < 1 or m + k - 1 > n for n, k, m in zip(size, kernel, target, strict=True)):
        raise ShapeError(
            f"{name}(): windows {kernel} and an output of {target} do not fit an input {tuple(input.shape)}"
        )
    batched = input if input.ndim == axes + 2 else input.unsqueeze(0)
    if samples is None:
        samples = rand_like(batched.new_zeros((*batched.shape[:2], axes), dtype="float64"))
    elif samples.ndim != 3 or samples.shape[1:] != (batched.shape[1], axes) or len(samples) < len(batched):
        raise ShapeError(f"{name}(): random samples of shape {tuple(samples.shape)} for {tuple(batched.shape)}")
    else:
        samples = samples[: len(batched)]  # more are taken, as in PyTorch
    index = fractional_max_indices(batched, samples.flip(-1) if axes == 2 else samples, kernel, target)
    out = take_spatial(batched, index)
    if input.ndim != axes + 2:
        out, index = out.squeeze(0), index.squeeze(0)
    return (out, index) if return_indices else out


def _each(axes, value):
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(values) != axes:
        raise ShapeError(f"fractional_max_pool{axes}d() takes one number or {axes}, not {values}")
    return values


def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Largest values of windows at random places that cover the last two axes (Graham 2014).

    Args:
        input: Shape ``(N, C, H, W)`` or ``(C, H, W)``.
        kernel_size: The windows' size, a number or a pair.
        output_size: The output's size, a number or a pair.
        output_ratio: Instead, the output's size over the input's, a number or a pair.
        return_indices: Also return the flat spatial index of each value.
        _random_samples: Shape ``(N, C, 2)``, or for more samples than N: for each plane numbers from 0 to 1 that place
            the windows, first along the width; drawn when not given.

    Raises:
        ShapeError: When the windows do not fit.
        ValueRangeError: When not exactly one of ``output_size`` and ``output_ratio`` is given.
    """
    return _pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Largest values of windows at random places that cover the last three axes; see `fractional_max_pool2d`.

    ``_random_samples`` has the shape ``(N, C, 3)``, and its numbers the order of the axes.
    """
    return _pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)
