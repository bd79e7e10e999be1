"""Affine and bilinear maps: values, and refusals that name the shapes."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.linear import bilinear, linear


def test_any_leading_axes_give_what_rows_give(rng):
    """A batch of sequences is the rows, one by one."""
    x, w, b = (ddpflow.from_numpy(rng.standard_normal(s)) for s in ((2, 5, 4), (3, 4), (3,)))
    out = linear(x, w, b)
    assert tuple(out.shape) == (2, 5, 3)
    np.testing.assert_allclose(out.numpy(), x.numpy() @ w.numpy().T + b.numpy(), rtol=1e-12)
    assert tuple(linear(ddpflow.zeros(2, 0, 4), ddpflow.ones(3, 4)).shape) == (2, 0, 3)


def test_gradient_of_the_input_is_not_computed_when_nobody_wants_it(rng):
    """Only what requires a gradient gets one."""
    x = ddpflow.from_numpy(rng.standard_normal((5, 4)))
    w = ddpflow.from_numpy(rng.standard_normal((3, 4))).requires_grad_()
    linear(x, w).sum().backward()
    assert x.grad is None
    np.testing.assert_allclose(w.grad.numpy(), np.tile(x.numpy().sum(0), (3, 1)), rtol=1e-12)


def test_widths_that_do_not_fit_are_named():
    """The error holds both shapes."""
    with pytest.raises(RuntimeError, match=r"\(2, 5\).*\(3, 4\)"):
        linear(ddpflow.zeros(2, 5), ddpflow.zeros(3, 4))
    with pytest.raises(RuntimeError, match=r"\(2, 4\)"):
        bilinear(ddpflow.zeros(2, 4), ddpflow.zeros(2, 5), ddpflow.zeros(3, 4, 4))


def test_bilinear_is_its_formula(rng):
    """Against the sum over both vectors."""
    a, b, w, c = (rng.standard_normal(s) for s in ((2, 3, 4), (2, 3, 5), (6, 4, 5), (6,)))
    out = bilinear(*map(ddpflow.from_numpy, (a, b, w, c)))
    np.testing.assert_allclose(out.numpy(), np.einsum("nmi,oij,nmj->nmo", a, w, b) + c, rtol=1e-10)
