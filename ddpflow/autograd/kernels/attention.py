"""Scaled dot-product attention, one head at a time: scores, softmax and products of a head stay in the cache."""

from typing import Any

import numpy as np

__all__ = ["attention", "attention_backward"]


def _probabilities(q: Any, k: Any, mask: Any, scale: float, out: Any) -> Any:
    """The softmax of one head's scores, written to ``out``; zeros for a row masked out whole."""
    s = np.matmul(q, k.T, out=out)
    s *= scale
    if mask is not None:
        s += mask
    top = s.max(1, keepdims=True)
    if mask is not None:
        top[top == -np.inf] = 0  # a row that may see nothing
    s -= top
    np.exp(s, out=s)
    total = s.sum(1, keepdims=True)
    if mask is not None:
        total[total == 0] = 1
    s /= total
    return s


def attention(q: Any, k: Any, v: Any, mask: Any, keep: Any, scale: float, keep_scale: float = 1.0) -> tuple[Any, Any]:
    """Attention over NumPy arrays ``(heads, length, width)``.

    Args:
        q: Queries, ``(B, T, D)``.
        k: Keys, ``(B, S, D)``.
        v: Values, ``(B, S, E)``.
        mask: Added to the scores; ``(T, S)``, ``(B, T, S)``, or None.
        keep: Which probabilities stay (dropout), boolean ``(B, T, S)``, or None.
        scale: Of the scores.
        keep_scale: Of the probabilities that stay.

    Returns:
        The output ``(B, T, E)`` and the probabilities before dropout ``(B, T, S)``.
    """
    heads, length = q.shape[:2]
    p = np.empty((heads, length, k.shape[1]), q.dtype)
    out = np.empty((heads, length, v.shape[2]), q.dtype)
    each = mask is not None and mask.ndim == 3
    for h in range(heads):
        s = _probabilities(q[h], k[h], mask[h] if each else mask, scale, p[h])
        np.matmul(s if keep is None else s * keep[h], v[h], out=out[h])
    if keep is not None:
        out *= keep_scale
    return out, p


def attention_backward(
    g: Any, q: Any, k: Any, v: Any, p: Any, keep: Any, scale: float, keep_scale: float, want_mask: bool
) -> tuple[Any, Any, Any, Any]:
    """The gradients of queries, keys, values and (if wanted) the mask, which is that of the scores."""
    gq, gk, gv = np.empty(q.shape, q.dtype), np.empty(k.shape, k.dtype), np.empty(v.shape, v.dtype)
    gm = np.empty(p.shape, p.dtype) if want_mask else None
    for h in range(len(q)):
        s = p[h]
        dropped = s if keep is None else s * keep[h]
        np.matmul(dropped.T, g[h], out=gv[h])
        ds = g[h] @ v[h].T
        if keep is not None:
            ds *= keep[h]
            ds *= keep_scale
            gv[h] *= keep_scale
        ds -= np.vecdot(ds, s)[:, None]
        ds *= s
        if gm is not None:
            gm[h] = ds
        ds *= scale
        np.matmul(ds, k[h], out=gq[h])
        np.matmul(ds.T, q[h], out=gk[h])
    return gq, gk, gv, gm
