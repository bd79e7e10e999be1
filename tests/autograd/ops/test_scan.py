"""Running sums, products and extremes."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.factories import tensor


def leaf(values, dtype="float64"):
    """A leaf that collects a gradient."""
    return tensor(values, requires_grad=True, dtype=dtype)


def test_cumprod_with_zeros():
    """The gradient needs no division: zeros anywhere, also several, also per row."""
    x = leaf([2.0, 0.0, 3.0, 4.0])
    x.cumprod(0).sum().backward()
    assert x.grad.tolist() == [1.0, 32.0, 0.0, 0.0]
    for values in ([0.0, 0.0, 3.0], [2.0, 0.0, 3.0, 0.0, 5.0], [[1.0, 0.0, 2.0], [3.0, 4.0, 5.0]]):
        assert gradcheck(lambda t: t.cumprod(-1), (leaf(values),))


def test_values():
    """NumPy's running sums and products; integers give int64, halves are added in float32."""
    x = np.random.default_rng(2).normal(size=(3, 4))
    np.testing.assert_allclose(tensor(x).cumsum(0).numpy(), x.cumsum(0))
    np.testing.assert_allclose(tensor(x).cumprod(1).numpy(), x.cumprod(1))
    np.testing.assert_allclose(tensor(x).logcumsumexp(1).numpy(), np.log(np.exp(x).cumsum(1)))
    assert tensor([1, 2], dtype="int8").cumsum(0).dtype is ddpflow.int64
    assert ddpflow.ones(5000, dtype="float16").cumsum(0)[-1].item() == 5000.0


def test_running_extremes():
    """Values and the index of the last greatest (least) so far; each gets the gradient of the places it rules."""
    x = leaf([3.0, 1.0, 3.0, 5.0, 4.0])
    values, indices = x.cummax(0)
    assert values.tolist() == [3.0, 3.0, 3.0, 5.0, 5.0] and indices.tolist() == [0, 0, 2, 3, 3]
    values.sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 1.0, 2.0, 0.0]
    assert tensor([3.0, 1.0, 2.0]).cummin(0).values.tolist() == [3.0, 1.0, 1.0]


def test_diff():
    """Differences of neighbours, repeated, with something put before and behind."""
    x = tensor([1.0, 4.0, 9.0, 16.0])
    assert ddpflow.diff(x).tolist() == [3.0, 5.0, 7.0]
    assert ddpflow.diff(x, n=2).tolist() == [2.0, 2.0]
    assert ddpflow.diff(x, prepend=tensor([0.0]), append=tensor([25.0])).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]
    assert ddpflow.diff(tensor([True, True, False])).tolist() == [False, True]


def test_trapezoid():
    """Areas by the trapezoid rule with a fixed step, with given points, and running."""
    y = tensor([1.0, 3.0, 5.0])
    assert ddpflow.trapezoid(y).item() == 6.0
    assert ddpflow.trapezoid(y, dx=2.0).item() == 12.0
    assert ddpflow.trapezoid(y, tensor([0.0, 1.0, 3.0])).item() == 10.0
    assert ddpflow.cumulative_trapezoid(y).tolist() == [2.0, 6.0]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax"])
def test_zero_dimensions(name):
    """A 0-d tensor is its own running result, along dimension 0 or -1."""
    result = getattr(tensor(3.0), name)(-1)
    assert (result.values if name == "cummax" else result).item() == 3.0
    with pytest.raises(IndexError):
        getattr(tensor(3.0), name)(1)


def test_logcumsumexp_with_infinities():
    """-inf counts as nothing."""
    x = tensor([-float("inf"), -float("inf"), 0.0, 1e4], requires_grad=True)
    y = x.logcumsumexp(0)
    assert y.tolist() == [-float("inf"), -float("inf"), 0.0, 1e4]
    y[2:].sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_is_numpys(rng, edge_order):
    """At even and uneven points, over all dimensions and some."""
    y, points = rng.standard_normal((4, 5)), np.cumsum(rng.random(5) + 0.1)
    for spacing, dim, theirs in (
        (None, None, np.gradient(y, edge_order=edge_order)),
        (0.5, (1, 0), np.gradient(y, 0.5, axis=(1, 0), edge_order=edge_order)),
        ([2.0, 3.0], None, np.gradient(y, 2.0, 3.0, edge_order=edge_order)),
        ([tensor(points)], 1, [np.gradient(y, points, axis=1, edge_order=edge_order)]),
    ):
        found = ddpflow.gradient(tensor(y), spacing=spacing, dim=dim, edge_order=edge_order)
        assert len(found) == len(theirs)
        for own, other in zip(found, theirs, strict=True):
            np.testing.assert_allclose(own.numpy(), other, rtol=1e-12, atol=1e-13)


def test_gradient_refuses():
    """Too few points, spacings for other dimensions, and no such order."""
    with pytest.raises(RuntimeError, match="more than 2 elements"):
        ddpflow.gradient(tensor([1.0, 2.0]), edge_order=2)
    with pytest.raises(RuntimeError, match="each of 1 dimensions, got 2"):
        ddpflow.gradient(tensor([1.0, 2.0]), spacing=[1.0, 2.0])
    with pytest.raises(ValueError, match="1 or 2"):
        ddpflow.gradient(tensor([1.0, 2.0]), edge_order=3)
