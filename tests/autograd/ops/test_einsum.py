"""Einstein's summation convention against NumPy's."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck, gradgradcheck
from ddpflow.factories import tensor

EQUATIONS = [
    ("i,i->", (4,), (4,)),
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("...ij,jk->...ik", (2, 5, 2, 3), (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,kl->ijkl", (2, 3), (1, 2)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ijk,j->ki", (2, 3, 4), (3,)),
    ("ab,cb->", (2, 3), (4, 3)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_values_and_gradients(case):
    """Values as NumPy's; first- and second-order gradients by finite differences."""
    equation, *shapes = case
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=shape) for shape in shapes]
    tensors = [tensor(a, requires_grad=True) for a in arrays]
    found = ddpflow.einsum(equation, *tensors)
    np.testing.assert_allclose(found.detach().numpy(), np.einsum(equation, *arrays), rtol=1e-12, atol=1e-12)
    assert gradcheck(lambda *xs: ddpflow.einsum(equation, *xs), tensors, fast_mode=True)
    assert gradgradcheck(lambda *xs: ddpflow.einsum(equation, *xs), tensors, fast_mode=True)


def test_other_forms():
    """Spaces, a list of operands, and dimension numbers in lists."""
    a, b = tensor(np.arange(6.0).reshape(2, 3)), tensor(np.arange(3.0))
    expected = (a.numpy() @ b.numpy()).tolist()
    assert ddpflow.einsum(" ij , j -> i ", a, b).tolist() == expected
    assert ddpflow.einsum("ij,j->i", [a, b]).tolist() == expected
    assert ddpflow.einsum(a, [0, 1], b, [1], [0]).tolist() == expected


def test_sizes_of_one_are_repeated():
    """A size of 1 fits any other, as in PyTorch."""
    a, b = tensor(np.arange(3.0).reshape(1, 3)), tensor(np.arange(12.0).reshape(4, 3))
    assert ddpflow.einsum("ij,ij->i", a, b).tolist() == (a.numpy() * b.numpy()).sum(1).tolist()


def test_bad_equations():
    """Wrong numbers of terms and letters, and sizes that differ, are named."""
    a = ddpflow.ones(2, 3)
    with pytest.raises(ValueError, match="2 terms for 1"):
        ddpflow.einsum("ij,jk->ik", a)
    with pytest.raises(RuntimeError, match="'ijk'"):
        ddpflow.einsum("ijk->i", a)
    with pytest.raises(RuntimeError, match="'j' is 3 in one tensor and 2"):
        ddpflow.einsum("ij,jk->ik", a, a)
    with pytest.raises(ValueError, match="'z'"):
        ddpflow.einsum("ij->z", a)
