"""NumPy's names over tensors."""

import numpy as np
import pytest

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.namespace import namespace
from ddpflow.autograd.tensor import Tensor
from ddpflow.factories import tensor

A = np.array([[0.5, 0.25], [0.75, 1.0]])
UNARY = [
    "exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "sign", "floor", "trunc", "rint", "square", "negative", "isnan",
    "isfinite", "logical_not", "arcsin", "arctan", "log1p", "expm1", "copy", "ones_like", "zeros_like", "conj",
]  # fmt: skip
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "arctan2",
    "hypot",
    "logaddexp",
    "matmul",
]


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name):
    """The values are NumPy's, as a tensor."""
    found = getattr(namespace, name)(tensor(A))
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), getattr(np, name)(A))


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name):
    """The values are NumPy's."""
    np.testing.assert_allclose(getattr(namespace, name)(tensor(A), tensor(A + 1)).numpy(), getattr(np, name)(A, A + 1))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "any", "all"])
def test_reductions_with_numpys_names(name):
    """Axis and keepdims are understood."""
    found = getattr(namespace, name)(tensor(A), axis=1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), getattr(np, name)(A, axis=1, keepdims=True))


def test_makers():
    """Arrays that rules make: numbers, units, NumPy dtypes or ours."""
    assert namespace.arange(3).tolist() == [0, 1, 2]
    assert namespace.eye(2).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert namespace.zeros((1,), np.float32).tolist() == [0.0] and namespace.ones((1,), np.float64).tolist() == [1.0]
    assert namespace.full((1,), 2, np.float32).tolist() == [2.0]
    assert namespace.asarray(2.5).item() == 2.5
    assert namespace.where(tensor([True, False]), 1.0, tensor([2.0, 3.0])).tolist() == [1.0, 3.0]


def test_linear_algebra():
    """xp.linalg works on tensors, with gradients."""
    x = tensor(A, requires_grad=True)
    assert namespace.linalg.inv(x).requires_grad
    assert namespace.linalg.det(x).item() == pytest.approx(np.linalg.det(A))
    u, s, vh = namespace.linalg.svd(x, full_matrices=False)
    assert s.requires_grad


def test_it_is_what_rules_get():
    """The namespace is what the core calls rules with."""
    assert TensorBase.namespace is namespace and tensor(A).__array_namespace__() is namespace
