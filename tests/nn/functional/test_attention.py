"""The functional form of attention; most of it is tested through the module."""

import numpy as np
import pytest

import ddpflow
import ddpflow.nn.functional as F
from ddpflow.nn.functional.attention import additive

F64 = ddpflow.float64


def weights():
    """Returns projections for width 4."""
    return [ddpflow.randn(12, 4, dtype=F64), ddpflow.randn(12, dtype=F64)], [
        ddpflow.randn(4, 4, dtype=F64),
        ddpflow.randn(4, dtype=F64),
    ]


def attend(q, k, v, into, out, **options):
    """Calls the function with two heads."""
    given = {"bias_k": None, "bias_v": None, "add_zero_attn": False} | options
    extra = [given.pop(name) for name in ("bias_k", "bias_v", "add_zero_attn")]
    return F.multi_head_attention_forward(q, k, v, 4, 2, *into, *extra, 0.0, *out, **given)


def test_shared_and_separate_arguments_agree():
    """One tensor as query, key and value gives what equal copies give: the projections are only stacked differently."""
    into, out = weights()
    x, y = ddpflow.randn(3, 2, 4, dtype=F64), ddpflow.randn(5, 2, 4, dtype=F64)
    for a, b in (
        (attend(x, x, x, into, out), attend(x, x.clone(), x.clone(), into, out)),
        (attend(x, y, y, into, out), attend(x, y, y.clone(), into, out)),
    ):
        for first, second in zip(a, b, strict=True):
            np.testing.assert_allclose(first.numpy(), second.numpy(), rtol=1e-10)


def test_separate_weights():
    """Three weights give what the stacked one gives."""
    into, out = weights()
    x = ddpflow.randn(3, 2, 4, dtype=F64)
    q, k, v = into[0].chunk(3)
    separate = attend(
        x, x, x, [None, into[1]], out, use_separate_proj_weight=True, q_proj_weight=q, k_proj_weight=k, v_proj_weight=v
    )
    np.testing.assert_allclose(separate[0].numpy(), attend(x, x, x, into, out)[0].numpy(), rtol=1e-10)


def test_static_keys_and_values():
    """Keys and values of each head can be given as they are, but not beside an extra key."""
    into, out = weights()
    x = ddpflow.randn(3, 2, 4, dtype=F64)
    static = {"static_k": ddpflow.randn(4, 5, 2, dtype=F64), "static_v": ddpflow.randn(4, 5, 2, dtype=F64)}
    output, scores = attend(x, x, x, into, out, **static)
    assert (output.shape, scores.shape) == ((3, 2, 4), (2, 3, 5))
    bias = ddpflow.randn(1, 1, 4, dtype=F64)
    with pytest.raises(RuntimeError, match="cannot be added to static"):
        attend(x, x, x, into, out, bias_k=bias, bias_v=bias, **static)
    with pytest.raises(RuntimeError, match="together"):
        attend(x, x, x, into, out, bias_k=bias)


def test_weights_equal_the_fused_form():
    """With and without weights the output is the same, and its gradient too."""
    into, out = weights()
    x = ddpflow.randn(3, 2, 4, dtype=F64, requires_grad=True)
    grads = []
    for need_weights in (True, False):
        attend(x, x, x, into, out, need_weights=need_weights)[0].sum().backward()
        grads.append(x.grad.numpy())
        x.grad = None
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-8)


def test_additive():
    """Boolean masks become 0 and -inf; floating masks and None pass; integers are refused."""
    mask = additive(ddpflow.tensor([True, False]), "mask", F64)
    assert mask.tolist() == [-np.inf, 0.0]
    assert mask.dtype is F64
    same = ddpflow.zeros(2)
    assert additive(same, "mask", F64) is same
    assert additive(None, "mask", F64) is None
    with pytest.raises(TypeError, match="only bool and floating types of mask"):
        additive(ddpflow.tensor([1]), "mask", F64)
