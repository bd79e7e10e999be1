"""Max pooling, one axis after the other: a window of k x k costs 2 k comparisons, each over long runs of memory.

The last axis comes first. Then, of equal values, the first in reading order wins, as in PyTorch. For each axis the
winning place in its window is kept as one byte.
"""

from typing import Any

import numpy as np

from ddpflow.autograd.kernels.pool import Window

__all__ = ["max_pool", "max_pool_backward", "winner_index"]

CHUNK = 64 * 1024  # elements of the input at a time, so that the passes over them stay in the cache


def _views(x: Any, axis: int, window: Window, i: int) -> list[Any]:
    """For each place in the window along spatial axis ``i``, what it meets of ``x`` over all output positions."""
    d, s, m = window.dilation[i], window.stride[i], window.out[i]
    lead = (slice(None),) * axis
    return [x[(*lead, slice(j * d, j * d + (m - 1) * s + 1, s))] for j in range(window.kernel[i])]


def _padded(xp: Any, x: Any, axis: int, window: Window, i: int, fill: Any) -> Any:
    reach = window.reach()[i]
    if reach == x.shape[axis]:
        return x
    shape = list(x.shape)
    shape[axis] = reach
    out = xp.full(shape, fill, x.dtype)
    out[_inside(axis, window, i)] = x
    return out


def _inside(axis: int, window: Window, i: int) -> Any:
    return (*(slice(None),) * axis, slice(window.padding[i], window.padding[i] + window.size[i]))


def _first_inside(xp: Any, axis: int, ndim: int, window: Window, i: int, dtype: Any) -> Any:
    """For each output position the first place in the window that lies in the input."""
    start = np.arange(window.out[i]) * window.stride[i] - window.padding[i]
    first = np.where(start < 0, -(start // window.dilation[i]), 0)
    shape = [1] * ndim
    shape[axis] = window.out[i]
    return xp.asarray(first.astype(dtype).reshape(shape))


def _axis_max(xp: Any, x: Any, axis: int, window: Window, i: int, out: Any, winner: Any) -> None:
    """The largest value of each window along one axis (NaN if it holds one), and its place in the window."""
    lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    padded = _padded(xp, x, axis, window, i, lowest)
    first, *rest = _views(padded, axis, window, i)
    if not rest:
        out[...] = first
        winner[...] = 0
        return
    if len(rest) == 1 and padded is x:
        xp.greater(rest[0], first, out=winner)
        xp.maximum(first, rest[0], out=out)
        return
    winner[...] = 0
    if padded is not x:  # a window that sees nothing but padding and -inf points into the input all the same
        winner[...] = _first_inside(xp, axis, x.ndim, window, i, winner.dtype)
    out[...] = first
    # A sum that is finite holds neither NaN nor infinity.
    plain = x.dtype.kind in "iu" or (xp is np and bool(np.isfinite(x.sum())))
    for j, values in enumerate(rest, 1):
        better = values > out
        if not plain:
            better |= values != values
        xp.maximum(out, values, out=out)
        if winner.dtype.itemsize == 1 and xp is np:  # winner = j where better, by bits: masks cost branches
            places = winner.view(np.uint8)
            change = places ^ np.uint8(j)
            change &= np.negative(better.view(np.uint8))
            places ^= change
        else:
            xp.copyto(winner, j, casting="unsafe", where=better)


def max_pool(xp: Any, x: Any, window: Window) -> tuple[Any, list[Any]]:
    """The largest value of each window of ``(N, C, *L)``.

    Returns:
        The values, and for each axis the place of the winner in the window: an array in which the axes before are not
        pooled yet.
    """
    lead, spatial = x.shape[:2], len(window.size)
    planes = lead[0] * lead[1]
    out = xp.empty((*lead, *window.out), x.dtype)
    winners = [
        xp.empty(
            (planes, *window.size[:i], *window.out[i:]),
            bool if k == 2 and not p else np.uint8 if k <= 256 else np.int32,
        )
        for i, (k, p) in enumerate(zip(window.kernel, window.padding, strict=True))
    ]
    flat, result = x.reshape(planes, *window.size), out.reshape(planes, *window.out)
    step = max(1, CHUNK // max(1, int(np.prod(window.size)))) if xp is np else planes
    for start in range(0, planes, max(step, 1)):
        part = flat[start : start + step]
        for i in reversed(range(spatial)):
            target = result[start : start + step] if i == 0 else xp.empty((len(part), *winners[i].shape[1:]), x.dtype)
            _axis_max(xp, part, i + 1, window, i, target, winners[i][start : start + step])
            part = target
    return out, winners


def _axis_spread(xp: Any, g: Any, axis: int, window: Window, i: int, winner: Any, out: Any) -> None:
    """The adjoint of the choice along one axis."""
    k, reach = window.kernel[i], window.reach()[i]
    if window.tiles_axis(i):
        parts = _views(out, axis, window, i)
        if k == 2:
            xp.multiply(g, winner, out=parts[1])
            xp.subtract(g, parts[1], out=parts[0])
            return
        for j, part in enumerate(parts):
            xp.multiply(g, winner == j, out=part)
        return
    shape = list(out.shape)
    shape[axis] = reach
    padded = xp.zeros(shape, g.dtype)
    for j, part in enumerate(_views(padded, axis, window, i)):
        part += g * (winner == j)
    out[...] = padded[_inside(axis, window, i)]


def max_pool_backward(xp: Any, g: Any, winners: list[Any], window: Window) -> Any:
    """The input's gradient: each window's goes to its winner."""
    lead = g.shape[:2]
    planes = lead[0] * lead[1]
    out = xp.empty((*lead, *window.size), g.dtype)
    flat, result = g.reshape(planes, *window.out), out.reshape(planes, *window.size)
    spatial = len(window.size)
    step = max(1, CHUNK // max(1, int(np.prod(window.size)))) if xp is np else planes
    for start in range(0, planes, max(step, 1)):
        part = flat[start : start + step]
        for i in range(spatial):
            shape = (len(part), *window.size[: i + 1], *window.out[i + 1 :])
            target = result[start : start + step] if i == spatial - 1 else xp.empty(shape, g.dtype)
            _axis_spread(xp, part, i + 1, window, i, winners[i][start : start + step], target)
            part = target
    return out


def winner_index(xp: Any, winners: list[Any], window: Window) -> Any:
    """The winners as flat indices of the input's spatial plane, ``(N * C, *M)``."""
    planes, spatial = len(winners[0]), len(window.size)
    index = None  # of the position along the axes so far
    for i in range(spatial):
        later = int(np.prod(window.out[i:]))
        winner = winners[i].reshape(planes, int(np.prod(window.size[:i])), later)
        if index is not None:
            winner = xp.take_along_axis(winner, index.reshape(planes, -1, later), 1)
        winner = winner.reshape(planes, *window.out).astype(np.int64)
        shape = [1] * (spatial + 1)
        shape[i + 1] = window.out[i]
        start = xp.arange(window.out[i]).reshape(shape) * window.stride[i] - window.padding[i]
        position = start + winner * window.dilation[i]
        index = position if index is None else index * window.size[i] + position
    return index
