"""Graph nodes."""

import pytest

import ddpflow
from ddpflow.autograd.node import Node, Select, next_sequence
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


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
