"""GELU: in float32 for NumPy, in blocks that stay in the cache; by a kernel for CuPy.

There ``P(X <= x)`` of a standard normal X is written as ``(1 + tanh(x * p(x * x))) / 2``: NumPy's tanh is quick, and
it has no erf. The polynomial p was fitted so that the result differs from the exact one by less than 6e-7 everywhere (a
minimax fit of degree 6, weighted by what an error in it does to the result; PyTorch's own float32 GELU is off by up to
1.1e-6). With the usual approximation's p, of degree 1, the same code computes that.

The backward pass gets the probability back as output / input, so nothing is kept but these two.
"""

import math
from typing import Any

import numpy as np

from ddpflow.autograd.kernels import cuda

__all__ = ["fits", "gelu", "gelu_backward"]

BLOCK = 32768
# Coefficients of p, lowest power first.
_EXACT = (
    0.797884216, 0.0363342835, -3.31299942e-05, -5.52401584e-05, 3.96910945e-06, -1.33446409e-07, 1.80561641e-09,
)  # fmt: skip
_TANH = (math.sqrt(2 / math.pi), math.sqrt(2 / math.pi) * 0.044715)
_DENSITY = 1 / math.sqrt(2 * math.pi)


def fits(xp: Any, x: Any) -> bool:
    """Whether a kernel takes an array."""
    return x.dtype.char == "f" and x.flags.c_contiguous if xp is np else cuda.fits(xp, x)


def gelu(xp: Any, x: Any, approximate: str) -> Any:
    """``x * P(X <= x)``, exact or by the tanh formula (``approximate="tanh"``)."""
    if xp is not np:
        return cuda.gelu(xp, x, approximate)
    coefficients = [np.float32(c) for c in reversed(_TANH if approximate == "tanh" else _EXACT)]
    out = np.empty_like(x)
    source, target = x.reshape(-1), out.reshape(-1)
    squares = np.empty(min(BLOCK, source.size), np.float32)
    half = np.float32(0.5)
    for i in range(0, source.size, BLOCK):
        part, y = source[i : i + BLOCK], target[i : i + BLOCK]
        s = squares[: part.size]
        np.multiply(part, part, out=s)
        np.multiply(s, coefficients[0], out=y)
        y += coefficients[1]
        for c in coefficients[2:]:
            y *= s
            y += c
        y *= part
        np.tanh(y, out=y)
        y *= half
        y += half
        y *= part
    return out


def gelu_backward(xp: Any, g: Any, x: Any, y: Any, approximate: str) -> Any:
    """The input's gradient from the output's, the input and the output."""
    if xp is not np:
        return cuda.gelu_backward(xp, g, x, approximate)
    out = np.empty_like(x)
    gs, xs, ys, target = np.ascontiguousarray(g).reshape(-1), x.reshape(-1), y.reshape(-1), out.reshape(-1)
    work = np.empty(min(BLOCK, xs.size), np.float32)
    exact = approximate != "tanh"
    c0, c1 = np.float32(_TANH[0]), np.float32(3 * _TANH[1])
    for i in range(0, xs.size, BLOCK):
        part, slope = xs[i : i + BLOCK], target[i : i + BLOCK]
        w = work[: part.size]
        np.divide(ys[i : i + BLOCK], part, out=slope)  # the probability
        zero = part == 0
        if zero.any():
            slope[zero] = 0.5
        np.multiply(part, part, out=w)
        if exact:
            w *= np.float32(-0.5)
            np.exp(w, out=w)
            w *= np.float32(_DENSITY)
        else:  # the density is half of (1 - t * t) times the slope of x * p(x * x), with t = 2 * probability - 1
            w *= c1
            w += c0
            w *= np.float32(2)
            w *= slope
            w *= np.float32(1) - slope
        w *= part
        slope += w
        slope *= gs[i : i + BLOCK]
    return out
