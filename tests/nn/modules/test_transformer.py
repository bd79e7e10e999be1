"""Stacks of transformer layers."""

import copy

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def close(a, b):
    """Asserts that two tensors agree."""
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_encoder_is_its_layers():
    """The encoder runs copies of its layer one after another, then the norm."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0)
    encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(4))
    assert encoder.layers[0].linear1.weight is not layer.linear1.weight
    assert encoder.layers[0].linear1.weight.tolist() == layer.linear1.weight.tolist()
    x = ddpflow.randn(5, 2, 4)
    y = x
    for part in encoder.layers:
        y = part(y)
    close(encoder(x), encoder.norm(y))


@pytest.mark.parametrize("boolean", [True, False])
def test_causal_masks_are_recognised(boolean):
    """A causal mask gives the same output however it is written, with the hint or without."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0), 2)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    mask = mask < 0 if boolean else mask
    x = ddpflow.randn(5, 2, 4)
    y = x
    for part in encoder.layers:
        y = part(y, src_mask=mask)
    close(encoder(x, mask), y)
    close(encoder(x, mask, is_causal=True), y)
    other = mask.clone()
    other[0, 4] = False if boolean else 0.0
    assert encoder(x, other).tolist() != y.tolist()


def test_padded_keys_do_not_count():
    """Values at padded places change nothing elsewhere."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2)
    padding = ddpflow.tensor([[False, False, True]])
    x = ddpflow.randn(1, 3, 4)
    y = x.clone()
    y[:, 2] = 5.0
    first = encoder(x, src_key_padding_mask=padding)
    second = encoder(y, src_key_padding_mask=padding)
    close(first[:, :2], second[:, :2])


def test_transformer_is_encoder_and_decoder():
    """The target is decoded with the encoded source in view; the matrices start by Xavier's rule."""
    model = nn.Transformer(4, 2, 2, 3, 8, 0.0)
    assert len(model.encoder.layers) == 2
    assert len(model.decoder.layers) == 3
    src, tgt = ddpflow.randn(5, 2, 4), ddpflow.randn(3, 2, 4)
    mask = model.generate_square_subsequent_mask(3)
    memory = model.encoder(src)
    y = tgt
    for part in model.decoder.layers:
        y = part(y, memory, tgt_mask=mask)
    close(model(src, tgt, tgt_mask=mask), model.decoder.norm(y))
    weight = model.encoder.layers[0].linear1.weight.detach().numpy()
    assert abs(weight).max() <= np.sqrt(6 / 12)


def test_custom_parts():
    """Encoder and decoder can be replaced."""

    class Echo(nn.Module):
        def forward(self, x, *args, **kwargs):
            return x

    model = nn.Transformer(4, 2, custom_encoder=Echo(), custom_decoder=Echo())
    tgt = ddpflow.randn(3, 2, 4)
    assert model(ddpflow.randn(5, 2, 4), tgt) is tgt


def test_gradients_reach_every_parameter():
    """Backward through the whole model fills every parameter's gradient."""
    model = nn.Transformer(4, 2, 1, 1, 8, 0.0, batch_first=True)
    model(ddpflow.randn(2, 5, 4), ddpflow.randn(2, 3, 4)).sum().backward()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []
    assert copy.deepcopy(model).encoder.layers[0].linear1.weight.grad is not None


def test_mask():
    """The causal mask is -inf above the diagonal."""
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.tolist() == [[0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [0.0, 0.0, 0.0]]
    assert mask.dtype is ddpflow.float32


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        ((5, 2, 4), (3, 1, 4), r"batch number of src and tgt must be equal: \(5, 2, 4\) and \(3, 1, 4\)"),
        ((5, 2, 4), (3, 2, 5), "feature number of src and tgt must be equal to d_model 4"),
    ],
)
def test_bad_inputs(src, tgt, message):
    """Batches and widths that differ are RuntimeErrors with the shapes."""
    with pytest.raises(RuntimeError, match=message):
        nn.Transformer(4, 2, 1, 1, 8)(ddpflow.ones(*src), ddpflow.ones(*tgt))
