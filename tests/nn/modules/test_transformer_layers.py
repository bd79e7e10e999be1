"""Encoder and decoder layers: their parts in the order of the paper."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn import functional as F
from tests.nn.differences import check_parameters

F64 = ddpflow.float64


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer(norm_first):
    """Attention, then the network, each with a residual and a layer norm, before or after."""
    layer = nn.TransformerEncoderLayer(
        4, 2, 8, 0.0, norm_first=norm_first, activation="gelu", batch_first=True
    ).double()
    x = ddpflow.randn(2, 3, 4, dtype=F64)

    def attend(x):
        return layer.self_attn(x, x, x)[0]

    def feed(x):
        return layer.linear2(F.gelu(layer.linear1(x)))

    if norm_first:
        y = x + attend(layer.norm1(x))
        y = y + feed(layer.norm2(y))
    else:
        y = layer.norm1(x + attend(x))
        y = layer.norm2(y + feed(y))
    np.testing.assert_allclose(layer(x).detach().numpy(), y.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer(norm_first):
    """Attention over itself, over the memory, then the network."""
    layer = nn.TransformerDecoderLayer(4, 2, 8, 0.0, norm_first=norm_first).double()
    x, memory = ddpflow.randn(3, 2, 4, dtype=F64), ddpflow.randn(5, 2, 4, dtype=F64)

    def attend(x):
        return layer.self_attn(x, x, x)[0]

    def look(x):
        return layer.multihead_attn(x, memory, memory)[0]

    def feed(x):
        return layer.linear2(F.relu(layer.linear1(x)))

    y = x
    for part, norm in ((attend, layer.norm1), (look, layer.norm2), (feed, layer.norm3)):
        y = y + part(norm(y)) if norm_first else norm(y + part(y))
    np.testing.assert_allclose(layer(x, memory).detach().numpy(), y.detach().numpy(), rtol=1e-9)


def test_masks_keep_the_future_out():
    """With a causal mask, changing later steps changes no earlier output."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    x = ddpflow.randn(1, 5, 4)
    y = x.clone()
    y[:, 3:] = 7.0
    first, second = layer(x, src_mask=mask), layer(y, src_mask=mask)
    np.testing.assert_allclose(first[:, :3].detach().numpy(), second[:, :3].detach().numpy(), rtol=1e-5, atol=1e-6)
    assert first[:, 3:].tolist() != second[:, 3:].tolist()


def test_activation_names():
    """The activation is relu, gelu or a function."""
    assert nn.TransformerEncoderLayer(4, 2, activation="relu").activation is F.relu
    with pytest.raises(RuntimeError, match="should be relu/gelu, not swish"):
        nn.TransformerDecoderLayer(4, 2, activation="swish")


def test_gradients():
    """Gradients agree with finite differences."""
    layer = nn.TransformerDecoderLayer(2, 1, 3, 0.0, activation="gelu").double()
    x = ddpflow.randn(2, 1, 2, dtype=F64, requires_grad=True)
    memory = ddpflow.randn(2, 1, 2, dtype=F64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(layer, (x, memory))
    check_parameters(layer, lambda: layer(x.detach(), memory.detach()))


def test_without_bias():
    """bias=False leaves out every bias."""
    names = nn.TransformerEncoderLayer(4, 2, bias=False).state_dict()
    assert not [name for name in names if "bias" in name]
