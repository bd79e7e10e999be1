"""Inverses, determinants and decompositions of matrices, and of stacks of them."""

from ddpflow.autograd.op import Definite, Floats, apply, op
from ddpflow.autograd.ops.dims import need_real
from ddpflow.autograd.ops.joining import cat
from ddpflow.device import unwrap
from ddpflow.errors import ShapeError

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "det",
    "eigh",
    "eigvalsh",
    "inverse",
    "logdet",
    "matrix_exp",
    "pinverse",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svd_parts",
    "svdvals",
    "triangular_solve",
]

_SQUARE = [(Floats((3, 3), -2.0, 2.0),), (Floats((2, 4, 4), -2.0, 2.0),), (Floats((1, 1), 1.0, 2.0),)]
_DEFINITE = [(Definite((3, 3)),), (Definite((2, 4, 4)),)]


def _square(name, a):
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"{name}() takes square matrices, not shape {tuple(a.shape)}")


def _attempt(name, function, *args, **kwargs):
    """Call NumPy's function; what it cannot factor becomes an error of ours."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        if "LinAlgError" in type(error).__name__:
            raise ShapeError(f"{name}(): {error}") from None
        raise


def _turned(a):
    return a.swapaxes(-1, -2)


@op(samples=_SQUARE)
def inverse(xp, a):
    """The inverses of square matrices.

    Raises:
        ShapeError: When a matrix is not square, or singular.
    """
    _square("inverse", a)
    y = _attempt("inverse", xp.linalg.inv, a)
    return y, lambda g: -(_turned(y) @ g @ _turned(y))


@op(
    samples=[
        (Floats((3, 3), -2.0, 2.0), (3, 2)),
        (Floats((2, 3, 3), -2.0, 2.0), (2, 3, 4)),
        (Floats((3, 3), -2.0, 2.0), (3, 1)),
    ]
)
def solve_matrix(xp, a, b):
    """The X with ``a @ X = b``, for b a matrix or a stack of them."""
    _square("solve", a)
    y = _attempt("solve", xp.linalg.solve, a, b)
    return y, (
        lambda g: -(apply(xp, solve_matrix, _turned(a), g) @ _turned(y)),
        lambda g: apply(xp, solve_matrix, _turned(a), g),
    )


def solve(a, b, *, left=True):
    """The X with ``a @ X = b`` (``X @ a = b`` with ``left=False``); b may be a vector, or a stack of them.

    Raises:
        ShapeError: When a matrix is not square or singular, or the shapes do not fit.
    """
    vector = b.array.ndim == 1 or (b.array.ndim == a.array.ndim - 1 and b.array.shape == a.array.shape[:-1])
    if vector:
        return solve_matrix(a, b[..., None])[..., 0]
    return solve_matrix(a, b) if left else _turned(solve_matrix(_turned(a), _turned(b)))


@op(samples=_SQUARE)
def det(xp, a):
    """The determinants of square matrices; the gradient is right for singular ones too."""
    _square("det", a)
    y = _attempt("det", xp.linalg.det, a)
    singular = not xp.all(y)

    def vjp(g):
        if singular:
            return g[..., None, None] * _cofactors(xp, a)
        return (g * y)[..., None, None] * _turned(apply(xp, inverse, a))

    return xp.asarray(y), vjp


def _cofactors(xp, a):
    """From the singular values, where the inverse does not exist."""
    u, s, vh = xp.linalg.svd(a, full_matrices=False)
    n = s.shape[-1]
    spread = xp.where(xp.eye(n) == 1, 1.0, s[..., None, :])
    others = spread.prod(-1)
    sign = xp.linalg.det(u) * xp.linalg.det(vh)
    return sign[..., None, None] * ((u * others[..., None, :]) @ vh)


@op(samples=_SQUARE, several=True)
def slogdet(xp, a):
    """The signs of the determinants and the logarithms of their magnitudes."""
    need_real("slogdet", a)
    _square("slogdet", a)
    sign, logarithm = _attempt("slogdet", xp.linalg.slogdet, a)

    def vjp(g_sign, g):
        return None if g is None else g[..., None, None] * _turned(apply(xp, inverse, a))

    return (sign, logarithm), (vjp,)


def logdet(input):
    """The logarithms of the determinants; NaN for negative ones."""
    sign, logarithm = slogdet(input)
    return logarithm + (sign.detach().log() * (sign != 0))


@op(samples=_DEFINITE, name="cholesky")
def cholesky_lower(xp, a):
    """The lower triangular L with ``L @ L.T = a``, for symmetric positive definite matrices."""
    need_real("cholesky", a)
    _square("cholesky", a)
    y = _attempt("cholesky", xp.linalg.cholesky, a)

    def vjp(g):
        inner = xp.tril(_turned(y) @ g)
        inner = inner - 0.5 * (inner * xp.eye(inner.shape[-1]))
        inverse_y = apply(xp, inverse, y)
        result = _turned(inverse_y) @ inner @ inverse_y
        return 0.5 * (result + _turned(result))

    return y, vjp


def cholesky(input, upper=False):
    """The triangular factor of symmetric positive definite matrices: ``L @ L.T``, or ``U.T @ U`` with ``upper=True``.

    Raises:
        ShapeError: When a matrix is not square, or not positive definite.
    """
    lower = cholesky_lower(input)
    return _turned(lower) if upper else lower


def cholesky_solve(input, L, upper=False):
    """The X with ``A @ X = input``, from A's Cholesky factor."""
    lower = _turned(L) if upper else L
    return solve_triangular(_turned(lower), solve_triangular(lower, input, upper=False), upper=True)


