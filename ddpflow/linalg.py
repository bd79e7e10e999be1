"""Linear algebra under PyTorch's names (``torch.linalg``), built on the matrix operations of `ddpflow.autograd.ops`."""

import math
from typing import Any, NamedTuple

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops import matrices, products
from ddpflow.autograd.ops.diagonals import diagonal as _diagonal
from ddpflow.autograd.ops.joining import stack
from ddpflow.autograd.ops.matrices import (
    det,
    eigh,
    eigvalsh,
    matrix_exp,
    slogdet,
    solve,
    solve_triangular,
    svdvals,
)
from ddpflow.autograd.ops.products import matrix_power, multi_dot
from ddpflow.autograd.ops.statistics import vector_norm
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

inv = matrices.inverse
matmul = products.matmul


class SVD(NamedTuple):
    """The result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class QR(NamedTuple):
    """The result of `qr`."""

    Q: Tensor
    R: Tensor


def svd(A: Tensor, full_matrices: bool = True) -> SVD:
    """Singular values: ``A = U @ diag(S) @ Vh``.

    Args:
        A: Matrices.
        full_matrices: Square U and Vh; the columns and rows beyond the singular values carry no gradient.
    """
    return SVD(*matrices.svd_parts(A, full_matrices))


def qr(A: Tensor, mode: str = "reduced") -> QR:
    """Orthonormal columns Q and an upper triangular R with ``A = Q @ R``.

    Args:
        A: Matrices.
        mode: ``"reduced"``; ``"r"`` leaves Q empty; ``"complete"`` makes Q square (no gradient for tall matrices).

    Raises:
        ValueRangeError: When the mode is none of these.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueRangeError(f"qr mode must be 'reduced', 'complete' or 'r', not {mode!r}")
    if mode == "complete" and A.array.shape[-2] > A.array.shape[-1]:
        q_array, r_array = array_module(A.array).linalg.qr(A.array, mode="complete")
        return QR(wrap(q_array), wrap(r_array))
    q, r = matrices.reduced_qr(A)
    return QR(q.new_zeros((0,)) if mode == "r" else q, r)


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular factor of symmetric positive definite matrices; see `ddpflow.cholesky`."""
    return matrices.cholesky(A, upper)  # type: ignore[no-any-return]


def _info(A: Tensor) -> Tensor:
    return wrap(array_module(A.array).zeros(A.array.shape[:-2], np.int32))


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`cholesky` and zeros (LAPACK's report); a matrix that is not positive definite raises here too."""
    return cholesky(A, upper=upper), _info(A)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`inv` and zeros (LAPACK's report); a singular matrix raises here too."""
    return inv(A), _info(A)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`solve` and zeros (LAPACK's report); a singular matrix raises here too."""
    return solve(A, B, left=left), _info(A)


def _to_end(A: Tensor, dim: Any) -> Tensor:
    if len(dim) != 2:
        raise ShapeError(f"a matrix norm is over two dimensions, not {tuple(dim)}")
    return A if tuple(dim) == (-2, -1) else A.movedim(tuple(dim), (-2, -1))


def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of matrices.

    Args:
        A: Matrices in two dimensions.
        ord: ``"fro"``, ``"nuc"`` (sum of singular values), 2 and -2 (greatest and least singular value), 1 and -1
            (greatest and least column sum of magnitudes), inf and -inf (row sums).
        dim: The two dimensions.
        keepdim: Keep them with length 1.
        dtype: Convert to this dtype first.

    Raises:
        ValueRangeError: When the order is none of these.
    """
    A = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return vector_norm(A, 2, list(dim), keepdim)  # type: ignore[no-any-return]
    moved = _to_end(A, dim)
    if ord in (2, -2, "nuc"):
        values = svdvals(moved)
        result = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = abs(moved).sum(-2 if ord in (1, -1) else -1)
        result = sums.amax(-1) if ord > 0 else sums.amin(-1)
    else:
        raise ValueRangeError(f"matrix_norm order must be 'fro', 'nuc', 2, -2, 1, -1, inf or -inf, not {ord!r}")
    if keepdim:
        shape = list(A.array.shape)
        for d in dim:
            shape[d] = 1
        result = result.reshape(shape)
    return result  # type: ignore[no-any-return]


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A vector norm, or a matrix norm where an order is given for two dimensions.

    Args:
        A: A tensor.
        ord: None for the 2-norm of all elements; else see `vector_norm` and `matrix_norm`.
        dim: A dimension, or two for a matrix norm with an order.
        keepdim: Keep the dimensions with length 1.
        dtype: Convert to this dtype first.

    Raises:
        ShapeError: When an order is given for a tensor of more than two dimensions without ``dim``.
    """
    if dim is None and ord is not None:
        if A.array.ndim not in (1, 2):
            raise ShapeError(f"norm() with an order needs dim= for a tensor of shape {tuple(A.array.shape)}")
        if A.array.ndim == 2:
            return matrix_norm(A, ord, (-2, -1), keepdim, dtype=dtype)
    if ord is not None and isinstance(dim, (tuple, list)) and len(dim) == 2:
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    if isinstance(ord, str):
        return matrix_norm(A, ord, (dim,) if isinstance(dim, int) else dim, keepdim, dtype=dtype)
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the norm of a matrix times that of its inverse (2-norm by default)."""
    if p in (None, 2, -2):
        values = svdvals(A)
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last  # type: ignore[no-any-return]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)  # type: ignore[no-any-return]


def pinv(A: Tensor, *, rtol: float | None = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse; singular values below ``rtol`` times the greatest count as 0."""
    return matrices.pinverse(A, rtol)  # type: ignore[no-any-return]


def matrix_rank(A: Tensor, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """How many singular values are above the tolerance ``max(atol, rtol * greatest)``."""
    if A.array.size == 0:
        return wrap(array_module(A.array).zeros(A.array.shape[:-2], np.int64))
    values = svdvals(A.detach())
    greatest = values.amax(-1, keepdim=True)
    if tol is not None:
        limit = tol
    else:
        if rtol is None:
            rtol = max(A.array.shape[-2:]) * np.finfo(A.array.dtype).eps if atol is None else 0.0
        limit = greatest * _column(rtol)
        if atol is not None:
            limit = limit.maximum(_column(atol) + 0 * limit)
    return (values > _column(limit) if tol is not None else values > limit).sum(-1)  # type: ignore[no-any-return]


def _column(value: Any) -> Any:
    return value[..., None] if isinstance(value, Tensor) and value.array.ndim else value


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along a dimension."""
    return products.cross(input, other, dim)  # type: ignore[no-any-return]


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, by default in the last two dimensions."""
    return _diagonal(A, offset, dim1, dim2)  # type: ignore[no-any-return]


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products along a dimension, the first conjugated."""
    return ((x.conj() if x.is_complex() else x) * y).sum(dim)  # type: ignore[no-any-return]


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of the elements, in a new last dimension."""
    x = x.reshape(1) if x.array.ndim == 0 else x
    if x.array.dtype.kind in "biu":
        x = x.to("int64")
    count = x.array.shape[-1] if N is None else N
    powers = [x.new_ones(x.array.shape)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return stack(powers[:count], -1)  # type: ignore[no-any-return]


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse with respect to `tensordot` over the first ``ind`` dimensions."""
    shape = A.array.shape
    size = math.prod(shape[ind:])
    return inv(A.reshape(math.prod(shape[:ind]), size)).reshape(*shape[ind:], *shape[:ind])  # type: ignore[no-any-return]


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """The X with ``tensordot(A, X, X.ndim) = B``."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.array.ndim - len(dims), A.array.ndim)))
    shape = A.array.shape[B.array.ndim :]
    return solve(A.reshape(B.numel(), math.prod(shape)), B.reshape(-1)).reshape(*shape)  # type: ignore[no-any-return]
