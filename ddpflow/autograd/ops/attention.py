"""Scaled dot-product attention."""

import math

import numpy as np

from ddpflow.autograd.kernels import attention as kernels
from ddpflow.autograd.kernels import cuda
from ddpflow.autograd.kernels.softmax import softmax_backward
from ddpflow.autograd.op import Bools, apply, op
from ddpflow.autograd.ops.dropout import draw_keep
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["scaled_dot_product_attention"]


def _safe_softmax(xp, scores):
    """Softmax over the last axis; zeros for a row of only -inf (one that may see nothing)."""
    top = xp.amax(scores, -1, keepdims=True)
    p = xp.exp(scores - xp.where(top == -math.inf, 0.0, top))
    total = p.sum(-1, keepdims=True)
    return p / xp.where(total == 0, 1.0, total)


def _composite(xp, query, key, value, mask, keep, scale, keep_scale=1.0, causal=False):
    scores = (query @ key.swapaxes(-1, -2)) * scale
    if causal:
        mask = apply(xp, causal_mask, query, query.shape[-2], key.shape[-2])
    if mask is not None:
        scores = scores + mask
    p = _safe_softmax(xp, scores)
    if keep is not None:
        p = p * (keep * keep_scale)
    return p @ value


@op(
    samples=[
        ((2, 3, 4), (2, 5, 4), (2, 5, 2), None, None, 0.5),
        ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (3, 5), None, 0.5),
        ((2, 3, 4), (2, 5, 4), (2, 5, 4), (2, 3, 5), Bools((2, 3, 5)), 1.0, 2.0),
        ((2, 1, 6, 4), (2, 1, 5, 4), (2, 1, 5, 3), None, None, 0.5, 1.0, True),
        ((6, 4), (7, 4), (7, 3), None, None, 0.5, 1.0, True),
    ],
    tensors=5,
    composite=_composite,
)
def attention(xp, query, key, value, mask, keep, scale, keep_scale=1.0, causal=False):
    """Attention ``softmax(query @ key.T * scale + mask) * keep * keep_scale @ value``.

    The mask is added and broadcasts; ``keep`` is boolean (dropout); with ``causal`` row t sees keys up to t; the
    leading axes of the others are equal.
    """
    if xp is np and query.dtype.char in "fd":
        return _by_block(query, key, value, mask, keep, scale, keep_scale, causal)
    wide = [x if x is None or x.dtype.itemsize != 2 else x.astype(xp.float32) for x in (query, key, value, mask)]
    q, k, v, m = wide
    d = None if keep is None else keep * keep_scale
    p = _weights(xp, q @ k.swapaxes(-1, -2), m, scale, causal)
    dropped = p if d is None else p * d

    def vjp(g):
        ds = g @ v.swapaxes(-1, -2)
        if d is not None:
            ds = ds * d
        ds = softmax_backward(xp, ds, p, -1)
        return ds @ k * scale, ds.swapaxes(-1, -2) @ q * scale, dropped.swapaxes(-1, -2) @ g, ds, None

    return (dropped @ v).astype(query.dtype), vjp


def _weights(xp, scores, mask, scale, causal):
    """The weights of the keys, from the products of queries and keys."""
    if mask is not None and not causal:
        scores, scale = scores * scale + mask, 1.0
    if cuda.fits(xp, scores):
        return cuda.attention_weights(xp, scores, scale, causal)
    scores = scores * scale
    return _safe_softmax(xp, scores + causal_mask.op.rule(xp, scores, *scores.shape[-2:]) if causal else scores)


def _by_block(query, key, value, mask, keep, scale, keep_scale, causal):
    """The NumPy path."""
    full = (*query.shape[:-1], key.shape[-2])
    m = mask if mask is None or mask.shape == full else np.broadcast_to(mask, full)
    d = keep if keep is None or keep.shape == full else np.broadcast_to(keep, full)
    out, p, lse = kernels.attention(query, key, value, m, d, scale, keep_scale, causal)

    def vjp(g):
        wanted = mask is not None
        return *kernels.attention_backward(g, query, key, value, m, d, p, lse, scale, keep_scale, causal, wanted), None

    return out, vjp


@op(samples=[((3, 4), 2, 5)], differentiable=False)
def causal_mask(xp, input, length, source):
    """0 on and below the diagonal, -inf above it, in the dtype of the input."""
    return xp.triu(xp.full((length, source), -math.inf, input.dtype), 1)


@op(samples=[(Bools((3, 4)), np.dtype("float32"))], differentiable=False)
def additive_mask(xp, input, dtype):
    """For a boolean mask (True takes part): 0 where True, -inf where False."""
    return xp.where(input, xp.zeros((), dtype), xp.full((), -math.inf, dtype))


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """Attention: ``softmax(query @ key.T * scale + mask) @ value`` (PyTorch's ``F.scaled_dot_product_attention``).

    Args:
        query: Shape ``(*, T, D)``.
        key: Shape ``(*, S, D)``.
        value: Shape ``(*, S, E)``.
        attn_mask: Broadcasts to ``(*, T, S)``: boolean (True takes part) or added to the scores.
        dropout_p: Probability with which attention weights are set to 0; applied whenever it is not 0.
        is_causal: Position t sees positions up to t only; excludes ``attn_mask``.
        scale: Of the scores; the default is ``1 / sqrt(D)``.
        enable_gqa: Let groups of query heads share a key and value head.

    Returns:
        Shape ``(*, T, E)``; zeros for a query that may see nothing, as in PyTorch.

    Raises:
        ShapeError: When the shapes do not fit, or both a mask and ``is_causal`` are given.
        ValueRangeError: When dropout_p is outside [0, 1].
    """
    if query.ndim < 2 or key.ndim < 2 or value.ndim < 2:
        raise ShapeError("scaled_dot_product_attention(): query, key and value need at least 2 dimensions")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention(): shapes {tuple(query.shape)}, {tuple(key.shape)} and "
            f"{tuple(value.shape)} do "
            "not fit: query and key need one width, key and value one length"
        )
    if is_causal and attn_mask is not None:
        raise ShapeError("scaled_dot_product_attention(): give attn_mask or is_causal=True, not both")
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueRangeError(f"dropout_p has to be between 0 and 1, but got {dropout_p}")
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (
        x if tuple(x.shape[:-2]) == lead else x.expand(*lead, *x.shape[-2:]) for x in (query, key, value)
    )
    length, source = query.shape[-2], key.shape[-2]
    mask = attn_mask
    if mask is not None and mask.array.dtype.kind == "b":
        mask = additive_mask(mask, query.array.dtype)
    keep = None
    if dropout_p > 0.0:
        weights = query.detach()[..., :1].expand(*lead, length, source)
        keep = draw_keep(weights, dropout_p)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    return attention(query, key, value, mask, keep, scale, 1.0 / max(1.0 - dropout_p, 1e-12), is_causal)
