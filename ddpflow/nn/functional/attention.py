"""Attention with several heads, as one function of its inputs and weights (Vaswani et al. 2017)."""

import math
from typing import Any, NamedTuple

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops.attention import scaled_dot_product_attention
from ddpflow.autograd.ops.dropout import dropout
from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.ops.linear import linear
from ddpflow.autograd.ops.padding import pad
from ddpflow.autograd.ops.softmax import softmax
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.dtype import DType
from ddpflow.errors import DtypeError, ShapeError

__all__ = ["additive", "multi_head_attention_forward"]


def additive(mask: Tensor | None, name: str, dtype: DType) -> Tensor | None:
    """A mask that is added to scores, of one that says with True what to leave out; floating masks as they are.

    Raises:
        DtypeError: For a mask that is neither boolean nor floating.
    """
    if mask is None or mask.is_floating_point():
        return mask
    if mask.array.dtype != np.bool_:
        raise DtypeError(f"only bool and floating types of {name} are supported, not {mask.dtype}")
    xp = array_module(mask.array)
    return wrap(xp.where(mask.array, -math.inf, 0.0).astype(dtype.dtype))


class _Projected(NamedTuple):
    """Queries, keys and values, ``(batch * heads, length, head width)``."""

    q: Any
    k: Any
    v: Any


