"""Gradients of gradients from the same rules."""

import pytest

import ddpflow
from ddpflow.autograd import grad
from ddpflow.autograd.higher import tensor_vjps
from ddpflow.autograd.op import REGISTRY, op
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


def leaf(*values):
    """A float64 leaf."""
    return tensor(list(values), requires_grad=True, dtype="float64")


@pytest.fixture
def registry():
    """Takes ops made in a test out of the registry again."""
    before = set(REGISTRY)
    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def second(function, x):
    """The second derivative of the sum of a function at x."""
    (first,) = grad(function(x).sum(), [x], create_graph=True)
    return grad(first.sum(), [x])[0].tolist()


def test_a_rule_that_names_inputs_and_output():
    """The vjp is bound to tensors: x**3 and exp."""
    assert second(lambda x: x**3, leaf(2.0)) == [12.0]
    assert second(lambda x: x.exp(), leaf(0.0)) == [1.0]


def test_a_rule_that_names_something_derived(registry):
    """The rule is run again on the input tensors."""

    @op(samples=[((2,),)])
    def cube_by_square(xp, x):
        """X cubed, with its square kept."""
        square = x * x
        return square * x, lambda g: g * (3 * square)

    assert second(cube_by_square, leaf(2.0)) == [12.0]


def test_a_rule_with_a_composite(registry):
    """A rule that cannot run on tensors is replaced by its composite."""

    @op(samples=[((2,),)], composite=lambda xp, x: x * x * x)
    def fused_cube(xp, x):
        """X cubed, in place."""
        out = x.copy()
        out *= x
        out *= x
        return out, lambda g: xp.multiply(g, 3 * x * x, out=g.copy())

    assert second(fused_cube, leaf(2.0)) == [12.0]


def test_a_rule_with_neither(registry):
    """The error names the operation."""

    @op(samples=[((2,),)])
    def opaque(xp, x):
        """X squared by a function that tensors do not have."""
        out = xp.einsum("i,i->i", x, x)
        derived = x + 0.0
        return out, lambda g: g * 2 * derived

    with pytest.raises(AutogradError, match="'opaque' has no second-order gradient"):
        second(opaque, leaf(2.0))


def test_mixed_partials():
    """Both orders of differentiation agree."""
    x, y = leaf(1.5), leaf(-0.5)
    (gx,) = grad((x.sin() * y.exp() * x).sum(), [x], create_graph=True)
    (gy,) = grad((x.sin() * y.exp() * x).sum(), [y], create_graph=True)
    assert grad(gx.sum(), [y])[0].item() == pytest.approx(grad(gy.sum(), [x])[0].item(), rel=1e-14)


def test_gradient_penalty():
    """A loss on a gradient's norm trains: the gradient of |df/dx| with respect to a weight."""
    w, x = leaf(2.0), leaf(3.0)
    (gx,) = grad((w * x * x).sum(), [x], create_graph=True)
    (gx.norm() - 1).square().backward()
    assert w.grad.tolist() == [pytest.approx(2 * (12.0 - 1) * 6.0)]


def test_vjps_of_a_node():
    """The same number of functions as the node has, over tensors."""
    x, y = leaf(1.0), leaf(2.0)
    vjps = tensor_vjps((x * y).node, grad)
    one = ddpflow.ones(1, dtype="float64")
    assert [vjp(one).tolist() for vjp in vjps] == [[2.0], [1.0]]
