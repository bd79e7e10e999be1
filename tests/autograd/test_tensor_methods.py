"""Operations as methods."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.tensor_methods import TensorMethods
from ddpflow.factories import tensor

A = np.array([[0.25, -0.5], [0.75, 0.125]])
# Arguments beyond the tensor itself; all other methods here take none.
ARGUMENTS = {
    "add": (1.0,), "sub": (1.0,), "mul": (2.0,), "div": (2.0,), "pow": (2,), "remainder": (0.3,), "fmod": (0.3,),
    "floor_divide": (0.3,), "clamp": (0.0, 0.5), "maximum": (tensor(A.T),), "minimum": (tensor(A.T),),
    "eq": (0.25,), "lt": (0.25,), "matmul": (tensor(A),), "mm": (tensor(A),), "cumsum": (0,), "cumprod": (1,),
    "sum": (0,), "amax": (1,), "std": (1,), "var": (0,), "norm": (2,), "logsumexp": (1,), "quantile": (0.5,),
    "atan2": (tensor(A.T),), "isclose": (tensor(A),), "diff": (), "median": (),
}  # fmt: skip
PLAIN = [
    "exp", "tanh", "abs", "neg", "square", "sigmoid", "relu", "floor", "round", "erf", "sgn", "isnan", "mean", "prod",
    "argmax", "any", "all", "trace", "det", "inverse", "nan_to_num", "frac", "sinh", "reciprocal",
]  # fmt: skip


@pytest.mark.parametrize("name", [*ARGUMENTS, *PLAIN])
def test_a_method_is_its_function(name):
    """x.name(...) gives what ddpflow.name(x, ...) gives."""
    x, args = tensor(A), ARGUMENTS.get(name, ())
    np.testing.assert_array_equal(getattr(x, name)(*args).numpy(), getattr(ddpflow, name)(x, *args).numpy())


def test_methods_whose_order_differs():
    """The tensor is not the first argument of where and polygamma."""
    x = tensor([1.0, 2.0])
    assert x.where(x > 1, tensor([9.0, 9.0])).tolist() == [9.0, 2.0]
    assert x.polygamma(0).tolist() == x.digamma().tolist()


def test_aliases():
    """PyTorch's second names are the same functions."""
    for first, second in (("mul", "multiply"), ("abs", "absolute"), ("clamp", "clip"), ("gt", "greater")):
        assert getattr(TensorMethods, first) is getattr(TensorMethods, second)
        assert getattr(ddpflow, first) is getattr(ddpflow, second)


def test_reflected_operators():
    """A number on the left reaches the same rule, with the operands in order."""
    x = tensor([2.0, 4.0])
    assert (1 - x).tolist() == [-1.0, -3.0] and (8 / x).tolist() == [4.0, 2.0]
    assert (2**x).tolist() == [4.0, 16.0] and (5 // x).tolist() == [2.0, 1.0] and (5 % x).tolist() == [1.0, 1.0]
    assert (np.ones((1, 2), np.float32) @ x).tolist() == [6.0]
    assert (1 << tensor([3])).tolist() == [8] and (16 >> tensor([2])).tolist() == [4]


def test_parts():
    """Real and imag are attributes."""
    z = tensor(np.array([1 + 2j]))
    assert z.real.tolist() == [1.0] and z.imag.tolist() == [2.0]
    assert tensor([1.5]).real.tolist() == [1.5]
