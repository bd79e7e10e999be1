"""Scaled dot-product attention for NumPy: few heads and rows at a time, whose scores stay in the cache.

With a causal mask a block of rows meets only the keys up to its last row: nearly half of the work falls away. Inputs
are taken as they lie: what ``transpose(1, 2)`` made of ``(B, T, H, D)`` is not copied, and the output lies like it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["attention", "attention_backward"]

ROWS = 64  # queries of a block
BLOCK = 128 * 1024  # scores of a block, over all its heads
KEPT_BYTES = 32 << 20  # probabilities up to this size are kept for the backward pass, larger ones computed again


def _heads(*arrays: Any) -> list[Any]:
    """Arrays with at least one leading axis."""
    return [a if a is None or a.ndim > 2 else a[None] for a in arrays]


def _blocks(lead: tuple[int, ...], length: int, source: int, causal: bool) -> Iterator[tuple[Any, slice, slice]]:
    """Blocks of work: an index of heads, rows of queries, and the keys that they may see."""
    rows = min(length, ROWS) if causal else length
    step = max(1, BLOCK // max(1, rows * source))
    for outer in np.ndindex(*lead[:-1]):
        for head in range(0, lead[-1], step):
            for row in range(0, length, rows):
                end = min(row + rows, length)
                seen = min(end, source) if causal else source
                yield (*outer, slice(head, head + step)), slice(row, end), slice(seen)


def _triangle(dtype: Any) -> Any:
    """What hides later keys from the rows of a block on the diagonal."""
    return np.triu(np.full((ROWS, ROWS), -np.inf, dtype), 1)


def _scores(q: Any, k: Any, mask: Any, scale: float, row: int, triangle: Any, out: Any) -> Any:
    """The scores of a block whose first row is ``row``; with a triangle of -inf for the causal mask, or None."""
    s = np.matmul(q * q.dtype.type(scale), k.swapaxes(-1, -2), out=out)
    if mask is not None:
        s += mask
    if triangle is not None and s.shape[-1] > row:  # the block on the diagonal
        s[..., row:] += triangle[: s.shape[-2], : s.shape[-1] - row]
    return s


def attention(
    q: Any, k: Any, v: Any, mask: Any, keep: Any, scale: float, keep_scale: float, causal: bool
) -> tuple[Any, Any, Any]:
    """Attention of queries ``(*, T, D)``, keys ``(*, S, D)`` and values ``(*, S, E)`` with equal leading axes.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        mask: Added to the scores, ``(*, T, S)``; or None. A row masked out whole gives zeros.
        keep: Which probabilities stay (dropout), boolean ``(*, T, S)``; or None.
        scale: Of the scores.
        keep_scale: Of the probabilities that stay.
        causal: Row t sees keys up to t.

    Returns:
        The output ``(*, T, E)``; the probabilities before dropout, where they are kept; and the logarithm of each row's
        sum, where they are not.
    """
    shape = (*q.shape[:-2], q.shape[-2], v.shape[-1])
    out = np.empty(shape, q.dtype)
    if q.ndim > 3:
        out = np.empty((*shape[:-3], shape[-2], shape[-3], shape[-1]), q.dtype).swapaxes(-2, -3)
    q, k, v, mask, keep, o = _heads(q, k, v, mask, keep, out)
    length, source = q.shape[-2], k.shape[-2]
    size = (*q.shape[:-1], source)
    p = lse = None
    if int(np.prod(size)) * q.itemsize <= KEPT_BYTES:
        p = np.empty(size, q.dtype)
    else:
        lse = np.empty(q.shape[:-1], q.dtype)
    ones, triangle = np.ones(source, q.dtype), _triangle(q.dtype) if causal else None
    for heads, rows, seen in _blocks(q.shape[:-2], length, source, causal):
        part = None if mask is None else mask[heads][..., rows, :]
        into = None if p is None else p[heads][..., rows, seen]
        s = _scores(q[heads][..., rows, :], k[heads][..., seen, :], part, scale, rows.start, triangle, into)
        top = s.max(-1, keepdims=True)
        if mask is not None:
            top[top == -np.inf] = 0  # a row that may see nothing
        s -= top
        np.exp(s, out=s)
        total = np.matmul(s, ones[seen])[..., None]
        if lse is not None:
            lse[heads][..., rows] = (top + np.log(total))[..., 0]
        if mask is not None:
            total[total == 0] = 1
        s *= np.reciprocal(total, out=total)
        if keep is not None:
            s = s * keep[heads][..., rows, seen]
            s *= s.dtype.type(keep_scale)
        np.matmul(s, v[heads][..., seen, :], out=o[heads][..., rows, :])
    return out, p, lse


def attention_backward(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    keep: Any,
    p: Any,
    lse: Any,
    scale: float,
    keep_scale: float,
    causal: bool,
    want_mask: bool,
) -> tuple[Any, Any, Any, Any]:
    """The gradients of queries, keys, values and (if wanted) the mask, which is that of the scores."""
    gq, gk, gv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    gm = np.zeros((*q.shape[:-1], k.shape[-2]), q.dtype) if want_mask else None
    results = (gq, gk, gv, gm)
    g, q, k, v, mask, keep, gq, gk, gv, gm = _heads(g, q, k, v, mask, keep, gq, gk, gv, gm)
    length, source = q.shape[-2], k.shape[-2]
    triangle = _triangle(q.dtype) if causal else None
    for heads, rows, seen in _blocks(q.shape[:-2], length, source, causal):
        here, there = (*heads, rows), (*heads, seen)
        qs, ks, gs = q[here], k[there], g[here]
        if p is not None:
            s = p[heads][..., rows, seen]
        else:
            part = None if mask is None else mask[here]
            s = _scores(qs, ks, part, scale, rows.start, triangle, None)
            s -= lse[here][..., None]
            np.exp(s, out=s)
            if mask is not None:
                s[np.isnan(s)] = 0
        dropped = s
        ds = np.matmul(gs, v[there].swapaxes(-1, -2))
        if keep is not None:
            stay = keep[heads][..., rows, seen]
            dropped = s * stay
            dropped *= s.dtype.type(keep_scale)
            ds *= stay
            ds *= s.dtype.type(keep_scale)
        gv[there] += np.matmul(dropped.swapaxes(-1, -2), gs)
        ds -= np.vecdot(ds, s)[..., None]
        ds *= s
        if gm is not None:
            gm[heads][..., rows, seen] = ds
        ds *= s.dtype.type(scale)
        np.matmul(ds, ks, out=gq[here])
        gk[there] += np.matmul(ds.swapaxes(-1, -2), qs)
    return results
