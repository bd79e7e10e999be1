"""Graph nodes."""

import tracemalloc

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.base import meta_of
from ddpflow.autograd.node import Node, Select, free_home, next_sequence, vjps_into
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor
from ddpflow.nn.functional import linear


def leaf(*values):
    """A leaf that collects a gradient."""
    return tensor(list(values), requires_grad=True)


def test_names_and_neighbours():
    """grad_fn shows the operation, and next_functions leads on to nodes and leaves."""
    x = leaf(1.0)
    y = (x * 2).exp()
    assert y.grad_fn.name == "exp" and repr(y.grad_fn) == "<ExpBackward>"
    ((before, slot),) = y.grad_fn.next_functions
    assert before.name == "mul" and slot == 0
    assert before.next_functions[0] == (x, 0)
    assert x.grad_fn is None and Node(None, (), None, (), None).name == ""


def test_sequence_is_creation_order():
    """A later node has a greater number."""
    x = leaf(1.0)
    first, second = (x * 1).node, (x * 1).node
    assert first.sequence < second.sequence < next_sequence()


def test_outputs_of_one_operation_share_a_node():
    """Each output has a Select of the common node."""
    x = tensor([[2.0, 1.0], [0.0, 3.0]], requires_grad=True)
    q, r = ddpflow.qr(x)
    assert isinstance(q.node, Select) and (q.node.index, r.node.index) == (0, 1)
    assert q.node.edges[0] is r.node.edges[0]


def test_free():
    """A freed node holds no arrays any more."""
    node = (leaf(1.0) * leaf(2.0)).node
    node.free()
    assert node.vjps is None and node.args is None


def test_check_versions():
    """A saved input or result that was written is named with shape and versions; others are not looked at."""
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    product, root = x * y, x.sqrt()
    product.node.check_versions()
    y.bump_version()
    with pytest.raises(AutogradError, match=r"'mul'.*input 1, shape \(2,\), is at version 1, saved at version 0"):
        product.node.check_versions()
    root.bump_version()
    with pytest.raises(AutogradError, match="'sqrt'.*its result"):
        root.node.check_versions()
    (x * 1).node.check_versions()


def test_a_value_saved_after_writes():
    """A write before saving does not count: the versions at that moment are what is compared."""
    x = leaf(1.0)
    x.bump_version()
    y = x * x
    y.node.check_versions()
    x.bump_version()
    with pytest.raises(AutogradError, match="version 2, saved at version 1"):
        y.node.check_versions()


def homed(rows=3, features=4):
    """A weight with a home full of something else, and an input that fits."""
    rng = np.random.default_rng(0)
    weight = tensor(rng.standard_normal((rows, features)), requires_grad=True)
    meta_of(weight).home = tensor(rng.standard_normal((rows, features)))
    return weight, tensor(rng.standard_normal((5, features)))


@pytest.mark.parametrize(
    "case", ["free", "has a gradient", "has a hook", "is used again", "was used", "no home", "dtype", "strides"]
)
def test_where_a_gradient_may_be_computed_into_the_home(case):
    """Only when the gradient is all that the leaf gets, nobody sees it before, and the home is as the result."""
    weight, x = homed()
    node, counts, pending = linear(x, weight).node, {weight: 1}, {}
    home = meta_of(weight).home
    if case == "has a gradient":
        weight.grad = tensor(np.ones((3, 4)))
    elif case == "has a hook":
        weight.register_hook(lambda g: None)
    elif case == "is used again":
        counts[weight] = 2
    elif case == "was used":
        pending[weight] = np.ones((3, 4))
    elif case == "no home":
        meta_of(weight).home = None
    elif case == "dtype":
        home.data = tensor(np.ones((3, 4), np.float32))
    elif case == "strides":
        home.data = tensor(np.ones((4, 3))).T
    found = free_home(node, counts, pending)
    assert found is (home.array if case == "free" else None)


def test_no_home_for_what_is_no_leaf():
    """A weight that was computed, or wants no gradient, has none."""
    weight, x = homed()
    assert free_home(linear(x, weight * 1.0).node, {}, {}) is None
    assert free_home(linear(x.requires_grad_(), weight.detach()).node, {}, {}) is None


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (4,)])
def test_vjps_into_a_home(shape):
    """Gradients are the same as without; that of the weight of a batch is the home itself."""
    weight, _ = homed()
    x = tensor(np.random.default_rng(1).standard_normal(shape), requires_grad=True)
    y = linear(x, weight)
    g = np.random.default_rng(2).standard_normal(y.shape)
    home = np.full((3, 4), np.nan)
    expected = [vjp and vjp(g) for vjp in y.node.vjps]
    found = vjps_into(home, y.node, g)
    assert [f is None for f in found] == [e is None for e in expected] == [False, False, True]
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    assert (found[1] is home) is (len(shape) > 1)


@pytest.mark.parametrize("has_home", [True, False])
def test_backward_into_a_home_takes_no_memory_for_the_gradient(has_home):
    """With a home nothing of the weight's size is allocated; the values are those without."""
    weight, x = homed(300, 200)
    if not has_home:
        meta_of(weight).home = None
    y = linear(x, weight).sum()
    tracemalloc.start()
    try:
        y.backward()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (peak < weight.nbytes // 2) is has_home
    np.testing.assert_allclose(weight.grad.array, np.ones((300, 5)) @ x.array, rtol=1e-12)
    (linear(x, weight) * 2.0).sum().backward()
    np.testing.assert_allclose(weight.grad.array, 3 * np.ones((300, 5)) @ x.array, rtol=1e-12)
