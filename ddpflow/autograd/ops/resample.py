"""Resizing: every mode is, axis by axis, a choice of places or a product with a small matrix of weights."""

import math

import numpy as np

from ddpflow.autograd.op import apply, op
from ddpflow.autograd.ops.adaptive_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from ddpflow.dtype import as_numpy
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

_SPATIAL = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


@op(samples=[((2, 3, 4), 2, np.eye(4)[[0, 0, 2]] + 0.5), ((2, 4, 3), 1, np.ones((2, 4)))], tensors=1)
def weigh_axis(xp, input, axis, matrix):
    """Weighted sums along an axis: the product with ``matrix`` of shape ``(out, in)``."""
    weights = xp.asarray(matrix.astype(as_numpy(input.dtype)))
    out = (input.swapaxes(axis, -1) @ weights.T).swapaxes(axis, -1)
    return out, lambda g: apply(xp, weigh_axis, g, axis, matrix.T)


@op(samples=[((2, 3, 4), 2, np.array([0, 0, 2, 3, 3]))], tensors=1)
def choose_axis(xp, input, axis, places):
    """Values at the given places of an axis."""
    length = input.shape[axis]
    out = input.take(xp.asarray(places), axis)
    return out, lambda g: apply(xp, weigh_axis, g, axis, np.eye(length)[:, places])


def _scales(size, target, factors, align_corners):
    """Input places for one output place, for each axis."""
    if align_corners:
        return [(n - 1) / (m - 1) if m > 1 else 0.0 for n, m in zip(size, target, strict=True)]
    return [1 / f if f else n / m for n, m, f in zip(size, target, factors, strict=True)]


def _nearest(n, m, scale, exact):
    places = np.floor((np.arange(m) + (0.5 if exact else 0.0)) * scale).astype(np.int64)
    return np.minimum(places, n - 1)


def _linear(n, m, scale, align_corners):
    """The matrix of linear interpolation."""
    at = np.arange(m) * scale if align_corners else np.maximum((np.arange(m) + 0.5) * scale - 0.5, 0)
    low = np.minimum(at.astype(np.int64), n - 1)
    high = np.minimum(low + 1, n - 1)
    share = np.clip(at - low, 0.0, 1.0)
    matrix, rows = np.zeros((m, n)), np.arange(m)
    np.add.at(matrix, (rows, low), 1 - share)
    np.add.at(matrix, (rows, high), share)
    return matrix


def _cubic_weight(distance, a):
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _cubic(n, m, scale, align_corners):
    """The matrix of cubic convolution with a = -0.75, as PyTorch has it."""
    at = np.arange(m) * scale if align_corners else (np.arange(m) + 0.5) * scale - 0.5
    low = np.floor(at).astype(np.int64)
    matrix, rows = np.zeros((m, n)), np.arange(m)
    for shift in (-1, 0, 1, 2):
        np.add.at(matrix, (rows, np.clip(low + shift, 0, n - 1)), _cubic_weight(at - low - shift, -0.75))
    return matrix


def _smoothed(n, m, scale, cubic):
    """The matrix of antialiased interpolation: the filter as wide as the steps, its weights adding up to 1."""
    width = max(scale, 1.0)
    support = (2.0 if cubic else 1.0) * width
    matrix = np.zeros((m, n))
    for i in range(m):
        centre = scale * (i + 0.5)
        start, end = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), n)
        distance = (np.arange(start, end) - centre + 0.5) / width
        weights = _cubic_weight(distance, -0.5) if cubic else np.maximum(1 - np.abs(distance), 0)
        matrix[i, start:end] = weights / weights.sum()
    return matrix


def _target(axes, size, given, scale_factor):
    """The output's spatial shape, and each axis' scale factor or None."""
    if (given is None) == (scale_factor is None):
        raise ValueRangeError("interpolate(): give either size or scale_factor, one of them")
    name, value = ("scale_factor", scale_factor) if given is None else ("size", given)
    values = (value,) * axes if isinstance(value, (int, float)) else tuple(value)
    if len(values) != axes:
        raise ValueRangeError(
            f"interpolate(): {name} must have {axes} elements for an input with {axes} spatial dimensions"
        )
    if given is not None:
        return tuple(int(v) for v in values), (None,) * axes
    return tuple(math.floor(n * float(f)) for n, f in zip(size, values, strict=True)), tuple(map(float, values))


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """Resize the spatial dimensions (PyTorch's ``F.interpolate``).

    Args:
        input: Shape ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        size: The output's spatial size, a number or one for each dimension; or else
        scale_factor: its ratio to the input's.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` (3-d input), ``"bilinear"``, ``"bicubic"`` (4-d),
            ``"trilinear"`` (5-d) or ``"area"``.
        align_corners: For the linear and cubic modes: the corners' centres, not edges, coincide.
        recompute_scale_factor: Take the ratio of the sizes, not ``scale_factor``, to find places.
        antialias: For ``"bilinear"`` and ``"bicubic"``: widen the filter when shrinking.

    Raises:
        ValueRangeError: For arguments that contradict each other or the mode.
        ShapeError: When the output would be empty.
    """
    axes = input.ndim - 2
    if not 1 <= axes <= 3:
        raise ShapeError(f"interpolate(): got an input of shape {tuple(input.shape)}; it needs 3, 4 or 5 dimensions")
    if mode in ("nearest", "nearest-exact", "area"):
        if align_corners is not None:
            raise ValueRangeError(
                "align_corners option can only be set with the interpolating modes, linear to trilinear"
            )
    elif _SPATIAL.get(mode) != axes:
        raise ValueRangeError(f"interpolate(): mode {mode!r} does not fit an input with {axes} spatial dimensions")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueRangeError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor")
    spatial = tuple(input.shape[2:])
    target, factors = _target(axes, spatial, size, scale_factor)
    if min(target) < 1 or min(spatial) < 1:
        raise ShapeError(
            f"Input and output sizes should be greater than 0, but got input {spatial} and output {target}"
        )
    if recompute_scale_factor:
        factors = (None,) * axes
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[axes - 1](input, target)
    scales = _scales(spatial, target, factors, bool(align_corners))
    out = input
    for axis, (n, m, scale) in enumerate(zip(spatial, target, scales, strict=True)):
        if mode.startswith("nearest"):
            out = choose_axis(out, axis + 2, _nearest(n, m, scale, mode != "nearest"))
        elif antialias:
            out = weigh_axis(out, axis + 2, _smoothed(n, m, scale, mode == "bicubic"))
        else:
            out = weigh_axis(
                out, axis + 2, (_cubic if mode == "bicubic" else _linear)(n, m, scale, bool(align_corners))
            )
    return out


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """`interpolate` under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """`interpolate` with ``mode="nearest"``."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """`interpolate` with ``mode="bilinear"`` and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)