def cholesky_inverse(L, upper=False):
    """The inverse of a matrix, from its Cholesky factor."""
    inverted = inverse(L.triu() if upper else L.tril())
    return inverted @ _turned(inverted) if upper else _turned(inverted) @ inverted


def solve_triangular(a, b, *, upper, left=True, unitriangular=False):
    """The X with ``a @ X = b`` (``X @ a = b`` with ``left=False``); only one triangle of a is read."""
    half = a.triu() if upper else a.tril()
    if unitriangular:
        half = (a.triu(1) if upper else a.tril(-1)) + a.new_ones(a.array.shape[-1]).diag()
    return solve_matrix(half, b) if left else _turned(solve_matrix(_turned(half), _turned(b)))


def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """PyTorch's older form of `solve_triangular`: the pair of the solution and the triangle."""
    matrix = _turned(A) if transpose else A
    return solve_triangular(matrix, b, upper=upper != transpose, unitriangular=unitriangular), A.clone()


@op(samples=[*_DEFINITE, (Definite((3, 3)), "U")])
def eigh(xp, A, UPLO="L"):
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices, of which the named triangle is read.

    The eigenvectors' gradient is finite only where the eigenvalues are distinct.
    """
    need_real("eigh", A)
    _square("eigh", A)
    w, v = _attempt("eigh", xp.linalg.eigh, A, UPLO)

    def vjp(g_w, g_v):
        inner = 0.0
        if g_v is not None:
            gaps = w[..., None, :] - w[..., :, None] + xp.eye(w.shape[-1])
            inner = (_turned(v) @ g_v) / gaps * (1 - xp.eye(w.shape[-1]))
        if g_w is not None:
            inner = inner + g_w[..., None, :] * xp.eye(w.shape[-1])
        return v @ inner @ _turned(v)

    return (w, v), (vjp,)


def eigvalsh(A, UPLO="L"):
    """The eigenvalues of symmetric matrices, ascending."""
    return eigh(A, UPLO)[0]


@op(samples=[(Floats((4, 3), -2.0, 2.0),), (Floats((3, 4), -2.0, 2.0),), (Floats((2, 3, 3), -2.0, 2.0),)], several=True)
def reduced_svd(xp, a):
    """``U, S, Vh`` with ``a = U @ diag(S) @ Vh`` and as many singular values as the smaller size."""
    need_real("svd", a)
    if a.ndim < 2:
        raise ShapeError(f"svd() takes matrices, not shape {tuple(a.shape)}")
    u, s, vh = _attempt("svd", xp.linalg.svd, a, full_matrices=False)

    def vjp(g_u, g_s, g_vh):
        unit = xp.eye(s.shape[-1])
        square = s * s
        gaps = square[..., None, :] - square[..., :, None] + unit
        inner = 0.0 if g_s is None else g_s[..., None, :] * unit
        if g_u is not None:
            part = _turned(u) @ g_u
            inner = inner + (part - _turned(part)) / gaps * (1 - unit) * s[..., None, :]
        if g_vh is not None:
            part = vh @ _turned(g_vh)
            inner = inner + s[..., :, None] * ((part - _turned(part)) / gaps * (1 - unit))
        out = u @ inner @ vh
        if g_u is not None and u.shape[-2] > s.shape[-1]:
            scaled = g_u / s[..., None, :]
            out = out + (scaled - u @ (_turned(u) @ scaled)) @ vh
        if g_vh is not None and vh.shape[-1] > s.shape[-1]:
            scaled = g_vh / s[..., :, None]
            out = out + u @ (scaled - (scaled @ _turned(vh)) @ vh)
        return out

    return (u, s, vh), (vjp,)


@op(samples=[(Floats((4, 3), -2.0, 2.0),)], differentiable=False, several=True)
def full_svd(xp, input):
    """As `reduced_svd` with square U and Vh, without a gradient."""
    return tuple(xp.linalg.svd(input, full_matrices=True))


def svd_parts(input, full_matrices):
    """U, S and Vh; the columns of a square U and rows of a square Vh beyond the singular values carry no gradient."""
    u, s, vh = reduced_svd(input)
    rows, columns = input.array.shape[-2:]
    if full_matrices and rows != columns:
        all_u, _, all_vh = full_svd(input.detach())
        count = s.array.shape[-1]
        if rows > columns:
            u = cat([u, all_u[..., :, count:]], -1)
        else:
            vh = cat([vh, all_vh[..., count:, :]], -2)
    return u, s, vh


def svd(input, some=True, compute_uv=True):
    """Singular values: U, S and V with ``input = U @ diag(S) @ V.T`` (PyTorch's older form; see ``linalg.svd``)."""
    u, s, vh = svd_parts(input, not some)
    if not compute_uv:
        rows, columns = input.array.shape[-2:]
        batch = input.array.shape[:-2]
        return u.new_zeros((*batch, rows, rows)), s, u.new_zeros((*batch, columns, columns))
    return u, s, _turned(vh)


def svdvals(A):
    """The singular values, descending."""
    return reduced_svd(A)[1]


@op(
    samples=[(Floats((4, 3), -2.0, 2.0),), (Floats((3, 4), -2.0, 2.0),), (Floats((2, 3, 3), -2.0, 2.0),)],
    several=True,
)
def reduced_qr(xp, a):
    """``Q, R`` with orthonormal columns in Q and an upper triangular R."""
    need_real("qr", a)
    q, r = _attempt("qr", xp.linalg.qr, a)
    rows, columns = a.shape[-2:]

    def tall(g_q, g_r):
        square = r[..., :, :rows]
        inner = 0.0 if g_r is None else square @ _turned(g_r)
        if g_q is not None:
            inner = inner - _turned(g_q) @ q
        # The symmetric matrix made of the lower triangle.
        inner = xp.tril(inner) + _turned(xp.tril(inner, -1))
        total = q @ inner if g_q is None else g_q + q @ inner
        return _turned(apply(xp, solve_matrix, square, _turned(total)))

    def vjp(g_q, g_r):
        if rows >= columns or g_r is None:
            g = tall(g_q, g_r)
            return g if rows >= columns else xp.concatenate([g, xp.zeros_like(a[..., :, rows:])], -1)
        # Wide: the first columns decide Q, the others only follow it.
        rest = g_r[..., :, rows:]
        through = a[..., :, rows:] @ _turned(rest)
        first = tall(through if g_q is None else g_q + through, g_r[..., :, :rows])
        return xp.concatenate([first, q @ rest], -1)

    return (q, r), (vjp,)


def qr(input, some=True):
    """``Q, R`` with orthonormal columns in Q and an upper triangular R.

    Raises:
        ShapeError: With ``some=False`` for matrices that are not square: only the reduced form is here.
    """
    if not some and input.array.shape[-1] < input.array.shape[-2]:
        raise ShapeError("qr(some=False) of a tall matrix is not supported; the reduced form is")
    return reduced_qr(input)


@op(samples=[(Floats((4, 3), -2.0, 2.0), 1e-9), (Floats((2, 3, 4), -2.0, 2.0), 1e-9)], tensors=1)
def pseudo_inverse(xp, a, cut):
    """The pseudo-inverse; singular values below ``cut`` times the greatest count as 0.

    The gradient is that among matrices of the same rank (Golub and Pereyra 1973, theorem 4.3), singular ones too.
    """
    need_real("pinv", a)
    p = _attempt("pinv", xp.linalg.pinv, a, cut)

    def vjp(g):
        back, left, right = _turned(g), _turned(p) @ p, p @ _turned(p)
        rows = back @ right  # the part that moves the column space, and below that of the row space
        columns = left @ back
        return rows - a @ (p @ rows) + columns - (columns @ p) @ a - _turned(p) @ g @ _turned(p)

    return p, (vjp,)


def pinverse(input, rcond=None, *, rtol=None):
    """The pseudo-inverse; singular values below ``rcond`` times the greatest count as 0."""
    cut = rcond if rcond is not None else rtol
    if cut is None:
        cut = max(input.array.shape[-2:]) * {4: 1.1920929e-07, 8: 2.220446049250313e-16}[input.array.dtype.itemsize]
    if input.array.size == 0:
        return _turned(input)
    return pseudo_inverse(input, unwrap(cut))


def matrix_exp(A):
    """The exponential of square matrices: the Taylor series of a scaled matrix, squared back."""
    _square("matrix_exp", A.array)
    size = float(abs(A.array).sum(-2).max()) if A.array.size else 0.0
    squarings = 0
    while size > 0.5:
        size /= 2
        squarings += 1
    scaled = A * (0.5**squarings)
    unit = A.new_ones(A.array.shape[-1]).diag()
    total = unit + scaled
    power = scaled
    for k in range(2, 19):
        power = power @ scaled / k
        total = total + power
    for _ in range(squarings):
        total = total @ total
    return total
