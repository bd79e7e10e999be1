"""Parts of complex numbers."""

import math

import numpy as np
import pytest

import ddpflow
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
