"""Jacobians and Hessians."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.functional import hessian, jacobian, vjp
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


def double(values):
    """A float64 tensor."""
    return tensor(values, dtype="float64")


def test_jacobian_of_one():
    """Shape: the output's, then the input's."""
    found = jacobian(lambda x: x.exp(), double([0.0, 1.0]))
    np.testing.assert_allclose(found.numpy(), np.diag(np.exp([0.0, 1.0])))
    a = double([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert jacobian(lambda x: a @ x, double([1.0, 1.0])).tolist() == a.tolist()
    assert jacobian(lambda x: x.sum(), double([[1.0, 2.0]])).tolist() == [[1.0, 1.0]]


def test_jacobian_of_several():
    """A tuple for each output of a tuple for each input; what is not used is zero, or an error when strict."""
    x, y = double([2.0]), double([3.0, 4.0])
    product, other = jacobian(lambda p, q: (p * q, p * 2), (x, y))
    assert product[0].tolist() == [[3.0], [4.0]] and product[1].tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert other[0].tolist() == [[2.0]] and other[1].tolist() == [[0.0, 0.0]]
    with pytest.raises(AutogradError, match="strict"):
        jacobian(lambda p, q: p * 2, (x, y), strict=True)


def test_hessian():
    """Of a quadratic form its matrix, for several inputs in blocks; more than one number is refused."""
    m = double([[2.0, 1.0], [1.0, 4.0]])
    assert hessian(lambda x: 0.5 * x @ m @ x, double([1.0, -1.0])).tolist() == m.tolist()
    blocks = hessian(lambda p, q: (p * p * q).sum(), (double([3.0]), double([5.0])))
    assert [[b.tolist() for b in row] for row in blocks] == [[[[10.0]], [[6.0]]], [[[6.0]], [[0.0]]]]
    with pytest.raises(AutogradError, match="one number"):
        hessian(lambda x: x, double([1.0, 2.0]))


def test_differentiable_results():
    """With create_graph the Jacobian is itself part of a graph."""
    x = tensor([2.0], dtype="float64", requires_grad=True)
    jacobian(lambda t: t**3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [12.0]


def test_vjp():
    """Outputs and the product with the Jacobian."""
    out, g = vjp(lambda x: x * x, double([1.0, 2.0]), double([10.0, 100.0]))
    assert out.tolist() == [1.0, 4.0] and g.tolist() == [20.0, 400.0]
    assert vjp(lambda x: x.sum(), double([1.0]))[1].tolist() == [1.0]
    assert vjp(lambda p, q: p * 2, (double([1.0]), double([1.0])), double([1.0]))[1][1].tolist() == [0.0]


def test_where_torch_has_it():
    """ddpflow.autograd.functional is the module."""
    assert ddpflow.autograd.functional.jacobian is jacobian
