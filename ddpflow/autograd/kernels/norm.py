"""Layer normalisation: blocked for NumPy, kernels for CuPy, plain formulas for everything else."""

import math
from typing import Any

import numpy as np

from ddpflow.autograd.kernels import cuda

__all__ = ["layer_norm", "layer_norm_backward"]

BLOCK = 32768  # elements of a block: with its temporaries it stays in the second-level cache


def _blocked(xp: Any, *arrays: Any) -> bool:
    return xp is np and all(a is None or (a.flags.c_contiguous and a.dtype == arrays[0].dtype) for a in arrays)


def layer_norm(xp: Any, x: Any, weight: Any, bias: Any, axes: int, eps: float) -> tuple[Any, Any, Any]:
    """Normalise over the last ``axes`` axes, scale and shift; returns the output, the means and 1 / deviations."""
    if not _blocked(xp, x, weight, bias) or x.dtype.char not in "fd" or not x.size:
        over = tuple(range(x.ndim - axes, x.ndim))
        if xp is not np and cuda.fits_normalized(xp, x, weight, bias):
            y, mean, rstd = cuda.layer_norm(xp, x, weight, bias, math.prod(x.shape[x.ndim - axes :]), eps)
            small = (*x.shape[: x.ndim - axes], *[1] * axes)
            return y, mean.reshape(small), rstd.reshape(small)
        wide = x.astype(xp.float32) if x.dtype.itemsize == 2 else x
        mean = wide.mean(over, keepdims=True)
        centred = wide - mean
        rstd = 1 / xp.sqrt((centred * centred).mean(over, keepdims=True) + eps)
        y = centred * rstd
        if weight is not None:
            y = y * weight
        if bias is not None:
            y = y + bias
        return (y if y.dtype == x.dtype else y.astype(x.dtype)), mean, rstd
    lead, width = x.shape[: x.ndim - axes], int(np.prod(x.shape[x.ndim - axes :]))
    out = np.empty_like(x)
    source = x.reshape(-1, width)
    target = out.reshape(-1, width)
    rows = len(source)
    mean, rstd = np.empty((rows, 1), x.dtype), np.empty((rows, 1), x.dtype)
    w = None if weight is None else weight.reshape(-1)
    b = None if bias is None else bias.reshape(-1)
    step = max(1, BLOCK // width)
    shares = np.full(width, 1 / width, x.dtype)  # BLAS adds rows up quicker than sum and mean do
    for i in range(0, rows, step):
        s, y, m, r = source[i : i + step], target[i : i + step], mean[i : i + step], rstd[i : i + step]
        np.matmul(s, shares, out=m[:, 0])
        np.subtract(s, m, out=y)
        np.vecdot(y, y, out=r[:, 0])
        r *= shares[0]
        r += x.dtype.type(eps)
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        y *= r
        if w is not None:
            y *= w
        if b is not None:
            y += b
    small = (*lead, *[1] * axes)
    return out, mean.reshape(small), rstd.reshape(small)


def layer_norm_backward(xp: Any, g: Any, x: Any, weight: Any, mean: Any, rstd: Any, axes: int) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias."""
    lead = tuple(range(x.ndim - axes))
    if not _blocked(xp, x, g, weight, mean) or x.dtype.char not in "fd" or not x.size:
        over = tuple(range(x.ndim - axes, x.ndim))
        if xp is not np and cuda.fits_normalized(xp, x, weight) and g.dtype == x.dtype:
            shape = x.shape[x.ndim - axes :]
            gx, gw, gb = cuda.layer_norm_backward(xp, g, x, weight, mean, rstd, math.prod(shape))
            return gx, gw.reshape(shape), gb.reshape(shape)
        normal = (x - mean) * rstd
        scaled = g if weight is None else g * weight
        inner = (scaled * normal).mean(over, keepdims=True)
        gx = (scaled - scaled.mean(over, keepdims=True) - normal * inner) * rstd
        return gx, (g * normal).sum(lead), g.sum(lead)
    width = int(np.prod(x.shape[x.ndim - axes :]))
    out = np.empty_like(x)
    gs, xs, target = g.reshape(-1, width), x.reshape(-1, width), out.reshape(-1, width)
    means, rstds = mean.reshape(-1, 1), rstd.reshape(-1, 1)
    w = np.ones(width, x.dtype) if weight is None else weight.reshape(-1)
    shares = w * x.dtype.type(1 / width)
    gw, gb = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
    step = max(1, BLOCK // width)
    ones, work = np.ones(step, x.dtype), np.empty((step, width), x.dtype)
    for i in range(0, len(xs), step):
        gi, r = gs[i : i + step], rstds[i : i + step]
        normal = np.subtract(xs[i : i + step], means[i : i + step], out=target[i : i + step])
        normal *= r
        product = np.multiply(gi, normal, out=work[: len(gi)])
        gw += ones[: len(gi)] @ product
        gb += ones[: len(gi)] @ gi
        inner, centre = product @ shares, gi @ shares  # means over the row of g * w * normal and of g * w
        normal *= inner[:, None]
        normal += centre[:, None]
        scaled = np.multiply(gi, w, out=product)
        np.subtract(scaled, normal, out=normal)
        normal *= r
    shape = x.shape[x.ndim - axes :]
    return out, gw.reshape(shape), gb.reshape(shape)
