"""PyTorch's linalg names."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow import linalg
from ddpflow.autograd import gradcheck
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.factories import ones, tensor

A = np.random.default_rng(9).normal(size=(4, 3))


@pytest.mark.parametrize("ord", ["fro", "nuc", 2, -2, 1, -1, math.inf, -math.inf])
def test_matrix_norms(ord):
    """NumPy's matrix norms, in any two dimensions, kept or not, with gradients."""
    expected = np.linalg.norm(A, ord)
    assert linalg.matrix_norm(tensor(A), ord).item() == pytest.approx(expected)
    assert linalg.norm(tensor(A), ord).item() == pytest.approx(expected)
    moved = tensor(A[:, None, :])
    assert linalg.matrix_norm(moved, ord, (0, 2)).tolist() == [pytest.approx(expected)]
    assert linalg.matrix_norm(moved, ord, (0, 2), keepdim=True).shape == (1, 1, 1)
    assert gradcheck(lambda x: linalg.matrix_norm(x, ord), (tensor(A, requires_grad=True),))


def test_norm_chooses():
    """Without an order all elements, with one vectors or matrices as the dimensions say."""
    x = tensor(A)
    assert linalg.norm(x).item() == pytest.approx(np.linalg.norm(A))
    np.testing.assert_allclose(linalg.norm(x, 1, 0).numpy(), np.linalg.norm(A, 1, 0))
    np.testing.assert_allclose(linalg.vector_norm(x, 3, 1).numpy(), np.linalg.norm(A, 3, 1))
    with pytest.raises(ShapeError, match="needs dim="):
        linalg.norm(ones(2, 2, 2), 2)
    with pytest.raises(ValueRangeError, match="order"):
        linalg.matrix_norm(x, 3)


def test_inverses():
    """inv, pinv, their twins with a report, rank and condition."""
    s = tensor(A[:3])
    np.testing.assert_allclose((linalg.inv(s) @ s).numpy(), np.eye(3), atol=1e-12)
    inverted, info = linalg.inv_ex(s)
    assert info.item() == 0 and inverted.tolist() == linalg.inv(s).tolist()
    np.testing.assert_allclose(linalg.pinv(tensor(A)).numpy(), np.linalg.pinv(A), atol=1e-12)
    assert linalg.matrix_rank(tensor(A)).item() == 3
    assert linalg.matrix_rank(ones(3, 3)).item() == 1
    assert linalg.matrix_rank(tensor(np.diag([1.0, 1e-3])), atol=1e-2).item() == 1
    for p in (None, 2, -2, "fro", 1):
        assert linalg.cond(s, p).item() == pytest.approx(np.linalg.cond(A[:3], p))


def test_solvers_with_a_report():
    """solve_ex and cholesky_ex add zeros."""
    s, b = tensor(A[:3]), tensor(A[:3, :1])
    solution, info = linalg.solve_ex(s, b)
    assert info.item() == 0 and solution.tolist() == linalg.solve(s, b).tolist()
    factor, info = linalg.cholesky_ex(s @ s.mT + 0.1 * ddpflow.eye(3, dtype="float64"))
    assert info.item() == 0 and factor[0, 1].item() == 0.0


def test_qr_modes():
    """Reduced by default; r leaves Q out; complete makes it square; anything else is refused."""
    x = tensor(A)
    assert linalg.qr(x).Q.shape == (4, 3) and linalg.qr(x, "r").Q.numel() == 0
    q, r = linalg.qr(x, "complete")
    assert q.shape == (4, 4) and r.shape == (4, 3)
    np.testing.assert_allclose((q @ r).numpy(), A, atol=1e-12)
    with pytest.raises(ValueRangeError, match="'full'"):
        linalg.qr(x, "full")


def test_vectors_and_tensors():
    """vecdot, cross, diagonal, vander, tensorinv and tensorsolve as NumPy's."""
    rng = np.random.default_rng(10)
    u, v = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    np.testing.assert_allclose(linalg.vecdot(tensor(u), tensor(v)).numpy(), (u * v).sum(1))
    np.testing.assert_allclose(linalg.cross(tensor(u), tensor(v)).numpy(), np.cross(u, v))
    assert linalg.diagonal(tensor(A[:3])).tolist() == np.diagonal(A[:3]).tolist()
    np.testing.assert_allclose(linalg.vander(tensor(u[0])).numpy(), np.vander(u[0], increasing=True))
    np.testing.assert_allclose(linalg.vander(tensor(u[0]), N=2).numpy(), np.vander(u[0], 2, increasing=True))
    big = rng.normal(size=(2, 3, 6))
    np.testing.assert_allclose(linalg.tensorinv(tensor(big), 2).numpy(), np.linalg.tensorinv(big, 2), atol=1e-12)
    side = rng.normal(size=(2, 3))
    np.testing.assert_allclose(
        linalg.tensorsolve(tensor(big), tensor(side)).numpy(), np.linalg.tensorsolve(big, side), atol=1e-12
    )
