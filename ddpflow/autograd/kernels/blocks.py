"""Formulas over large arrays, block by block, so that their temporaries stay in the cache."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["blockwise"]

BLOCK = 65536  # elements at a time


def blockwise(xp: Any, formula: Callable[..., Any], *arrays: Any) -> Any:
    """``formula(*arrays)`` for a formula that goes element by element and keeps the dtype.

    NumPy runs each operation over whole arrays, out to memory and back; here large contiguous arrays of float32 or
    float64 go through the formula in pieces.
    """
    first = arrays[0]
    if xp is not np or first.size < 2 * BLOCK or not all([_alike(a, first) for a in arrays]):  # noqa: C419 (quicker)
        return formula(*arrays)
    out = np.empty(first.shape, first.dtype)
    target, flats = out.reshape(-1), [a.reshape(-1) for a in arrays]
    for i in range(0, first.size, BLOCK):
        target[i : i + BLOCK] = formula(*[a[i : i + BLOCK] for a in flats])
    return out


def _alike(a: Any, first: Any) -> bool:
    return bool(a.dtype == first.dtype and a.dtype.char in "fd" and a.shape == first.shape and a.flags.c_contiguous)
