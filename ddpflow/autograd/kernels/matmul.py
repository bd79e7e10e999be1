"""The matrix product of an affine layer."""

from typing import Any

import numpy as np

__all__ = ["matmul_transposed", "product"]

FEW = 128  # rows up to which the product of the transposes is the quicker one
SMALL = 128  # and the sizes of the weight from which it pays


def matmul_transposed(xp: Any, x: Any, w: Any, bias: Any) -> Any:
    """``x @ w.T + bias`` of matrices ``(rows, in)`` and ``(out, in)``.

    OpenBLAS is up to a third quicker on ``w @ x.T`` when x has few rows; the transposition joins the addition of the
    bias.
    """
    if xp is np and len(x) <= FEW and len(w) >= SMALL and x.shape[1] >= SMALL:
        turned = w.dot(x.T).T
        if bias is None:
            return np.ascontiguousarray(turned)
        out = np.empty(turned.shape, turned.dtype)
        return np.add(turned, bias, out=out)
    out = x.dot(w.T)  # a little quicker to call than matmul
    if bias is not None:
        out += bias
    return out


def product(a: Any, b: Any) -> Any:
    """``a @ b`` of matrices; NumPy's ``dot`` is quicker to call, which small layers notice."""
    return a.dot(b) if a.__class__ is np.ndarray else a @ b
