"""Reductions: dtypes, dimensions, ties, zeros, infinities, halves."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import grad, gradcheck, gradgradcheck
from ddpflow.factories import full, ones, tensor

INF, NAN = float("inf"), float("nan")


def leaf(values, dtype="float64"):
    """A leaf that collects a gradient."""
    return tensor(values, requires_grad=True, dtype=dtype)


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), [1], ()])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("name", "reference"), [("sum", np.sum), ("mean", np.mean), ("amax", np.max), ("prod", np.prod)]
)
def test_values(name, reference, dim, keepdim):
    """Over one dimension, several, or all (None and an empty list), as NumPy does."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 3, 4))
    axis = None if dim in (None, ()) else tuple(dim) if isinstance(dim, list) else dim
    found = getattr(ddpflow, name)(tensor(x), dim, keepdim)
    np.testing.assert_allclose(found.numpy(), getattr(np, name)(x, axis=axis, keepdims=keepdim), rtol=1e-14)


def test_numpy_names():
    """Axis and keepdims are taken for dim and keepdim."""
    x = ones(2, 3)
    assert x.sum(axis=1, keepdims=True).shape == (2, 1)
    assert x.mean(axis=0).shape == x.amax(axis=0).shape == x.std(axis=0).shape == (3,)


def test_dimensions_out_of_range_or_twice():
    """PyTorch's exception types and text."""
    x = ones(2, 3)
    with pytest.raises(IndexError, match=r"expected to be in range of \[-2, 1\], but got 2"):
        x.sum(2)
    with pytest.raises(RuntimeError, match="more than once"):
        x.sum((0, -2))
    for function in (x.argmax, x.cumsum, x.max, x.logsumexp):
        with pytest.raises(IndexError):
            function(-3)


def test_dtypes():
    """Integers and booleans sum to int64; mean refuses them; dtype= converts first; floats keep their type."""
    assert tensor([True, True]).sum().dtype is ddpflow.int64
    assert tensor([1, 2], dtype="int8").prod().dtype is ddpflow.int64
    assert tensor([1, 2]).sum(dtype=ddpflow.float64).dtype is ddpflow.float64
    assert tensor([1, 2]).mean(dtype=ddpflow.float32).item() == 1.5
    with pytest.raises(TypeError, match="ddpflow.int64"):
        tensor([1, 2]).mean()
    x = leaf([1.0, 2.0], "float32")
    x.mean().backward()
    assert x.grad.dtype is ddpflow.float32


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_half_precision_is_added_in_float32(name):
    """70,000 ones in float16 do not overflow on the way, and large terms that cancel do."""
    many = ones(70_000, dtype="float16")
    assert many.mean().item() == 1.0
    assert tensor([32000.0, 32000.0, -32000.0, -32000.0], dtype="float16").sum().item() == 0.0
    x = leaf([1.0, 2.0], "float16")
    getattr(x, name)().backward()
    assert x.grad.dtype is ddpflow.float16


def test_all_equal_elements_share_the_gradient_evenly():
    """Amax and the full max give each tie an equal part, also 70,000 of them in float16."""
    x = leaf(np.ones((4, 3)))
    x.amax(0).sum().backward()
    assert x.grad.sum(0).tolist() == [1.0, 1.0, 1.0] and x.grad[0, 0].item() == 0.25
    many = full((70_000,), 1.0, dtype="float16", requires_grad=True)
    many.max().backward()
    assert float(many.grad.array.astype(np.float64).sum()) == pytest.approx(1.0, rel=0.01)


def test_max_along_a_dimension():
    """Values and indices with names; the whole gradient goes to the element at the index, the first of equal ones."""
    x = leaf([[1.0, 5.0, 5.0], [7.0, 2.0, 3.0]])
    result = x.max(1)
    assert result.values.tolist() == [5.0, 7.0] and result.indices.tolist() == [1, 0]
    values, indices = x.max(dim=1, keepdim=True)
    assert values.shape == indices.shape == (2, 1)
    result.values.sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    ones_grad = leaf(np.ones((4, 3)))
    ones_grad.max(0).values.sum().backward()
    assert ones_grad.grad.sum(0).tolist() == [1.0, 1.0, 1.0]


