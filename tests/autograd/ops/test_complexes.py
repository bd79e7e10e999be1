"""Parts of complex numbers."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import Function, gradcheck, gradgradcheck
from ddpflow.factories import tensor

Z = tensor(np.array([3 + 4j, -1 - 1j]))


def test_parts():
    """Real and imaginary part, conjugate and angle."""
    assert ddpflow.real(Z).tolist() == [3.0, -1.0] and ddpflow.imag(Z).tolist() == [4.0, -1.0]
    assert ddpflow.conj(Z).tolist() == [3 - 4j, -1 + 1j]
    assert ddpflow.angle(Z).tolist() == pytest.approx([math.atan2(4, 3), -3 * math.pi / 4])


def test_real_tensors_pass_through():
    """A real tensor is its own real part and conjugate; its angle is 0 or pi; it has no imaginary part."""
    x = tensor([1.0, -2.0])
    assert ddpflow.real(x) is x and ddpflow.resolve_conj(x) is x and ddpflow.resolve_neg(x) is x
    assert ddpflow.conj(x).tolist() == [1.0, -2.0]
    assert ddpflow.angle(x).tolist() == [0.0, pytest.approx(math.pi)]
    with pytest.raises(TypeError, match="complex"):
        ddpflow.imag(x)


def test_gradients():
    """The gradient of a complex number is dL/d(re) + i dL/d(im), PyTorch's convention."""
    z = tensor(np.array([3 + 4j]), requires_grad=True)
    (ddpflow.real(z) * 2 + ddpflow.imag(z) * 5).sum().backward()
    assert z.grad.tolist() == [2 + 5j]


def through(function):
    """A function of complex numbers as one of pairs of real numbers, which finite differences can check."""

    def real_function(*pairs):
        out = function(*[ddpflow.view_as_complex(p) for p in pairs])
        return ddpflow.view_as_real(out) if out.is_complex() else out

    return real_function


FUNCTIONS = {
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "with real numbers": lambda a, b: a * 2.5 - b.real * a,
    "matmul": lambda a, b: a.reshape(2, 2) @ b.reshape(2, 2),
    "exp": lambda a, b: a.exp() + b.sin(),
    "pow": lambda a, b: a**3 * b.reciprocal(),
    "log": lambda a, b: a.log() * b.sqrt(),
    "abs": lambda a, b: (a * b).abs(),
    "parts": lambda a, b: (a * b).real + (a / b).imag,
    "conj": lambda a, b: a.conj() * b,
    "angle": lambda a, b: ddpflow.angle(a * b),
    "sgn": lambda a, b: ddpflow.sgn(a) * b,
    "norm": lambda a, b: (a * b).norm(),
    "sum": lambda a, b: a.sum() * b.cumsum(0),
    "where": lambda a, b: ddpflow.where(a.real > 0, a, b) * b,
    "inverse": lambda a, b: ddpflow.inverse(a.reshape(2, 2)) @ b.reshape(2, 2),
    "index": lambda a, b: ddpflow.cat([a[1:], b[:1]]) * b,
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_gradients_by_differences(name):
    """Gradients with respect to real and imaginary parts, through the whole graph, first and second order."""
    rng = np.random.default_rng(11)
    pairs = tuple(tensor(rng.uniform(0.3, 1.5, (4, 2)), requires_grad=True) for _ in range(2))
    assert gradcheck(through(FUNCTIONS[name]), pairs)
    assert gradgradcheck(through(FUNCTIONS[name]), pairs, fast_mode=True)


def test_a_users_function_gives_gradients_as_they_are():
    """What a Function's backward returns is not conjugated."""

    class Turn(Function):
        @staticmethod
        def forward(ctx, z):
            return z * 1j

        @staticmethod
        def backward(ctx, g):
            return g * -1j

    z = tensor(np.array([3 + 4j]), requires_grad=True)
    Turn.apply(z).backward(tensor(np.array([1 + 2j])))
    assert z.grad.tolist() == [2 - 1j]
    other = tensor(np.array([3 + 4j]), requires_grad=True)
    (other * 1j).backward(tensor(np.array([1 + 2j])))
    assert other.grad.tolist() == [2 - 1j]


@pytest.mark.parametrize("name", ["var", "std", "logsumexp", "cov", "svd", "qr", "cholesky", "slogdet"])
def test_functions_of_real_numbers_only(name):
    """Where the rule holds for real numbers only, complex ones are refused by name."""
    matrix = tensor(np.eye(2) * (1 + 2j))
    with pytest.raises(NotImplementedError, match="complex128.*real numbers"):
        getattr(ddpflow, name)(matrix, *((0,) if name == "logsumexp" else ()))


def test_products_that_conjugate():
    """Vdot and vecdot conjugate their first operand."""
    w = tensor(np.array([1 + 1j, 2 - 1j]))
    assert ddpflow.vdot(Z, w).item() == np.vdot(Z.numpy(), w.numpy())
    assert ddpflow.linalg.vecdot(Z, w).item() == np.vdot(Z.numpy(), w.numpy())