def _check(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None
) -> bool:
    """Whether there is a batch dimension.

    Raises:
        ShapeError: When the numbers of dimensions do not fit together.
    """
    if query.ndim not in (2, 3):
        raise ShapeError(f"query should be unbatched 2D or batched 3D tensor but received shape {tuple(query.shape)}")
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise ShapeError(
            f"query, key and value need as many dimensions, but have shapes {tuple(query.shape)}, {tuple(key.shape)} "
            f"and {tuple(value.shape)}"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise ShapeError(
            f"for a {query.ndim}-D query key_padding_mask must be {query.ndim - 1}-D, not of shape "
            f"{tuple(key_padding_mask.shape)}"
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise ShapeError(f"attn_mask must be 2-D or 3-D, not of shape {tuple(attn_mask.shape)}")
    return query.ndim == 3


def _project(query: Any, key: Any, value: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values by one stacked weight, with as few products as the arguments allow."""
    width = query.shape[-1]
    if query is key and key is value:
        return linear(query, weight, bias).chunk(3, -1)  # type: ignore[no-any-return]
    if key is value:
        weights = weight.split([width, 2 * width])
        biases = (None, None) if bias is None else bias.split([width, 2 * width])
        return linear(query, weights[0], biases[0]), *linear(key, weights[1], biases[1]).chunk(2, -1)
    weights = weight.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return (
        linear(query, weights[0], biases[0]),
        linear(key, weights[1], biases[1]),
        linear(value, weights[2], biases[2]),
    )


def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Attention of queries over keys and values, head by head; `ddpflow.nn.MultiheadAttention` holds the weights.

    Args:
        query: ``(L, N, E)``, or ``(L, E)`` without a batch.
        key: ``(S, N, E)`` or ``(S, E)``.
        value: As the key.
        embed_dim_to_check: ``E``.
        num_heads: The number of heads, a divisor of ``E``.
        in_proj_weight: The three projections one upon another, ``(3 E, E)``.
        in_proj_bias: Their biases, or None.
        bias_k: One more key for every sequence, or None.
        bias_v: One more value, or None.
        add_zero_attn: Add a key and a value of zeros.
        dropout_p: Dropout of the attention weights.
        out_proj_weight: The last projection.
        out_proj_bias: Its bias, or None.
        training: Apply the dropout.
        key_padding_mask: ``(N, S)``: True, or -inf, for keys that do not take part.
        need_weights: Also return the attention weights.
        attn_mask: ``(L, S)`` or ``(N * heads, L, S)``: True, or -inf, for pairs that do not take part.
        use_separate_proj_weight: Take the three next weights instead of the stacked one.
        q_proj_weight: The queries' projection.
        k_proj_weight: The keys' projection.
        v_proj_weight: The values' projection.
        static_k: Keys to use as they are, ``(N * heads, S, E / heads)``.
        static_v: Values to use as they are.
        average_attn_weights: Return the mean of the heads' weights.
        is_causal: A hint that ``attn_mask`` is the causal mask.

    Returns:
        The output, of the query's shape, and the weights ``(N, L, S)`` (``(N, heads, L, S)`` unless averaged), or None.

    Raises:
        ShapeError: When shapes do not fit together.
        DtypeError: For a mask that is neither boolean nor floating.
    """
    batched = _check(query, key, value, key_padding_mask, attn_mask)
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise ShapeError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise ShapeError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if key.shape[:2] != value.shape[:2] or (not use_separate_proj_weight and key.shape != value.shape):
        raise ShapeError(f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}")
    if is_causal and attn_mask is None:
        raise ShapeError("Need attn_mask if specifying the is_causal hint")
    key_padding_mask = additive(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        attn_mask = additive(attn_mask, "attn_mask", query.dtype)
        is_causal = False
    if attn_mask is not None:
        wanted = (length, key.shape[0]) if attn_mask.ndim == 2 else (batch * num_heads, length, key.shape[0])
        if tuple(attn_mask.shape) != wanted:
            raise ShapeError(
                f"The shape of the {attn_mask.ndim}D attn_mask is {tuple(attn_mask.shape)}, but should be {wanted}."
            )
        attn_mask = attn_mask.unsqueeze(0) if attn_mask.ndim == 2 else attn_mask
    if use_separate_proj_weight:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        q = linear(query, q_proj_weight, biases[0])
        k = linear(key, k_proj_weight, biases[1])
        v = linear(value, v_proj_weight, biases[2])
    else:
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    extra = 0
    if (bias_k is None) != (bias_v is None):
        raise ShapeError("bias_k and bias_v must be given together")
    if bias_k is not None:
        if static_k is not None or static_v is not None:
            raise ShapeError("bias cannot be added to static keys or values")
        k = cat([k, bias_k.expand(1, batch, -1)])
        v = cat([v, bias_v.expand(1, batch, -1)])
        extra += 1
    heads = _Projected(*(_split_heads(x, batch * num_heads, width // num_heads) for x in (q, k, v)))
    heads = _Projected(heads.q, *(h if s is None else s for h, s in zip(heads[1:], (static_k, static_v), strict=True)))
    if add_zero_attn:
        heads = _Projected(heads.q, pad(heads.k, (0, 0, 0, 1)), pad(heads.v, (0, 0, 0, 1)))
        extra += 1
    if extra:
        attn_mask = None if attn_mask is None else pad(attn_mask, (0, extra))
        key_padding_mask = None if key_padding_mask is None else pad(key_padding_mask, (0, extra))
    source = heads.k.shape[1]
    if key_padding_mask is not None:
        if tuple(key_padding_mask.shape) != (batch, source):
            raise ShapeError(
                f"key_padding_mask of shape {tuple(key_padding_mask.shape)} for {batch} sequences of {source} keys"
            )
        by_head = key_padding_mask.reshape(batch, 1, 1, source).expand(-1, num_heads, -1, -1)
        by_head = by_head.reshape(batch * num_heads, 1, source)
        attn_mask = by_head if attn_mask is None else attn_mask + by_head
    chance = dropout_p if training else 0.0
    weights: Any = None
    if need_weights:
        scores = (heads.q * math.sqrt(1.0 / heads.q.shape[-1])) @ heads.k.transpose(-2, -1)
        weights = softmax(scores if attn_mask is None else scores + attn_mask, -1)
        if chance > 0.0:
            weights = dropout(weights, chance)
        attended = weights @ heads.v
        weights = weights.reshape(batch, num_heads, length, source)
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    else:
        attended = scaled_dot_product_attention(*heads, attn_mask, chance, is_causal)
    attended = attended.transpose(0, 1).reshape(length, batch, width)
    output = linear(attended, out_proj_weight, out_proj_bias)
    return (output if batched else output.squeeze(1)), weights


def _split_heads(x: Any, heads: int, width: int) -> Any:
    """``(length, batch, E)`` as ``(batch * heads, length, width)``."""
    return x.reshape(x.shape[0], heads, width).transpose(0, 1)
