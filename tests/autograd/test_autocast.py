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


LOSSES = {
    "mse_loss": (),
    "l1_loss": (),
    "smooth_l1_loss": (),
    "huber_loss": (),
    "kl_div": (),
    "poisson_nll_loss": (),
    "binary_cross_entropy": (),
    "binary_cross_entropy_with_logits": (),
    "soft_margin_loss": (),
    "layer_norm": ((6,),),
    "rms_norm": ((6,),),
    "softmax": (1,),
    "log_softmax": (1,),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_norms_are_given_in_float32(name):
    """Halves are cast before, so the result is that of float32."""
    ddpflow.manual_seed(0)
    a, b = ddpflow.rand(4, 6).half(), ddpflow.rand(4, 6).half()
    args = LOSSES[name] or (b,)
    function = getattr(F, name)
    with autocast("cpu", dtype=ddpflow.float16):
        out = function(a, *args)
    assert out.dtype == ddpflow.float32
    expected = function(a.float(), *[x.float() if x is b else x for x in args])
    np.testing.assert_array_equal(out.numpy(), expected.numpy())


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
def test_convolutions_of_halves_with_float32_weights(name, axes):
    """What a layer gave in a block and the next layer's float32 weight go together, by keyword as well."""
    ddpflow.manual_seed(0)
    function = getattr(F, f"{name}{axes}d")
    x, weight = ddpflow.randn(2, 3, *[4] * axes).half(), ddpflow.randn(3, 3, *[2] * axes)
    with autocast("cpu", dtype=ddpflow.float16):
        out = function(input=x, weight=weight)
    assert out.dtype == ddpflow.float16
    np.testing.assert_allclose(out.numpy(), function(x.float(), weight).numpy(), rtol=2e-3, atol=1e-2)
    with pytest.raises(RuntimeError, match="same dtype"):
        function(x, weight)


def test_products_that_combine():
    """Sums of products, einsum, and products with arguments by keyword give the half type."""
    a = ddpflow.rand(3, 3)
    with autocast("cpu", dtype=ddpflow.float16):
        for out in (
            ddpflow.addmm(a, a, a),
            ddpflow.baddbmm(a[None], a[None], a[None]),
            ddpflow.einsum("ij,kj->ik", a, a),
            ddpflow.matmul(input=a, other=a.half()),
            a.mv(a[0]),
        ):
            assert out.dtype == ddpflow.float16


def test_a_block_for_another_device_changes_nothing():
    """Arrays on the CPU are no business of a block for GPUs."""
    a = ddpflow.rand(3, 3)
    with autocast("cuda"):
        assert (a @ a).dtype == ddpflow.float32
        assert a.half().softmax(0).dtype == ddpflow.float16
