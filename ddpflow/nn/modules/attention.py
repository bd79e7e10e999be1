"""Attention with several heads."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.factories import empty
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.modules.linear import Linear
from ddpflow.nn.parameter import Parameter

__all__ = ["MultiheadAttention", "NonDynamicallyQuantizableLinear"]


class NonDynamicallyQuantizableLinear(Linear):
    """`Linear` under the name that PyTorch prints for an attention's last projection."""


class MultiheadAttention(Module):
    """Attention of queries over keys and values in several heads (Vaswani et al. 2017).

    Args:
        embed_dim: The features of the query and the output.
        num_heads: The number of heads, a divisor of that.
        dropout: Dropout of the attention weights.
        bias: Learn biases of the projections.
        add_bias_kv: Learn one more key and value.
        add_zero_attn: Add a key and a value of zeros.
        kdim: The features of the key; by default ``embed_dim``.
        vdim: The features of the value; by default ``embed_dim``.
        batch_first: Inputs and outputs are ``(N, L, E)`` instead of ``(L, N, E)``.
        device: Where the parameters live.
        dtype: Their type.

    Raises:
        ValueRangeError: When the heads do not divide the features, or one of them is not positive.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueRangeError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads}"
            )
        if embed_dim % num_heads:
            raise ValueRangeError(f"embed_dim must be divisible by num_heads: {embed_dim} by {num_heads}")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        self.add_zero_attn = add_zero_attn
        self._one_width = self.kdim == embed_dim and self.vdim == embed_dim
        width = embed_dim
        parts: dict[str, tuple[int, ...] | None] = {
            "q_proj_weight": None if self._one_width else (width, width),
            "k_proj_weight": None if self._one_width else (width, self.kdim),
            "v_proj_weight": None if self._one_width else (width, self.vdim),
            "in_proj_weight": (3 * width, width) if self._one_width else None,
            "in_proj_bias": (3 * width,) if bias else None,
        }
        for name, shape in parts.items():
            made = None if shape is None else Parameter(empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, made)
        self.out_proj = NonDynamicallyQuantizableLinear(width, width, bias=bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            made = Parameter(empty(1, 1, width, device=device, dtype=dtype)) if add_bias_kv else None
            self.register_parameter(name, made)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """The output and, with ``need_weights``, the attention weights; for the masks see the functional form."""
        swap = self.batch_first and query.ndim == 3
        q: Any = query
        k: Any = key
        v: Any = value
        if swap:
            q = query.transpose(0, 1)
            k = q if key is query else key.transpose(0, 1)
            v = k if value is key else value.transpose(0, 1)
        output, weights = F.multi_head_attention_forward(
            q,
            k,
            v,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._one_width,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(0, 1) if swap else output), weights
