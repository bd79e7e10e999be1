"""The transformer: stacks of encoder and decoder layers (Vaswani et al. 2017)."""

import copy
import math
from typing import Any

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module, as_device, move
from ddpflow.dtype import as_numpy, get_default_dtype
from ddpflow.errors import ShapeError
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.functional.attention import additive
from ddpflow.nn.module import Module
from ddpflow.nn.modules.container import ModuleList
from ddpflow.nn.modules.normalization import LayerNorm
from ddpflow.nn.modules.transformer_layers import Activation, TransformerDecoderLayer, TransformerEncoderLayer

__all__ = ["Transformer", "TransformerDecoder", "TransformerEncoder"]


def _clones(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


def _is_causal(mask: Tensor | None, hint: bool | None) -> bool:
    """Whether a mask is the causal one; a hint is believed."""
    if hint is not None or mask is None or mask.ndim != 2:
        return bool(hint)
    xp = array_module(mask.array)
    rows, columns = mask.shape
    blocked = mask.array == -math.inf if mask.is_floating_point() else mask.array
    causal = xp.triu(xp.ones((rows, columns), bool), 1)
    if rows != columns or not bool((blocked == causal).all()):
        return False
    return not mask.is_floating_point() or not bool(xp.where(causal, 0, mask.array).any())


class TransformerEncoder(Module):
    """A stack of copies of an encoder layer.

    Args:
        encoder_layer: The layer; it is copied.
        num_layers: How many.
        norm: A layer norm after the last one, or None.
        enable_nested_tensor: Taken for compatibility.
        mask_check: Taken for compatibility.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Any:
        causal = _is_causal(mask, is_causal)
        mask = additive(mask, "mask", src.dtype)
        src_key_padding_mask = additive(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        output: Any = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal)
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """A stack of copies of a decoder layer.

    Args:
        decoder_layer: The layer; it is copied.
        num_layers: How many.
        norm: A layer norm after the last one, or None.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        causal = _is_causal(tgt_mask, tgt_is_causal)
        output: Any = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """Encoder and decoder: ``forward(src, tgt)`` decodes the target with the encoded source in view.

    Args:
        d_model: The features.
        nhead: The number of heads.
        num_encoder_layers: The encoder's layers.
        num_decoder_layers: The decoder's layers.
        dim_feedforward: The inner width of the layers' networks.
        dropout: Dropout of the attention weights and of the layers' results.
        activation: ``"relu"``, ``"gelu"`` or a function.
        custom_encoder: Another encoder.
        custom_decoder: Another decoder.
        layer_norm_eps: Added to the layer norms' variances.
        batch_first: Inputs are ``(N, L, E)`` instead of ``(L, N, E)``.
        norm_first: Normalize before each part of a layer, not after.
        bias: Learn biases.
        device: Where the parameters live.
        dtype: Their type.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options: tuple[Any, ...] = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
        )
        norm = {"eps": layer_norm_eps, "bias": bias, "device": device, "dtype": dtype}
        if custom_encoder is None:
            layer: Module = TransformerEncoderLayer(*options)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, LayerNorm(d_model, **norm))
        if custom_decoder is None:
            layer = TransformerDecoderLayer(*options)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, LayerNorm(d_model, **norm))
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        place = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[place] != tgt.shape[place]:
            raise ShapeError(
                f"the batch number of src and tgt must be equal: {tuple(src.shape)} and {tuple(tgt.shape)}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"the feature number of src and tgt must be equal to d_model {self.d_model}: {tuple(src.shape)} and "
                f"{tuple(tgt.shape)}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask: -inf above the diagonal, 0 elsewhere."""
        chosen = as_numpy(get_default_dtype() if dtype is None else dtype)
        return wrap(move(np.triu(np.full((sz, sz), -math.inf), 1).astype(chosen), as_device(device)))
