"""Callers for one tensor with options, for three tensors, and for two operands without a gradient."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import no_grad
from ddpflow.autograd.dispatch import general
from ddpflow.autograd.ops.linear import linear
from ddpflow.autograd.shortcuts import comparing, single
from ddpflow.factories import tensor

X = [[0.5, -1.5], [2.0, 0.25]]
CALLS = [
    ("sum", (), {}),
    ("sum", (1,), {}),
    ("mean", (), {"dim": 0, "keepdim": True}),
    ("amax", (1, True), {}),
    ("cumsum", (0,), {}),
    ("logsumexp", (), {"axis": 1}),
    ("argmax", (1,), {}),
    ("nan_to_num", (), {}),
    ("round", (), {"decimals": 1}),
    ("prod", (0,), {"dtype": "float64"}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_single_does_what_general_does(name, args, kwargs):
    """The same values, dtypes and gradients, with options by place and by name."""
    definition = getattr(ddpflow, name).op
    results = []
    for caller in (single(definition), general(definition)):
        x = tensor(X, requires_grad=True)
        y = caller(x, *args, **kwargs)
        if y.requires_grad:
            y.sum().backward()
        results.append((y.tolist(), y.dtype, None if x.grad is None else x.grad.tolist(), repr(y.grad_fn)))
    assert results[0] == results[1]


def test_single_with_several_outputs():
    """Each output leads to the common node; without recording there is none."""
    definition = ddpflow.slogdet.op
    x = tensor([[2.0, 0.0], [0.0, 3.0]], dtype="float64", requires_grad=True)
    sign, logarithm = single(definition)(x)
    logarithm.backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0.5, 0.0], [0.0, 1 / 3]])
    with no_grad():
        assert not single(definition)(x)[1].requires_grad


def test_single_records_only_floating_results():
    """An integer result of a floating input is outside of the graph; an int input of a float function is converted."""
    x = tensor(X, requires_grad=True)
    assert not ddpflow.count_nonzero(x).requires_grad
    assert ddpflow.logsumexp(tensor([1, 2]), 0).dtype is ddpflow.float32


def test_single_refuses_what_is_no_tensor():
    """A list in the place of the tensor is named."""
    with pytest.raises(TypeError, match=r"sum\(\) takes a tensor, not list"):
        ddpflow.sum([1.0])
    with pytest.raises(TypeError, match="unexpected keyword"):
        ddpflow.sum(tensor([1.0]), nothing=1)
    with pytest.raises(IndexError, match="out of range"):
        ddpflow.sum(tensor([1.0]), 3)


@pytest.mark.parametrize("name", ["eq", "lt", "ge", "bitwise_and", "gcd"])
def test_comparing_does_what_general_does(name):
    """The same values for tensors and numbers on either side."""
    definition = getattr(ddpflow, name).op
    a, b = tensor([6, 9, 12]), tensor([4, 9, 5])
    for operands in ((a, b), (a, 9), (9, b)):
        assert comparing(definition)(*operands).tolist() == general(definition)(*operands).tolist()


def test_comparing_promotes_and_explains():
    """Operands of different dtypes are brought together; shapes that do not broadcast are named."""
    assert (tensor([1, 2]) < tensor([1.5, 1.5])).tolist() == [True, False]
    with pytest.raises(RuntimeError, match=r"lt.*\(2,\), \(3,\)"):
        _ = tensor([1.0, 2.0]) < tensor([1.0, 2.0, 3.0])
    result = tensor(1.0, requires_grad=True) > 0
    assert type(result.array) is np.ndarray and not result.requires_grad


def test_three_tensors_with_the_last_left_out_or_none():
    """A rule with three tensors records those that want a gradient, however the call was written."""
    x, w, b = ddpflow.randn(4, 3), ddpflow.randn(2, 3, requires_grad=True), ddpflow.randn(2, requires_grad=True)
    plain = linear(x, w).grad_fn
    assert [edge is w for edge in plain.edges] == [False, True, False]
    assert linear(x, w, None).grad_fn.edges == plain.edges
    for out in (linear(x, w, b), linear(x, weight=w, bias=b), linear(input=x, weight=w, bias=b)):
        assert out.grad_fn.edges == (None, w, b)
        w.grad = b.grad = None
        out.sum().backward()
        assert b.grad.tolist() == [4.0, 4.0]
    with ddpflow.no_grad():
        assert linear(x, w, b).grad_fn is None


def test_a_changed_input_of_three_is_noticed():
    """The weight that the input's gradient needs was written to after the call."""
    x, w = ddpflow.randn(4, 3, requires_grad=True), ddpflow.randn(2, 3)
    out = linear(x, w)
    w.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        out.sum().backward()


def test_what_is_no_tensor_among_three_is_named():
    """The error is the one of the general way."""
    with pytest.raises(TypeError, match=r"linear\(\) takes a tensor, not list"):
        linear(ddpflow.randn(4, 3), [[1.0, 2.0, 3.0]])
