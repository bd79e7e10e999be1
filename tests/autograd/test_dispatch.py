"""From calls on tensors to rules on arrays and back."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.dispatch import binary, general, unary
from ddpflow.autograd.mode import no_grad
from ddpflow.factories import tensor


def test_zero_dimensions_stay_arrays():
    """NumPy's scalars never leak: every result holds an array."""
    x = tensor(2.0, requires_grad=True)
    for y in (x * 3, x.exp(), x.sum(), x + x, x.reshape(1).sum(), x.max(0).values, x > 1):
        assert type(y.array) is np.ndarray
    for _ in range(2):
        (x * x).backward()
        assert type(x.grad.array) is np.ndarray
    leaf = tensor(1.0, requires_grad=True)
    ddpflow.autograd.backward([leaf, leaf])
    assert type(leaf.grad.array) is np.ndarray and leaf.grad.item() == 2.0


def test_recording_only_where_it_is_wanted():
    """No node without an input that requires grad, under no_grad, or for integer results."""
    x, y = tensor([1.0]), tensor([1.0], requires_grad=True)
    assert (x * x).node is None
    with no_grad():
        assert (y * y).node is None and y.exp().node is None and y.sum(0).node is None
    assert y.argmax().node is None
    assert (y * y).node is not None


def test_edges_only_to_inputs_that_want_a_gradient():
    """A constant operand has no edge, and its vjp is not kept."""
    x, y = tensor([1.0]), tensor([2.0], requires_grad=True)
    node = (x * y).node
    assert node.edges == (None, y) and node.vjps[0] is None
    node = ddpflow.where(x > 0, x, y).node
    assert node.edges[0] is None and node.edges[1] is y


def test_tensors_by_keyword():
    """A tensor given by name takes its place among the inputs, with its gradient."""
    x, w = tensor([1.0, 2.0], requires_grad=True), tensor(0.25, requires_grad=True)
    y = ddpflow.lerp(x, end=tensor([3.0, 6.0]), weight=w)
    assert y.tolist() == [1.5, 3.0]
    y.sum().backward()
    assert w.grad.item() == 6.0 and x.grad.tolist() == [0.75, 0.75]


def test_signatures_and_docs():
    """The function users call has the rule's text and parameters, without xp."""
    assert ddpflow.sum.__doc__.startswith("Sum over")
    assert list(ddpflow.sum.__signature__.parameters) == ["input", "dim", "keepdim", "dtype"]
    assert ddpflow.exp.__name__ == "exp"


def test_several_outputs():
    """Each floating output leads to the common node; integer ones carry no gradient."""
    x = tensor([[2.0, 0.0], [0.0, 3.0]], dtype="float64", requires_grad=True)
    sign, logarithm = ddpflow.slogdet(x)
    assert logarithm.requires_grad
    logarithm.backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0.5, 0.0], [0.0, 1 / 3]])


def test_what_a_rule_raises_is_explained():
    """NumPy's exception becomes PyTorch's type, with the operation and the shapes."""
    with pytest.raises(RuntimeError, match=r"add\(\).*\(2,\), \(3,\)"):
        tensor([1.0, 2.0]) + tensor([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match=r"neg\(\)"):
        -tensor([True])
    with pytest.raises(TypeError, match="exp.*takes a tensor, not float"):
        ddpflow.exp(1.0)
    with pytest.raises(TypeError, match="sum.*takes a tensor, not list"):
        ddpflow.sum([1.0])
    with pytest.raises(TypeError, match="unexpected keyword"):
        tensor([1.0]).sum(axes=0)


def test_the_three_callers_agree():
    """A call through the general path gives what the short ones give."""
    x, y = tensor([1.0, 2.0], requires_grad=True), tensor([3.0, 4.0])
    product, exponential = ddpflow.mul.op, ddpflow.exp.op
    assert binary(product)(x, y).tolist() == general(product)(x, y).tolist()
    assert unary(exponential)(x).tolist() == general(exponential)(x).tolist()
    assert general(exponential)(x).requires_grad
