"""Functional activations: in place, options, the Gumbel softmax. Their values are tested through the modules."""

import inspect

import numpy as np
import pytest

import ddpflow
import ddpflow.nn.functional as F

IN_PLACE = [F.relu_, F.elu_, F.celu_, F.selu_, F.hardtanh_, F.leaky_relu_, F.rrelu_]


@pytest.mark.parametrize("function", IN_PLACE, ids=lambda f: f.__name__)
def test_underscore_forms(function):
    """The forms with an underscore overwrite their input with what the plain form gives."""
    x = ddpflow.tensor([-2.0, -0.5, 0.5, 3.0])
    expected = getattr(F, function.__name__[:-1])(x).tolist()
    assert function(x) is x
    assert x.tolist() == expected
    y = ddpflow.tensor([-2.0, 3.0])
    assert F.threshold_(y, 0.0, 9.0) is y
    assert y.tolist() == [9.0, 3.0]


def test_in_place_change_is_noticed_by_backward():
    """Overwriting a value that an earlier operation saved is an error in backward."""
    x = ddpflow.ones(2, requires_grad=True) * 2
    y = x * x
    F.relu(x, inplace=True)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_second_order_through_in_place():
    """Gradients of gradients pass an in-place activation."""
    x = ddpflow.tensor([-1.5, 0.7], dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradgradcheck(lambda x: F.silu(x * 1.0, inplace=True), x)


def test_bounds_in_the_wrong_order():
    """Hardtanh refuses a lower bound above the upper one."""
    with pytest.raises(ValueError, match="min_val <= max_val"):
        F.hardtanh(ddpflow.ones(1), 1.0, -1.0)


def test_gumbel_softmax_draws_by_probability():
    """Hard draws are one-hot and as frequent as the softmax says."""
    logits = ddpflow.tensor([0.0, 1.0, 2.0]).expand(20000, 3)
    draws = F.gumbel_softmax(logits, hard=True).numpy()
    assert (np.abs(draws.sum(1) - 1) < 1e-6).all()
    np.testing.assert_allclose(draws.max(1), 1.0, rtol=1e-6)
    expected = np.exp([0.0, 1.0, 2.0]) / np.exp([0.0, 1.0, 2.0]).sum()
    np.testing.assert_allclose(draws.mean(0), expected, atol=0.02)


def test_gumbel_softmax_has_a_gradient():
    """Hard draws have the relaxed draw's gradient; a low temperature makes relaxed draws nearly one-hot."""
    logits = ddpflow.randn(4, 3, requires_grad=True)
    (F.gumbel_softmax(logits, hard=True) * ddpflow.randn(4, 3)).sum().backward()
    assert logits.grad.any()
    soft = F.gumbel_softmax(logits.detach(), tau=0.01).numpy()
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-5)
    assert (soft.max(1) > 0.99).mean() > 0.5


def test_functional_names_are_functions():
    """Everything nn.functional lists is a function with a docstring."""
    for name in F.__all__:
        function = getattr(F, name)
        assert callable(function)
        assert function.__doc__, name
        assert inspect.signature(function).parameters, name
