"""Variance, standard deviation and norms, at zero too."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.factories import tensor


def leaf(values, dtype="float64"):
    """A leaf that collects a gradient."""
    return tensor(values, requires_grad=True, dtype=dtype)


def test_values_and_overloads():
    """PyTorch's spellings: unbiased in two places, correction, dimensions, keepdim."""
    x = np.random.default_rng(1).normal(size=(3, 4))
    t = tensor(x)
    np.testing.assert_allclose(t.var().numpy(), x.var(ddof=1))
    np.testing.assert_allclose(t.var(False).numpy(), x.var())
    np.testing.assert_allclose(t.std(1).numpy(), x.std(1, ddof=1))
    np.testing.assert_allclose(t.std(1, False).numpy(), x.std(1))
    np.testing.assert_allclose(ddpflow.std(t, dim=0, unbiased=False, keepdim=True).numpy(), x.std(0, keepdims=True))
    np.testing.assert_allclose(ddpflow.var(t, (0, 1), correction=2).numpy(), x.var(ddof=2))
    variance, mean = ddpflow.var_mean(t, 1)
    np.testing.assert_allclose(variance.numpy(), x.var(1, ddof=1))
    np.testing.assert_allclose(mean.numpy(), x.mean(1))
    np.testing.assert_allclose(ddpflow.std_mean(t, 0)[0].numpy(), x.std(0, ddof=1))


def test_std_of_a_constant():
    """Equal elements: the standard deviation and its gradient are 0, by row as well."""
    x = leaf([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
    y = x.std(1)
    assert y.tolist() == [0.0, 1.0]
    y.sum().backward()
    assert x.grad[0].tolist() == [0.0, 0.0, 0.0]
    assert x.grad[1].tolist() == [-0.5, 0.0, 0.5]


def test_std_of_one_element():
    """No degrees of freedom: NaN, with a warning that says so."""
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert math.isnan(tensor([3.0]).std().item())
    assert tensor([3.0]).std(correction=0).item() == 0.0


def test_half_precision():
    """Deviations are squared in float32: large halves do not overflow on the way."""
    x = leaf([1000.0, 1200.0], "float16")
    assert x.std().item() == pytest.approx(141.4, rel=1e-3)
    x.std().backward()
    assert np.isfinite(x.grad.numpy()).all()


SPELLINGS = {
    "norm()": lambda x: x.norm(),
    "norm(2)": lambda x: x.norm(2),
    "norm p=1": lambda x: x.norm(1),
    "norm inf": lambda x: x.norm(math.inf),
    "norm p=3": lambda x: x.norm(3),
    "linalg.norm": lambda x: ddpflow.linalg.norm(x),
    "linalg.vector_norm": lambda x: ddpflow.linalg.vector_norm(x, 2.0),
    "fro": lambda x: ddpflow.linalg.norm(x.reshape(1, -1), "fro"),
    "dist": lambda x: ddpflow.dist(x, ddpflow.zeros_like(x)),
}


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_norm_of_zero(name):
    """By every spelling the norm of 0 is 0, with gradient 0."""
    x = leaf([0.0, 0.0, 0.0])
    y = SPELLINGS[name](x)
    assert y.item() == 0.0
    y.backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("p", [1, 2, 3, math.inf, -math.inf, 0.5])
def test_norm_by_rows_with_one_zero_row(p):
    """A zero row has gradient 0; the others are as finite differences say."""
    x = leaf([[0.0, 0.0], [3.0, -4.0]])
    x.norm(p, dim=1).sum().backward()
    assert x.grad[0].tolist() == [0.0, 0.0]
    row = leaf([[3.0, -4.0]])
    assert gradcheck(lambda r: r.norm(p, dim=1), (row,))
    row.norm(p, dim=1).sum().backward()
    assert x.grad[1].tolist() == row.grad[0].tolist()


def test_norm_values():
    """The p-norms of (3, -4), and the number of non-zero elements for p = 0."""
    x = tensor([3.0, -4.0], dtype="float64")
    expected = {1: 7.0, 2: 5.0, 3: 91 ** (1 / 3), math.inf: 4.0, -math.inf: 3.0, 0: 2.0}
    for p, value in expected.items():
        assert ddpflow.norm(x, p).item() == pytest.approx(value, rel=1e-14)
    assert ddpflow.norm(x, p=2, dim=0, keepdim=True).shape == (1,)


def test_integers_are_refused():
    """Statistics take floating tensors, and name the dtype they got."""
    for function in (ddpflow.var, ddpflow.std, ddpflow.norm):
        with pytest.raises((TypeError, RuntimeError), match="ddpflow.int64"):
            function(tensor([1, 2]))
