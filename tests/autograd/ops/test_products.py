"""Products of vectors and matrices."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.autograd.ops.products import identity_like
from ddpflow.errors import ShapeError
from ddpflow.factories import ones, tensor

RNG = np.random.default_rng(5)


def random(*shape, requires_grad=False):
    """A float64 tensor of random numbers."""
    return tensor(RNG.normal(size=shape), requires_grad=requires_grad)


def test_gradients_of_broadcast_matrices():
    """(2, 1, 3, 4) @ (5, 4, 2): leading dimensions that were broadcast are summed in each gradient."""
    a, b = random(2, 1, 3, 4, requires_grad=True), random(5, 4, 2, requires_grad=True)
    y = a @ b
    assert y.shape == (2, 5, 3, 2)
    y.sum().backward()
    assert a.grad.shape == a.shape and b.grad.shape == b.shape
    assert gradcheck(ddpflow.matmul, (a, b))


def test_a_weight_that_is_used_for_a_batch():
    """A stack times one matrix is one product, and the matrix's gradient has its shape."""
    x, w = random(5, 3, 4, requires_grad=True), random(4, 2, requires_grad=True)
    y = x @ w
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy() @ w.detach().numpy())
    y.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), x.detach().numpy().sum((0, 1))[:, None].repeat(2, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_half_precision_is_multiplied_in_float32(dtype):
    """3,000 products of 1 and 100 do not lose their sum; the dtype stays."""
    y = ones(1, 600, dtype=dtype) @ (ones(600, 1, dtype=dtype) * 100)
    assert y.item() == 60000.0 and str(y.dtype).endswith(dtype)


def test_what_does_not_fit():
    """Sizes, dtypes, numbers and 0-d tensors: errors with the operation and both shapes."""
    with pytest.raises(RuntimeError, match=r"matmul.*\(2, 3\), \(4, 5\)"):
        ones(2, 3) @ ones(4, 5)
    with pytest.raises((TypeError, RuntimeError), match="float32.*float64"):
        ones(2, 2) @ ones(2, 2, dtype="float64")
    with pytest.raises(ShapeError, match="at least one dimension"):
        ones(2, 2) @ tensor(1.0)
    with pytest.raises(ShapeError, match="mm.*2 dimension"):
        ddpflow.mm(ones(2, 3, 4), ones(4, 2))
    with pytest.raises(ShapeError, match="stacks of 2 and 3"):
        ddpflow.bmm(ones(2, 3, 4), ones(3, 4, 5))


def test_named_products():
    """Mm, bmm, mv, dot, outer, inner and the forms with an addition."""
    a, b, v = random(3, 4), random(4, 2), random(4)
    x, y, w = a.numpy(), b.numpy(), v.numpy()
    np.testing.assert_allclose(ddpflow.mm(a, b).numpy(), x @ y)
    np.testing.assert_allclose(ddpflow.mv(a, v).numpy(), x @ w)
    np.testing.assert_allclose(ddpflow.dot(v, v).numpy(), w @ w)
    np.testing.assert_allclose(ddpflow.outer(v, v).numpy(), np.outer(w, w))
    np.testing.assert_allclose(ddpflow.inner(a, v).numpy(), np.inner(x, w))
    bias = random(2)
    np.testing.assert_allclose(ddpflow.addmm(bias, a, b, beta=2, alpha=3).numpy(), 2 * bias.numpy() + 3 * (x @ y))
    nan = tensor([float("nan")] * 2, dtype="float64")
    np.testing.assert_allclose(ddpflow.addmm(nan, a, b, beta=0).numpy(), x @ y)
    stack = ddpflow.baddbmm(ones(2, 3, 5, dtype="float64"), random(2, 3, 4), random(2, 4, 5))
    assert stack.shape == (2, 3, 5)


def test_chains_and_powers():
    """multi_dot picks an order, not a result; powers by squaring, the 0th is the unit, negative ones invert."""
    parts = [random(2, 30), random(30, 3), random(3, 40), random(40, 4)]
    expected = parts[0].numpy() @ parts[1].numpy() @ parts[2].numpy() @ parts[3].numpy()
    np.testing.assert_allclose(ddpflow.multi_dot(parts).numpy(), expected)
    np.testing.assert_allclose(ddpflow.chain_matmul(*parts).numpy(), expected)
    a = random(3, 3)
    for n in (0, 1, 2, 5, -2):
        np.testing.assert_allclose(
            ddpflow.matrix_power(a, n).numpy(), np.linalg.matrix_power(a.numpy(), n), rtol=1e-9, atol=1e-12
        )
    assert identity_like(random(2, 2)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_tensordot_kron_cross_trace():
    """NumPy's values, and gradients."""
    a, b = random(2, 3, 4, requires_grad=True), random(4, 3, 5, requires_grad=True)
    expected = np.tensordot(a.detach().numpy(), b.detach().numpy(), ([1, 2], [1, 0]))
    np.testing.assert_allclose(ddpflow.tensordot(a, b, ([1, 2], [1, 0])).detach().numpy(), expected)
    assert gradcheck(lambda p, q: ddpflow.tensordot(p, q, ([1, 2], [1, 0])), (a, b), fast_mode=True)
    p, q = random(2, 3, requires_grad=True), random(3, 2, requires_grad=True)
    np.testing.assert_allclose(ddpflow.kron(p, q).detach().numpy(), np.kron(p.detach().numpy(), q.detach().numpy()))
    assert gradcheck(ddpflow.kron, (p, q))
    u, v = random(4, 3, requires_grad=True), random(4, 3, requires_grad=True)
    np.testing.assert_allclose(ddpflow.cross(u, v).detach().numpy(), np.cross(u.detach().numpy(), v.detach().numpy()))
    assert gradcheck(lambda s, t: ddpflow.cross(s, t, dim=1), (u, v))
    assert ddpflow.trace(tensor([[1.0, 2.0], [3.0, 4.0]])).item() == 5.0
    with pytest.raises(ShapeError, match="trace"):
        ddpflow.trace(ones(3))
    with pytest.raises(ShapeError, match="size 3"):
        ddpflow.cross(ones(2, 2), ones(2, 2))
