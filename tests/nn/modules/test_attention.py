"""Attention with several heads, against a loop over heads."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from tests.nn.differences import check_parameters


def by_heads(module, q, k, v, mask):
    """Returns output and weights (heads, L, S) of one sequence, from the module's parameters."""
    width = module.embed_dim
    bias = module.in_proj_bias.detach().numpy()
    if module.in_proj_weight is not None:
        weights = np.split(module.in_proj_weight.detach().numpy(), 3)
    else:
        parts = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        weights = [part.detach().numpy() for part in parts]
    q, k, v = (x @ w.T + b for x, w, b in zip((q, k, v), weights, np.split(bias, 3), strict=True))
    outs, scores = [], []
    size = width // module.num_heads
    for h in range(module.num_heads):
        part = slice(h * size, (h + 1) * size)
        s = q[:, part] @ k[:, part].T / np.sqrt(size) + mask
        p = np.exp(s - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        outs.append(p @ v[:, part])
        scores.append(p)
    out = np.concatenate(outs, 1) @ module.out_proj.weight.detach().numpy().T + module.out_proj.bias.detach().numpy()
    return out, np.stack(scores)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("widths", [(4, 4), (3, 5)])
def test_against_heads(widths, batch_first, need_weights):
    """Each head attends by itself; key and value may have other widths; the weights are the heads' mean."""
    module = nn.MultiheadAttention(4, 2, kdim=widths[0], vdim=widths[1], batch_first=batch_first).double()
    with ddpflow.no_grad():
        module.in_proj_bias.normal_()
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, width)) for n, width in ((3, 4), (5, widths[0]), (5, widths[1])))
    tensors = [ddpflow.tensor(x if batch_first else x.swapaxes(0, 1).copy()) for x in (q, k, v)]
    out, weights = module(*tensors, need_weights=need_weights)
    for n in range(2):
        expected, scores = by_heads(module, q[n], k[n], v[n], 0)
        found = out[n] if batch_first else out[:, n]
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
        if need_weights:
            np.testing.assert_allclose(weights[n].detach().numpy(), scores.mean(0), rtol=1e-9)
    assert (weights is None) == (not need_weights)
    single, _ = module(*(ddpflow.tensor(x[0]) for x in (q, k, v)))
    expected, _ = by_heads(module, q[0], k[0], v[0], 0)
    np.testing.assert_allclose(single.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("boolean", [True, False])
def test_masks(boolean, need_weights):
    """Attention and padding masks leave pairs and keys out, as True or -inf, for all heads or for each."""
    module = nn.MultiheadAttention(4, 2, batch_first=True).double()
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    blocked = np.triu(np.ones((3, 3), bool), 1)
    padding = np.array([[False, False, True], [False, False, False]])
    if boolean:
        masks = [ddpflow.tensor(mask) for mask in (blocked, padding)]
    else:
        masks = [ddpflow.tensor(np.where(mask, -np.inf, 0.0)) for mask in (blocked, padding)]
    for attn_mask in (masks[0], masks[0].expand(4, 3, 3)):
        tensor = ddpflow.tensor(x)
        out, _ = module(tensor, tensor, tensor, masks[1], need_weights, attn_mask)
        for n in range(2):
            mask = np.where(blocked | padding[n], -np.inf, 0.0)
            expected, _ = by_heads(module, x[n], x[n], x[n], mask)
            np.testing.assert_allclose(out[n].detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_causal_hint():
    """With the hint the causal mask need not be read; without a mask it is an error."""
    module = nn.MultiheadAttention(4, 2).double()
    x = ddpflow.randn(3, 2, 4, dtype=ddpflow.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=ddpflow.float64)
    plain, _ = module(x, x, x, attn_mask=mask, need_weights=False)
    hinted, _ = module(x, x, x, attn_mask=mask, need_weights=False, is_causal=True)
    np.testing.assert_allclose(hinted.detach().numpy(), plain.detach().numpy(), rtol=1e-9)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        module(x, x, x, is_causal=True)


def test_extra_keys():
    """add_bias_kv and add_zero_attn add keys, for which masks are widened."""
    module = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)
    x = ddpflow.randn(3, 2, 4)
    padding = ddpflow.tensor([[False, True, True], [True, True, True]])
    out, weights = module(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (2, 2, 3, 5)
    assert np.isfinite(out.detach().numpy()).all()
    assert not weights[1, :, :, :3].detach().any()
    np.testing.assert_allclose(weights.sum(-1).detach().numpy(), 1.0, rtol=1e-5)


def test_gradients():
    """Gradients of inputs and parameters agree with finite differences."""
    module = nn.MultiheadAttention(4, 2).double()
    x = ddpflow.randn(3, 1, 4, dtype=ddpflow.float64, requires_grad=True)
    for need_weights in (True, False):
        assert ddpflow.autograd.gradcheck(lambda x, n=need_weights: module(x, x, x, need_weights=n)[0], x)
    y = ddpflow.randn(2, 1, 4, dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(lambda x, y: module(x, y, y)[0], (x, y))
    check_parameters(module, lambda: module(x.detach(), y.detach(), y.detach())[0])


def test_dropout_in_training_only():
    """Dropped attention weights are scaled up in training; evaluation drops none."""
    module = nn.MultiheadAttention(4, 2, dropout=0.5)
    x = ddpflow.randn(6, 1, 4)
    assert (module(x, x, x)[1] == 0).any()
    assert not (module.eval()(x, x, x)[1] == 0).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [((5, 2), "divisible by num_heads: 5 by 2"), ((0, 1), "greater than 0"), ((4, 0), "greater than 0")],
)
def test_bad_arguments(options, message):
    """Widths and heads that do not fit are ValueErrors."""
    with pytest.raises(ValueError, match=message):
        nn.MultiheadAttention(*options)


def test_bad_inputs():
    """Shapes and masks that do not fit are errors with the shapes."""
    module = nn.MultiheadAttention(4, 2)
    x = ddpflow.randn(3, 2, 4)
    with pytest.raises(RuntimeError, match="expecting embedding dimension of 4, but got 5"):
        module(ddpflow.randn(3, 2, 5), x, x)
    with pytest.raises(RuntimeError, match="as many dimensions"):
        module(x, x[0], x[0])
    with pytest.raises(RuntimeError, match=r"2D attn_mask is \(2, 2\), but should be \(3, 3\)"):
        module(x, x, x, attn_mask=ddpflow.zeros(2, 2))
    with pytest.raises(RuntimeError, match=r"key_padding_mask of shape \(3, 2\)"):
        module(x, x, x, key_padding_mask=ddpflow.zeros(3, 2))
    with pytest.raises(TypeError, match="only bool and floating types of attn_mask"):
        module(x, x, x, attn_mask=ddpflow.zeros(3, 3).long())
    with pytest.raises(RuntimeError, match="does not match value shape"):
        module(x, x, ddpflow.randn(4, 2, 4))


def test_state_names():
    """Parameters have PyTorch's names and start; biases start at zero."""
    module = nn.MultiheadAttention(4, 2)
    assert list(module.state_dict()) == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    assert not module.in_proj_bias.detach().any()
    assert abs(module.in_proj_weight.detach().numpy()).max() <= np.sqrt(6 / 16)
    names = list(nn.MultiheadAttention(4, 2, kdim=3, bias=False).state_dict())
    assert names == ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"]