def test_max_overloads():
    """max(x), max(x, dim) and max(x, other), and min likewise."""
    x, y = tensor([1.0, 4.0]), tensor([3.0, 2.0])
    assert ddpflow.max(x).item() == 4.0 and ddpflow.min(x).item() == 1.0
    assert ddpflow.max(x, y).tolist() == [3.0, 4.0] and ddpflow.min(x, other=y).tolist() == [1.0, 2.0]
    low, high = ddpflow.aminmax(x)
    assert (low.item(), high.item()) == (1.0, 4.0)


def test_extremes_of_nothing():
    """No greatest element over an empty dimension: an IndexError that names it; a 0-d tensor is its own extreme."""
    with pytest.raises(IndexError, match=r"\(0, 3\), dim 0"):
        ddpflow.zeros(0, 3).amax(0)
    with pytest.raises(IndexError):
        ddpflow.zeros(0).argmax()
    with pytest.raises(RuntimeError, match="give a dimension"):
        ddpflow.zeros(0, 2).max()
    assert tensor(3.0).max(0).indices.item() == 0
    assert tensor(3.0).argmax(-1).item() == 0


def test_argmax():
    """The first of equal ones; NaN counts as the greatest; the flattened index without a dimension."""
    assert tensor([[1.0, 3.0], [3.0, 0.0]]).argmax().item() == 1
    assert tensor([[1.0, 3.0], [3.0, 0.0]]).argmax(0).tolist() == [1, 0]
    assert tensor([1.0, NAN, 2.0]).argmax().item() == 1
    assert tensor([[1.0, 3.0]]).argmin(1, keepdim=True).tolist() == [[0]]


def test_prod_with_zeros():
    """The gradient is the product of the other elements, with none, one or two zeros among them."""
    for values, expected in (
        ([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]),
        ([2.0, 0.0, 3.0, 4.0], [0.0, 24.0, 0.0, 0.0]),
        ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
        ([0.0], [1.0]),
    ):
        x = leaf(values)
        x.prod().backward()
        assert x.grad.tolist() == expected
    x = leaf([[0.0, 2.0], [3.0, 4.0]])
    x.prod(0).sum().backward()
    assert x.grad.tolist() == [[3.0, 4.0], [0.0, 2.0]]
    x = leaf([[0.0], [5.0]])
    assert x.prod(1).shape == (2,)
    x.prod(1).sum().backward()
    assert x.grad.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("name", ["prod", "cumprod"])
def test_second_order_of_products_with_zeros(name):
    """Also the gradient's gradient needs no division."""
    x = leaf([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0]])
    assert gradcheck(lambda t: getattr(t, name)(1), (x,))
    assert gradgradcheck(lambda t: getattr(t, name)(1), (x,))


def test_logsumexp_with_infinities():
    """-inf is a probability of 0; a row of nothing else is -inf with gradient 0; nothing overflows."""
    x = leaf([[-INF, 0.0, 0.0], [1e4, 0.0, -1e4], [-INF, -INF, -INF]], "float32")
    y = x.logsumexp(1)
    assert y.tolist() == [pytest.approx(math.log(2.0)), 1e4, -INF]
    y.sum().backward()
    assert x.grad.tolist() == [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    half = leaf([1e4, 0.0], "float16")
    half.logsumexp(0).backward()
    assert half.grad.tolist() == [1.0, 0.0]


def test_truth_and_counts():
    """Any, all and count_nonzero over dimensions; of nothing they are False, True and 0."""
    x = tensor([[0, 2], [3, 4]])
    assert x.any(1).tolist() == [True, True] and x.all(1).tolist() == [False, True]
    assert x.all().item() is False and ddpflow.any(x).item() is True
    assert ddpflow.count_nonzero(x, 0).tolist() == [1, 2]
    empty = ddpflow.zeros(0)
    assert (empty.any().item(), empty.all().item(), empty.count_nonzero().item()) == (False, True, 0)


def test_nan_counts_as_nothing():
    """Nansum and nanmean leave NaN out, and give it no gradient."""
    x = leaf([1.0, NAN, 3.0])
    assert x.nansum().item() == 4.0 and ddpflow.nanmean(x).item() == 2.0
    (g,) = grad(x.nansum(), [x])
    assert g.tolist() == [1.0, 0.0, 1.0]


def test_sums_and_means_of_nothing():
    """The sum of nothing is 0, its product 1, its mean NaN without a warning."""
    empty = ddpflow.zeros(0)
    assert empty.sum().item() == 0.0 and empty.prod().item() == 1.0 and math.isnan(empty.mean().item())
