"""Softmax and its relatives: blocked over rows for NumPy, kernels for CuPy, plain formulas for everything else."""

from typing import Any

import numpy as np

from ddpflow.autograd.kernels import cuda

__all__ = [
    "cross_entropy",
    "cross_entropy_backward",
    "log_softmax",
    "log_softmax_backward",
    "softmax",
    "softmax_backward",
]

BLOCK = 65536  # elements of a block, which stays in the second-level cache while several passes go over it


def _rows(x: Any, axis: int) -> bool:
    """Whether the blocked path takes an array: rows are contiguous and not of a half type."""
    return x.ndim > 0 and axis in (-1, x.ndim - 1) and x.flags.c_contiguous and x.dtype.char in "fd"


def _step(width: int) -> int:
    return max(1, BLOCK // max(1, width))


def _wide(xp: Any, x: Any) -> Any:
    """The array in a type to accumulate in: float32 for half types."""
    return x.astype(xp.float32) if x.dtype.itemsize == 2 else x


def softmax(xp: Any, x: Any, axis: int) -> Any:
    """``exp(x) / sum(exp(x))`` along an axis; NaN for a row of only -inf, and in that row only."""
    if x.ndim == 0:
        return softmax(xp, x.reshape(1), 0).reshape(())
    if not x.shape[axis] or not x.size:
        return xp.zeros(x.shape, x.dtype)
    if xp is not np:
        if cuda.fits_rows(xp, axis, x):
            return cuda.softmax(xp, x)
        wide = _wide(xp, x)
        y = xp.exp(wide - xp.amax(wide, axis, keepdims=True))
        y = y / y.sum(axis, keepdims=True)
        return y if y.dtype == x.dtype else y.astype(x.dtype)
    if not _rows(x, axis):
        wide = _wide(np, x)
        y = wide - wide.max(axis, keepdims=True)
        np.exp(y, out=y)
        y /= y.sum(axis, keepdims=True)
        return y if y.dtype == x.dtype else y.astype(x.dtype)
    out = np.empty_like(x)
    width = x.shape[-1]
    source, target = x.reshape(-1, width), out.reshape(-1, width)
    step, ones = _step(width), np.ones(width, x.dtype)  # BLAS adds rows up quicker than sum does
    for i in range(0, len(source), step):
        s, y = source[i : i + step], target[i : i + step]
        np.subtract(s, s.max(1, keepdims=True), out=y)
        np.exp(y, out=y)
        total = y @ ones
        y *= np.reciprocal(total, out=total)[:, None]
    return out


def softmax_backward(xp: Any, g: Any, y: Any, axis: int) -> Any:
    """The input's gradient from the output's: ``y * (g - sum(g * y))``; exactly 0 where y is."""
    if y.ndim == 0:
        return g * 0
    if not y.size:
        return g
    if xp is not np or not (_rows(y, axis) and _rows(g, axis) and g.dtype == y.dtype):
        if xp is not np and cuda.fits_rows(xp, axis, y, g):
            return cuda.softmax_backward(xp, g, y)
        if y.dtype.itemsize == 2:
            wide = y.astype(xp.float32)
            return (wide * (g - (g * wide).sum(axis, keepdims=True))).astype(y.dtype)
        return y * (g - (g * y).sum(axis, keepdims=True))
    out = np.empty_like(y)
    width = y.shape[-1]
    gs, ys, target = g.reshape(-1, width), y.reshape(-1, width), out.reshape(-1, width)
    step = _step(width)
    for i in range(0, len(ys), step):
        gi, yi, o = gs[i : i + step], ys[i : i + step], target[i : i + step]
        dots = np.vecdot(gi, yi)
        np.subtract(gi, dots[:, None], out=o)
        o *= yi
    return out


def log_softmax(xp: Any, x: Any, axis: int) -> Any:
    """``x - log(sum(exp(x)))`` along an axis."""
    if x.ndim == 0:
        return log_softmax(xp, x.reshape(1), 0).reshape(())
    if not x.shape[axis] or not x.size:
        return xp.zeros(x.shape, x.dtype)
    if xp is not np:
        if cuda.fits_rows(xp, axis, x):
            return cuda.log_softmax(xp, x)
        wide = _wide(xp, x)
        y = wide - xp.amax(wide, axis, keepdims=True)
        y = y - xp.log(xp.exp(y).sum(axis, keepdims=True))
        return y if y.dtype == x.dtype else y.astype(x.dtype)
    if not _rows(x, axis):
        wide = _wide(np, x)
        y = wide - wide.max(axis, keepdims=True)
        y -= np.log(np.exp(y).sum(axis, keepdims=True))
        return y if y.dtype == x.dtype else y.astype(x.dtype)
    out = np.empty_like(x)
    width = x.shape[-1]
    source, target = x.reshape(-1, width), out.reshape(-1, width)
    step, ones = _step(width), np.ones(width, x.dtype)
    for i in range(0, len(source), step):
        s, y = source[i : i + step], target[i : i + step]
        np.subtract(s, s.max(1, keepdims=True), out=y)
        y -= np.log(np.exp(y) @ ones)[:, None]
    return out


def log_softmax_backward(xp: Any, g: Any, y: Any, axis: int) -> Any:
    """The input's gradient from the output's: ``g - exp(y) * sum(g)``."""
    if y.ndim == 0:
        return g * 0
    if not y.size:
        return g
    if xp is not np and cuda.fits_rows(xp, axis, y, g):
        return cuda.log_softmax_backward(xp, g, y)
    if y.dtype.itemsize == 2:
        wide = g.astype(xp.float32)
        return (wide - xp.exp(y.astype(xp.float32)) * wide.sum(axis, keepdims=True)).astype(y.dtype)
    if xp is not np:
        return g - xp.exp(y) * g.sum(axis, keepdims=True)
    out = np.exp(y)
    out *= g.sum(axis, keepdims=True)
    return np.subtract(g, out, out=out)


def cross_entropy(xp: Any, x: Any, index: Any) -> tuple[Any, Any]:
    """For logits ``(N, C, ...)``: ``logsumexp(x) - x[index]``, and the logsumexp, each of shape ``(N, ...)``."""
    if xp is np and x.ndim == 2 and _rows(x, 1):
        rows, width = x.shape
        lse = np.empty(rows, x.dtype)
        step, ones = _step(width), np.ones(width, x.dtype)
        for i in range(0, rows, step):
            s = x[i : i + step]
            top = s.max(1, keepdims=True)
            y = s - top
            np.exp(y, out=y)
            np.log(y @ ones, out=lse[i : i + step])
            lse[i : i + step] += top[:, 0]
        return lse - x[np.arange(rows), index], lse
    if xp is not np and cuda.fits_rows(xp, 1, x):
        return cuda.cross_entropy(xp, x, index)
    wide = _wide(xp, x)
    top = wide.max(1, keepdims=True)
    lse = xp.log(xp.exp(wide - top).sum(1)) + top[:, 0]
    picked = xp.take_along_axis(wide, xp.expand_dims(index, 1), 1)[:, 0]
    return lse - picked, lse


def cross_entropy_backward(xp: Any, x: Any, index: Any, lse: Any, scale: Any) -> Any:
    """The gradient ``(softmax(x) - onehot(index)) * scale`` for scales ``(N, ...)``; 0 where the scale is."""
    if xp is np and x.ndim == 2 and _rows(x, 1) and scale.dtype == x.dtype:
        rows, width = x.shape
        out = np.empty_like(x)
        step = _step(width)
        lse, scale = lse[:, None], scale[:, None]
        where = np.arange(rows)
        for i in range(0, rows, step):
            o = out[i : i + step]
            np.subtract(x[i : i + step], lse[i : i + step], out=o)
            np.exp(o, out=o)
            o *= scale[i : i + step]
        out[where, index] -= scale[:, 0]
        if not scale.all():
            out[scale[:, 0] == 0] = 0  # an ignored row may hold infinities
        return out
    if xp is not np and cuda.fits_rows(xp, 1, x, scale):
        return cuda.cross_entropy_backward(xp, x, index, lse, scale)
    wide = _wide(xp, x)
    scale = xp.expand_dims(scale, 1)
    p = xp.exp(wide - xp.expand_dims(lse, 1))
    classes = xp.arange(x.shape[1]).reshape(1, -1, *[1] * (x.ndim - 2))
    p -= classes == xp.expand_dims(index, 1)
    return xp.where(scale == 0, 0, p * scale).astype(x.dtype)
