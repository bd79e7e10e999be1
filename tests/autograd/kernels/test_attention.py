"""Attention by blocks against the formula."""

import itertools

import numpy as np
import pytest

from ddpflow.autograd.kernels import attention as kernels


def formula(q, k, v, mask, keep, keep_scale, scale, causal, g):
    """Output and gradients, written out."""
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = scores + np.triu(np.full(scores.shape[-2:], -np.inf), 1)
    if mask is not None:
        scores = scores + mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    d = 1.0 if keep is None else keep * keep_scale
    ds = (g @ v.swapaxes(-1, -2)) * d
    ds = p * (ds - (ds * p).sum(-1, keepdims=True))
    return (p * d) @ v, ds @ k * scale, ds.swapaxes(-1, -2) @ q * scale, (p * d).swapaxes(-1, -2) @ g, ds


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed again"])
@pytest.mark.parametrize(
    ("lead", "causal", "masked", "dropout"),
    [case for case in itertools.product([(), (3,), (2, 3)], [True, False], [True, False], [True, False])
     if not (case[1] and case[2])],
)  # fmt: skip
def test_blocks_equal_the_formula(rng, monkeypatch, kept, lead, causal, masked, dropout):
    """Output and all gradients agree for rows and heads in several blocks, with and without masks and dropout."""
    monkeypatch.setattr(kernels, "ROWS", 4)
    monkeypatch.setattr(kernels, "BLOCK", 60)
    if not kept:
        monkeypatch.setattr(kernels, "KEPT_BYTES", 0)
    length, source, width, wide = 10, 11, 3, 5
    q, k, v, g = (
        rng.standard_normal((*lead, n, m))
        for n, m in ((length, width), (source, width), (source, wide), (length, wide))
    )
    mask = rng.standard_normal((*lead, length, source)) if masked else None
    keep = rng.random((*lead, length, source)) > 0.3 if dropout else None
    out, p, lse = kernels.attention(q, k, v, mask, keep, 0.7, 1.5, causal)
    found = kernels.attention_backward(g, q, k, v, mask, keep, p, lse, 0.7, 1.5, causal, masked)
    expected = formula(q, k, v, mask, keep, 1.5, 0.7, causal, g)
    assert (p is None) is not kept
    for a, e in zip((out, *found), expected, strict=True):
        if a is not None:
            np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-12)


def test_takes_what_transpose_made_and_gives_the_same_layout(rng):
    """From ``(B, T, H, D)`` transposed to heads first, the output transposes back to contiguous memory."""
    q = rng.standard_normal((2, 6, 3, 4)).swapaxes(1, 2)
    out, _, _ = kernels.attention(q, q, q, None, None, 1.0, 1.0, False)
    assert out.swapaxes(1, 2).flags.c_contiguous


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed again"])
def test_a_row_that_sees_nothing_is_zero(rng, monkeypatch, kept):
    """Output and gradients of a query whose keys are all masked are 0, not NaN."""
    if not kept:
        monkeypatch.setattr(kernels, "KEPT_BYTES", 0)
    q, k, v = (rng.standard_normal((1, 3, 2)) for _ in range(3))
    mask = np.zeros((1, 3, 3))
    mask[0, 1] = -np.inf
    with np.errstate(all="ignore"):
        out, p, lse = kernels.attention(q, k, v, mask, None, 1.0, 1.0, False)
        gq, _, _, _ = kernels.attention_backward(np.ones_like(out), q, k, v, mask, None, p, lse, 1.0, 1.0, False, False)
    assert out[0, 1].tolist() == [0.0, 0.0]
    assert gq[0, 1].tolist() == [0.0, 0.0]
    assert np.isfinite(out).all() and np.isfinite(gq).all()
