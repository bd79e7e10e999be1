"""Products of half types."""

import numpy as np
import pytest

import ddpflow
from ddpflow.amp import autocast
from ddpflow.nn import functional as F

PRODUCTS = {
    "matmul": lambda a: a @ a,
    "linear": lambda a: F.linear(a, a),
    "mm": lambda a: a.mm(a),
    "conv2d": lambda a: F.conv2d(a[None, None], a[None, None, :2, :2]),
    "attention": lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_halves_are_multiplied_in_float32(name):
    """The result is the float32 one rounded once; so are the gradients."""
    ddpflow.manual_seed(0)
    half = ddpflow.randn(64, 64).half().requires_grad_()
    wide = half.detach().float().requires_grad_()
    out, expected = PRODUCTS[name](half), PRODUCTS[name](wide)
    assert out.dtype == ddpflow.float16
    np.testing.assert_array_equal(out.numpy(force=True), expected.half().numpy(force=True))
    out.backward(ddpflow.ones_like(out))
    expected.backward(ddpflow.ones_like(expected))
    assert half.grad.dtype == ddpflow.float16
    np.testing.assert_allclose(half.grad.numpy(), wide.grad.numpy(), rtol=2e-3, atol=2e-2)


def test_what_a_block_casts():
    """float32 and halves take part, float64 and integers do not; other operations are left alone."""
    a = ddpflow.rand(3, 3)
    with autocast("cpu", dtype=ddpflow.float16):
        assert (a @ a.half()).dtype == ddpflow.float16
        assert (a.double() @ a.double()).dtype == ddpflow.float64
        assert (a.long() @ a.long()).dtype == ddpflow.int64
        assert (a + a).dtype == ddpflow.float32
        assert a.half().softmax(0).dtype == ddpflow.float32
    assert a.half().softmax(0).dtype == ddpflow.float16
    with pytest.raises(RuntimeError, match="float16"):
        a @ a.half()
