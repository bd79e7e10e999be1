"""Inverses, determinants and decompositions."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck, gradgradcheck
from ddpflow.autograd.ops import matrices
from ddpflow.errors import ShapeError
from ddpflow.factories import eye, ones, tensor

RNG = np.random.default_rng(6)


def random(*shape):
    """A float64 leaf of random numbers."""
    return tensor(RNG.normal(size=shape), requires_grad=True)


def definite(x):
    """A symmetric positive definite matrix made from any."""
    return x @ x.swapaxes(-1, -2) + eye(x.shape[-1], dtype="float64")


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)])
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(shape, upper):
    """The factor gives the matrix back; gradients through a symmetric input, first and second order."""
    x = random(*shape)
    a = definite(x)
    factor = ddpflow.cholesky(a, upper)
    back = factor.mT @ factor if upper else factor @ factor.mT
    np.testing.assert_allclose(back.detach().numpy(), a.detach().numpy(), rtol=1e-12)
    assert gradcheck(lambda t: ddpflow.cholesky(definite(t), upper), (x,))
    assert gradgradcheck(lambda t: ddpflow.cholesky(definite(t), upper), (x,), fast_mode=True)


def test_solves_with_a_cholesky_factor():
    """cholesky_solve and cholesky_inverse undo the matrix, from either triangle."""
    a, b = definite(random(4, 4)).detach(), random(4, 2).detach()
    for upper in (False, True):
        factor = ddpflow.cholesky(a, upper)
        np.testing.assert_allclose((a @ ddpflow.cholesky_solve(b, factor, upper)).numpy(), b.numpy(), rtol=1e-9)
        np.testing.assert_allclose((a @ ddpflow.cholesky_inverse(factor, upper)).numpy(), np.eye(4), atol=1e-12)


def test_eigh():
    """Eigenvalues ascend, the vectors rebuild the matrix, and sign-free functions of them have right gradients."""
    x = random(4, 4)
    a = definite(x)
    w, v = ddpflow.linalg.eigh(a)
    assert (w[1:] > w[:-1]).all().item()
    np.testing.assert_allclose(
        (v @ ddpflow.diag(w) @ v.mT).detach().numpy(), a.detach().numpy(), rtol=1e-11, atol=1e-11
    )

    def function(t):
        values, vectors = ddpflow.linalg.eigh(definite(t))
        return values, vectors * vectors

    assert gradcheck(function, (x,))
    assert gradgradcheck(function, (x,), fast_mode=True)
    upper = a.triu().detach()
    np.testing.assert_allclose(ddpflow.linalg.eigvalsh(upper, "U").numpy(), w.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 4, 3)])
def test_svd_and_qr_rebuild_the_matrix(shape):
    """Both decompositions multiply back to the matrix, in the reduced and the full form."""
    a = random(*shape).detach()
    u, s, vh = ddpflow.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(((u * s[..., None, :]) @ vh).numpy(), a.numpy(), atol=1e-12)
    full_u, s, full_vh = ddpflow.linalg.svd(a)
    assert full_u.shape[-1] == full_u.shape[-2] == shape[-2] and full_vh.shape[-1] == shape[-1]
    np.testing.assert_allclose(
        (full_u.mT @ full_u).numpy(), np.broadcast_to(np.eye(shape[-2]), full_u.shape), atol=1e-12
    )
    q, r = ddpflow.linalg.qr(a)
    np.testing.assert_allclose((q @ r).numpy(), a.numpy(), atol=1e-12)
    older_u, older_s, v = ddpflow.svd(a)
    np.testing.assert_allclose(((older_u * older_s[..., None, :]) @ v.mT).numpy(), a.numpy(), atol=1e-12)


def test_determinants():
    """Det has the cofactors as gradient for singular matrices too; slogdet and logdet are its logarithm."""
    a = tensor([[1.0, 2.0], [2.0, 4.0]], dtype="float64", requires_grad=True)
    ddpflow.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)
    b = random(3, 3)
    sign, logarithm = ddpflow.slogdet(b)
    assert (sign * logarithm.exp()).item() == pytest.approx(ddpflow.det(b).item())
    positive = definite(b)
    assert ddpflow.logdet(positive).item() == pytest.approx(np.log(np.linalg.det(positive.detach().numpy())))
    assert np.isnan(ddpflow.logdet(tensor([[-1.0]], dtype="float64")).item())


def test_solve():
    """Vectors, matrices, stacks, and from the right."""
    a, v, b = random(3, 3), random(3), random(3, 2)
    np.testing.assert_allclose((a @ ddpflow.linalg.solve(a, v)).detach().numpy(), v.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose((a @ ddpflow.linalg.solve(a, b)).detach().numpy(), b.detach().numpy(), rtol=1e-9)
    right = ddpflow.linalg.solve(a, b.mT, left=False)
    np.testing.assert_allclose((right @ a).detach().numpy(), b.mT.detach().numpy(), rtol=1e-9)
    assert gradcheck(ddpflow.linalg.solve, (a, v))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
def test_solve_triangular(upper, unitriangular):
    """Only one triangle is read, and the diagonal counts as ones where asked."""
    a, b = random(3, 3), random(3, 2)
    half = np.triu(a.detach().numpy()) if upper else np.tril(a.detach().numpy())
    if unitriangular:
        np.fill_diagonal(half, 1.0)
    x = matrices.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)
    np.testing.assert_allclose(half @ x.detach().numpy(), b.detach().numpy(), rtol=1e-9)
    older, triangle = ddpflow.triangular_solve(b, a, upper, False, unitriangular)
    np.testing.assert_allclose(older.detach().numpy(), x.detach().numpy())
    assert triangle.tolist() == a.tolist()


def test_pinverse_and_matrix_exp():
    """The pseudo-inverse of any matrix; the exponential of a rotation, with gradients."""
    a = random(4, 3)
    np.testing.assert_allclose(ddpflow.pinverse(a).detach().numpy(), np.linalg.pinv(a.detach().numpy()), atol=1e-12)
    assert gradcheck(ddpflow.pinverse, (a,))
    angle = 2.0
    turn = tensor([[0.0, -angle], [angle, 0.0]], dtype="float64", requires_grad=True)
    expected = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    np.testing.assert_allclose(ddpflow.matrix_exp(turn).detach().numpy(), expected, atol=1e-13)
    assert gradcheck(ddpflow.matrix_exp, (turn,))


def test_bad_matrices():
    """Not square, singular, not positive definite, no LAPACK for halves: errors with the operation's name."""
    with pytest.raises(ShapeError, match=r"inverse.*\(2, 3\)"):
        ddpflow.inverse(ones(2, 3))
    with pytest.raises(ShapeError, match="inverse.*[Ss]ingular"):
        ddpflow.inverse(ones(2, 2))
    with pytest.raises(ShapeError, match="cholesky.*positive definite"):
        ddpflow.cholesky(-eye(2))
    with pytest.raises(ShapeError, match="svd"):
        ddpflow.svd(ones(3))
    with pytest.raises(TypeError, match="det.*float16"):
        ddpflow.det(ones(2, 2, dtype="float16"))


def test_pinverse_of_singular_matrices(rng):
    """Where the rank is kept, the gradient is that of finite differences although singular values are zero."""
    left, right = (ddpflow.tensor(rng.standard_normal((4, 2)), requires_grad=True) for _ in range(2))
    assert gradcheck(lambda a, b: ddpflow.pinverse(a @ b.T, 1e-9), (left, right))
    assert gradgradcheck(lambda a, b: ddpflow.pinverse(a @ b.T, 1e-9), (left, right))
