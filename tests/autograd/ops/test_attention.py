"""scaled_dot_product_attention: masks, causality, grouped heads, dropout, refusals."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.attention import scaled_dot_product_attention as attention


@pytest.fixture
def qkv(rng):
    """Queries, keys and values of two heads."""
    return [ddpflow.from_numpy(rng.standard_normal(s)) for s in ((3, 2, 5, 4), (3, 2, 6, 4), (3, 2, 6, 3))]


def written_out(q, k, v, mask=0.0):
    """The definition."""
    s = q.numpy() @ k.numpy().swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v.numpy()


def test_boolean_and_added_masks_and_causality(qkv):
    """True takes part; ``is_causal`` is the lower triangle, also of a matrix that is not square."""
    lower = np.tril(np.ones((5, 6), bool))
    added = np.where(lower, 0.0, -np.inf)
    expected = written_out(*qkv, added)
    for kwargs in (
        {"attn_mask": ddpflow.from_numpy(lower)},
        {"attn_mask": ddpflow.from_numpy(added)},
        {"is_causal": True},
    ):
        np.testing.assert_allclose(attention(*qkv, **kwargs).numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(attention(*qkv).numpy(), written_out(*qkv), rtol=1e-10)


def test_grouped_heads_share_keys_and_values(rng):
    """With ``enable_gqa`` each key head serves neighbouring query heads."""
    q = ddpflow.from_numpy(rng.standard_normal((2, 4, 5, 3)))
    k, v = (ddpflow.from_numpy(rng.standard_normal((2, 2, 6, 3))) for _ in range(2))
    found = attention(q, k, v, enable_gqa=True)
    for head in range(4):
        expected = attention(q[:, head], k[:, head // 2], v[:, head // 2])
        np.testing.assert_allclose(found[:, head].numpy(), expected.numpy(), rtol=1e-10)


def test_dropout_keeps_the_mean(rng):
    """Over many draws the output is the one without dropout; with p = 1 it is 0."""
    q = ddpflow.from_numpy(rng.standard_normal((1, 2, 3)) * 0.1)
    k, v = (ddpflow.from_numpy(rng.standard_normal((1, 50, 3))) for _ in range(2))
    mean = np.mean([attention(q, k, v, dropout_p=0.5).numpy() for _ in range(400)], axis=0)
    np.testing.assert_allclose(mean, attention(q, k, v).numpy(), atol=0.05)
    assert not attention(q, k, v, dropout_p=1.0).numpy().any()


def test_an_output_may_be_changed_in_place(qkv):
    """Backward does not need it."""
    q = qkv[0].requires_grad_()
    out = attention(q, *qkv[1:])
    out.mul_(2.0)
    out.sum().backward()
    doubled = q.grad.numpy().copy()
    q.grad = None
    (attention(q, *qkv[1:]) * 2.0).sum().backward()
    np.testing.assert_allclose(doubled, q.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "kwargs", "error"),
    [
        (((2, 3, 4), (2, 5, 3), (2, 5, 3)), {}, RuntimeError),
        (((2, 3, 4), (2, 5, 4), (2, 6, 4)), {}, RuntimeError),
        (((3,), (5, 4), (5, 4)), {}, RuntimeError),
        (((3, 4), (5, 4), (5, 4)), {"dropout_p": 1.5}, ValueError),
        (((3, 4), (5, 4), (5, 4)), {"is_causal": True, "attn_mask": (3, 5)}, RuntimeError),
    ],
)
def test_bad_arguments(shapes, kwargs, error):
    """One error each, of PyTorch's type."""
    kwargs = {k: ddpflow.zeros(*v) if k == "attn_mask" else v for k, v in kwargs.items()}
    with pytest.raises(error):
        attention(*[ddpflow.zeros(*s) for s in shapes], **kwargs)
