"""Batch normalisation: a few channels at a time for NumPy, kernels for CuPy, plain formulas for everything else.

A block of channels is copied out to one run of memory per channel, and all passes over it stay in the cache.
"""

from typing import Any

import numpy as np

from ddpflow.autograd.kernels import cuda

__all__ = ["batch_norm", "batch_norm_backward"]

BLOCK = 32768  # elements of a block
LONGEST = 1 << 31  # elements of a channel that the CUDA kernels can count
SHORTEST = 16  # runs of memory below this are not worth copying out


def _blocked(xp: Any, x: Any) -> bool:
    return xp is np and x.ndim > 2 and x.dtype.char in "fd" and x[0, 0].size >= SHORTEST and x.flags.c_contiguous


def _fused(xp: Any, x: Any, weight: Any, bias: Any = None) -> bool:
    return cuda.fits_normalized(xp, x, weight, bias) and x.size < LONGEST * x.shape[1]


class _Blocks:
    """Blocks of channels of ``(N, C, ...)`` arrays."""

    def __init__(self, x: Any) -> None:
        self.samples, self.channels = x.shape[:2]
        self.run = x[0, 0].size
        self.count = self.samples * self.run
        self.step = max(1, min(self.channels, BLOCK // self.count))
        self.ones = np.ones(self.count, x.dtype)

    def buffer(self, dtype: Any) -> Any:
        """Room for a block, ``(channels, N, run)``."""
        return np.empty((self.step, self.samples, self.run), dtype)

    def of(self, x: Any, start: int) -> Any:
        """The block of an array that starts at a channel, as a view ``(channels, N, run)``."""
        return x.reshape(self.samples, self.channels, self.run)[:, start : start + self.step].swapaxes(0, 1)


def batch_norm(xp: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """Normalise each channel of ``(N, C, ...)`` over everything else; returns output, means and (biased) variances."""
    if not _blocked(xp, x):
        if xp is not np and _fused(xp, x, weight, bias):
            return cuda.batch_norm(xp, x, weight, bias, eps)
        return _plain(xp, x, weight, bias, eps)
    blocks = _Blocks(x)
    out = np.empty_like(x)
    mean, var = np.empty(blocks.channels, x.dtype), np.empty(blocks.channels, x.dtype)
    room = blocks.buffer(x.dtype)
    for start in range(0, blocks.channels, blocks.step):
        source = blocks.of(x, start)
        buffer = room[: len(source)]
        flat = buffer.reshape(len(source), blocks.count)
        here = slice(start, start + len(source))
        buffer[...] = source
        np.matmul(flat, blocks.ones, out=mean[here])
        mean[here] /= blocks.count
        flat -= mean[here, None]
        np.vecdot(flat, flat, out=var[here])
        var[here] /= blocks.count
        scale = 1 / np.sqrt(var[here] + x.dtype.type(eps))
        if weight is not None:
            scale *= weight[here]
        target = blocks.of(out, start)
        if bias is None:
            np.multiply(buffer, scale[:, None, None], out=target)
        else:
            flat *= scale[:, None]
            np.add(buffer, bias[here, None, None], out=target)
    return out, mean, var


def _plain(xp: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    axes, column = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    wide = x.astype(xp.float32) if x.dtype.itemsize == 2 else x
    mean = wide.mean(axes, keepdims=True)
    y = wide - mean
    var = (y * y).mean(axes, keepdims=True)
    scale = 1 / xp.sqrt(var + eps)
    y = y * (scale if weight is None else scale * weight.reshape(column))
    if bias is not None:
        y = y + bias.reshape(column)
    return (y if y.dtype == x.dtype else y.astype(x.dtype)), mean.reshape(-1), var.reshape(-1)


def batch_norm_backward(xp: Any, g: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias."""
    if not (_blocked(xp, x) and g.dtype == x.dtype and g.flags.c_contiguous):
        if xp is not np and g.dtype == x.dtype and _fused(xp, x, weight):
            return cuda.batch_norm_backward(xp, g, x, weight, mean, var, eps)
        return _plain_backward(xp, g, x, weight, mean, var, eps)
    blocks = _Blocks(x)
    out = np.empty_like(x)
    gw, gb = np.empty(blocks.channels, x.dtype), np.empty(blocks.channels, x.dtype)
    room, other = blocks.buffer(x.dtype), blocks.buffer(x.dtype)
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    factor = rstd if weight is None else rstd * weight
    for start in range(0, blocks.channels, blocks.step):
        source = blocks.of(x, start)
        here = slice(start, start + len(source))
        centred, grads = room[: len(source)], other[: len(source)]
        np.subtract(source, mean[here, None, None], out=centred)
        grads[...] = blocks.of(g, start)
        flat, grads_flat = centred.reshape(len(source), -1), grads.reshape(len(source), -1)
        np.matmul(grads_flat, blocks.ones, out=gb[here])
        np.vecdot(grads_flat, flat, out=gw[here])
        gw[here] *= rstd[here]
        flat *= (gw[here] * rstd[here] / -blocks.count)[:, None]
        flat += grads_flat
        flat -= (gb[here] / blocks.count)[:, None]
        np.multiply(centred, factor[here, None, None], out=blocks.of(out, start))
    return out, gw, gb


def _plain_backward(xp: Any, g: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float) -> tuple[Any, Any, Any]:
    axes, column = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    rstd = 1 / xp.sqrt(var + eps).reshape(column)
    normal = (x - mean.reshape(column)) * rstd
    gb = g.sum(axes, keepdims=True)
    gw = (g * normal).sum(axes, keepdims=True)
    count = x.size // x.shape[1]
    gx = (g - (gb + normal * gw) / count) * (rstd if weight is None else rstd * weight.reshape(column))
    return gx, gw.reshape(-1), gb.reshape(-1)
