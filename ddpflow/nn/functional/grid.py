"""Sampling of images at any places: affine grids, and interpolation at the points of a grid (Jaderberg et al. 2015)."""

import itertools
import math
from typing import Any

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops.compare import where
from ddpflow.device import array_module
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["affine_grid", "grid_sample"]


def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """The points ``(N, *spatial, dims)`` that an affine map takes the places of an output to, in [-1, 1].

    Args:
        theta: The maps, ``(N, 2, 3)`` for images or ``(N, 3, 4)`` for volumes.
        size: The output's size, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        align_corners: -1 and 1 are the corner pixels' centres, not their edges.

    Raises:
        ShapeError: When the map does not fit the size.
    """
    dims = len(size) - 2
    if dims not in (2, 3) or tuple(theta.shape) != (size[0], dims, dims + 1):
        raise ShapeError(
            f"affine_grid(): maps of shape {tuple(theta.shape)} do not fit an output of size {tuple(size)}"
        )
    xp, dtype = array_module(theta.array), theta.array.dtype
    axes = []
    for length in size[2:]:
        edge = 1.0 if align_corners else 1.0 - 1.0 / length
        axes.append(np.linspace(-edge, edge, length) if length > 1 else np.zeros(1))
    places = np.stack([*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(tuple(size[2:]))], -1)
    flat = wrap(xp.asarray(places.reshape(-1, dims + 1).astype(dtype)))
    return (flat @ theta.transpose(1, 2)).reshape(size[0], *size[2:], dims)


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Values of images at the points of a grid.

    Args:
        input: ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        grid: The points, ``(N, *output, dims)``, x before y before z, in [-1, 1] within the image.
        mode: ``"bilinear"``, ``"nearest"``, or, for images, ``"bicubic"``.
        padding_mode: Outside the image ``"zeros"``, the ``"border"``'s values, or its ``"reflection"``.
        align_corners: -1 and 1 are the corner pixels' centres, not their edges.

    Raises:
        ShapeError: When the shapes do not fit.
        ValueRangeError: For an unknown mode.
    """
    dims = input.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueRangeError(f"grid_sample(): mode should be 'bilinear', 'nearest' or 'bicubic', not {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueRangeError(
            f"grid_sample(): padding_mode should be 'zeros', 'border' or 'reflection', not {padding_mode!r}"
        )
    if dims not in (2, 3) or (mode == "bicubic" and dims != 2):
        raise ShapeError(f"grid_sample(): mode {mode!r} does not take an input of shape {tuple(input.shape)}")
    if grid.ndim != dims + 2 or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise ShapeError(
            f"grid_sample(): a grid of shape {tuple(grid.shape)} does not fit an input of shape {tuple(input.shape)}"
        )
    sizes = tuple(input.shape[2:])
    aligned = bool(align_corners)
    # One coordinate for each spatial axis, in pixels: the grid names the last axis first.
    points = []
    for i, size in enumerate(sizes):
        x = grid[..., dims - 1 - i]
        points.append((x + 1) * ((size - 1) / 2) if aligned else ((x + 1) * size - 1) / 2)
    if mode == "bicubic":
        return _weighted(input, [_cubic(x) for x in points], sizes, padding_mode, aligned)
    points = [_inside(x, size, padding_mode, aligned) for x, size in zip(points, sizes, strict=True)]
    neighbours = _linear if mode == "bilinear" else _nearest
    return _weighted(input, [neighbours(x) for x in points], sizes, "zeros", aligned)


def _nearest(x: Any) -> list[tuple[Any, Any]]:
    """The neighbour of each coordinate, with weight one."""
    return [(array_module(x.array).rint(x.array), None)]


def _linear(x: Any) -> list[tuple[Any, Any]]:
    """The two neighbours of each coordinate, and their weights."""
    low = array_module(x.array).floor(x.array)
    share = x - wrap(low)
    return [(low, 1 - share), (low + 1, share)]


def _cubic(x: Any) -> list[tuple[Any, Any]]:
    """The four neighbours of each coordinate, and their weights (Keys 1981, a = -0.75)."""
    low, a = array_module(x.array).floor(x.array), -0.75
    t = x - wrap(low)

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def _inside(x: Any, size: int, padding_mode: str, aligned: bool) -> Any:
    """Coordinates moved into the image, as the padding mode says; gradients follow."""
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        span = high - low
        if span == 0:
            return x * 0.0
        offset = (x - low).abs()
        array = offset.array
        xp = array_module(array)
        flips = xp.floor(array / span)
        rest = offset - wrap(flips * span)
        x = where(wrap(flips % 2 == 0), rest + low, span - rest + low)
    return x.clamp(0, size - 1)


def _weighted(
    input: Any, corners: list[list[tuple[Any, Any]]], sizes: tuple[int, ...], padding_mode: str, aligned: bool
) -> Any:
    """The sum over all combinations of the axes' neighbours: their values times their weights."""
    xp = array_module(input.array)
    flat = input.reshape(*input.shape[:2], math.prod(sizes))
    shape = corners[0][0][0].shape
    total: Any = None
    for combination in itertools.product(*corners):
        index = xp.zeros(shape, np.int64)
        valid = xp.ones(shape, bool)
        weight: Any = None
        for (place, part), size in zip(combination, sizes, strict=True):
            if padding_mode != "zeros":
                place = xp.rint(_inside(wrap(place), size, padding_mode, aligned).array)
            place = xp.nan_to_num(place, nan=-1.0)
            valid &= (place >= 0) & (place < size)
            index = index * size + xp.clip(place, 0, size - 1).astype(np.int64)
            if part is not None:
                weight = part if weight is None else weight * part
        where_to = wrap(index.reshape(shape[0], 1, -1)).expand(-1, input.shape[1], -1)
        values = flat.gather(2, where_to).reshape(*input.shape[:2], *shape[1:])
        mask = wrap(valid.astype(input.array.dtype)).unsqueeze(1)
        factor = mask if weight is None else mask * weight.unsqueeze(1)
        total = values * factor if total is None else total + values * factor
    return total
