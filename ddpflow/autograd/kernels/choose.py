"""Elements of one array or another by a mask, without branches: ``where`` is slow on masks without a pattern."""

from typing import Any

import numpy as np

__all__ = ["choose"]

BLOCK = 32768  # elements at a time, so that the passes over them stay in the cache
FEW = 8192  # below this ``where`` costs no more than the calls
_BITS = {"f": np.int32, "d": np.int64}


def choose(xp: Any, mask: Any, a: Any, b: Any) -> Any:
    """``xp.where(mask, a, b)``; one of a and b may be a number.

    Large float32 and float64 arrays of the mask's shape are taken as integers, and bits are chosen:
    ``b ^ ((a ^ b) & -mask)``.
    """
    if xp is not np or getattr(mask, "size", 1) < FEW:
        return xp.where(mask, a, b)
    like = a if isinstance(a, np.ndarray) and a.ndim else b
    bits = _BITS.get(like.dtype.char) if isinstance(like, np.ndarray) else None
    if bits is None or not (_alike(mask, mask, np.dtype(bool)) and _fits(a, mask, like) and _fits(b, mask, like)):
        return np.where(mask, a, b)
    out = np.empty(mask.shape, like.dtype)
    chosen, flags = out.reshape(-1).view(bits), np.ascontiguousarray(mask).reshape(-1).view(np.int8)
    left, right = _as_bits(a, like.dtype, bits), _as_bits(b, like.dtype, bits)
    ones = np.empty(min(BLOCK, flags.size), bits)
    for i in range(0, flags.size, BLOCK):
        part = slice(i, i + BLOCK)
        o = chosen[part]
        k = ones[: o.size]
        k[...] = flags[part]
        x = left[part] if left.ndim else left
        y = right[part] if right.ndim else right
        if not right.ndim and not right:  # a where the mask is True, else 0
            np.negative(k, out=k)
            np.bitwise_and(k, x, out=o)
        elif not left.ndim and not left:  # 0 where the mask is True, else b
            k -= 1
            np.bitwise_and(k, y, out=o)
        else:
            np.negative(k, out=k)
            np.bitwise_xor(x, y, out=o)
            o &= k
            o ^= y
    return out


def _alike(x: Any, mask: Any, dtype: Any) -> bool:
    return bool(x.dtype == dtype and x.shape == mask.shape)


def _fits(x: Any, mask: Any, like: Any) -> bool:
    """Whether an operand is a number, or an array that is taken as it is."""
    return isinstance(x, (int, float)) or (isinstance(x, np.ndarray) and _alike(x, mask, like.dtype))


def _as_bits(x: Any, dtype: Any, bits: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x).reshape(-1).view(bits)
    return np.asarray(x, dtype).view(bits)
