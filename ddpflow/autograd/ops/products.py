"""Products of vectors and matrices."""

import math

from ddpflow.autograd.autocast import in_half
from ddpflow.autograd.op import apply, op
from ddpflow.autograd.ops.dims import is_half
from ddpflow.errors import ShapeError

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "cross",
    "dot",
    "ger",
    "inner",
    "kron",
    "matmul",
    "matrix_power",
    "mm",
    "multi_dot",
    "mv",
    "outer",
    "tensordot",
    "trace",
    "vdot",
]

_MATMULS = [
    ((3, 4), (4, 2)),
    ((5, 3, 4), (4, 2)),
    ((5, 3, 4), (5, 4, 2)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 4), (5, 4, 2)),
    ((4,), (4,)),
    ((4,), (4, 2)),
    ((4,), (5, 4, 2)),
    ((3, 4), (4,)),
    ((5, 3, 4), (4,)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
]


def _product(xp, a, b):
    """``a @ b``; halves are multiplied in float32, and a stack times one matrix is one large product."""
    if is_half(a.dtype):
        return (a.astype(xp.float32) @ b.astype(xp.float32)).astype(a.dtype)
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        rows = math.prod(a.shape[:-1])
        return (a.reshape(rows, a.shape[-1]) @ b).reshape((*a.shape[:-1], b.shape[-1]))
    return a @ b


@op(samples=_MATMULS, promote="same")
def matmul(xp, a, b):
    """Matrix product over the last two axes; leading axes broadcast, and a vector is a row or a column as fits.

    Raises:
        ShapeError: When the sizes do not fit.
        MixedDtypeError: When the dtypes differ.
    """
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul() takes tensors of at least one dimension, not shapes {a.shape} and {b.shape}")
    if a.ndim == 1 or b.ndim == 1:
        return _product_of_vectors(xp, a, b)
    if a.ndim > 2 and b.ndim == 2:
        rows = math.prod(a.shape[:-1])

        def to_matrix(g):
            return a.reshape(rows, a.shape[-1]).swapaxes(0, 1) @ g.reshape(rows, g.shape[-1])

        return _product(xp, a, b), (lambda g: g @ b.swapaxes(0, 1), to_matrix)
    return _product(xp, a, b), (lambda g: g @ b.swapaxes(-1, -2), lambda g: a.swapaxes(-1, -2) @ g)


def _product_of_vectors(xp, a, b):
    y = _product(xp, a, b)
    if a.ndim == b.ndim == 1:
        return y, (lambda g: g * b, lambda g: g * a)
    if a.ndim == 1:
        return y, (lambda g: (g[..., None, :] @ b.swapaxes(-1, -2))[..., 0, :], lambda g: a[:, None] * g[..., None, :])
    return y, (lambda g: g[..., None] * b, lambda g: (a.swapaxes(-1, -2) @ g[..., None])[..., 0])


def _need(name, tensor, ndim):
    if tensor.array.ndim != ndim:
        raise ShapeError(f"{name}() takes tensors of {ndim} dimension(s), not of shape {tuple(tensor.array.shape)}")


def mm(input, mat2):
    """Product of two matrices."""
    _need("mm", input, 2)
    _need("mm", mat2, 2)
    return matmul(input, mat2)


def bmm(input, mat2):
    """Products of two stacks of matrices, pair by pair.

    Raises:
        ShapeError: When the stacks have different lengths.
    """
    _need("bmm", input, 3)
    _need("bmm", mat2, 3)
    if input.array.shape[0] != mat2.array.shape[0]:
        raise ShapeError(f"bmm() of stacks of {input.array.shape[0]} and {mat2.array.shape[0]} matrices")
    return matmul(input, mat2)


def mv(input, vec):
    """Product of a matrix and a vector."""
    _need("mv", input, 2)
    _need("mv", vec, 1)
    return matmul(input, vec)


def dot(input, tensor):
    """Sum of the products of two vectors' elements."""
    _need("dot", input, 1)
    _need("dot", tensor, 1)
    return matmul(input, tensor)


def vdot(input, other):
    """Sum of the products of two vectors' elements, the first conjugated."""
    return dot(input.conj() if input.array.dtype.kind == "c" else input, other)


def outer(input, vec2):
    """Products of each element of one vector with each of another."""
    _need("outer", input, 1)
    _need("outer", vec2, 1)
    return input[:, None] * vec2


def inner(input, other):
    """Sums of products over the last dimension of both; a number multiplies."""
    if input.array.ndim == 0 or other.array.ndim == 0:
        return input * other
    return tensordot(input, other, ([-1], [-1]))


def _sum_of_products(input, product, beta, alpha):
    if input.array.dtype.kind in "iu":  # the factors are cut to whole numbers, as in PyTorch
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


@in_half
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """``beta * input + alpha * (mat1 @ mat2)``; with ``beta=0`` what is in input does not matter."""
    return _sum_of_products(input, mm(mat1, mat2), beta, alpha)


@in_half
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """``beta * input + alpha * (batch1 @ batch2)`` of stacks of matrices."""
    return _sum_of_products(input, bmm(batch1, batch2), beta, alpha)


@in_half
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """``beta * input + alpha * (batch1 @ batch2).sum(0)`` of stacks of matrices."""
    return _sum_of_products(input, bmm(batch1, batch2).sum(0, dtype=batch1.dtype), beta, alpha)


@in_half
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """``beta * input + alpha * (mat @ vec)``."""
    return _sum_of_products(input, mv(mat, vec), beta, alpha)


def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """``beta * input + alpha * outer(vec1, vec2)``."""
    return _sum_of_products(input, outer(vec1, vec2), beta, alpha)


def multi_dot(tensors):
    """Product of several matrices (the first and the last may be vectors), in the order that needs the fewest steps."""
    tensors = list(tensors)
    if len(tensors) < 2:
        raise ShapeError("multi_dot() takes at least two tensors")
    sizes = [1 if tensors[0].array.ndim == 1 else tensors[0].array.shape[0]]
    sizes += [t.array.shape[0] for t in tensors[1:]]
    sizes.append(1 if tensors[-1].array.ndim == 1 else tensors[-1].array.shape[1])
    best = {}

    def cost(i, j):
        if i == j:
            return 0
        if (i, j) not in best:
            best[i, j] = min(
                (cost(i, k) + cost(k + 1, j) + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )
        return best[i, j][0]

    def build(i, j):
        if i == j:
            return tensors[i]
        cost(i, j)
        k = best[i, j][1]
        return matmul(build(i, k), build(k + 1, j))

    return build(0, len(tensors) - 1)


def chain_matmul(*matrices):
    """Product of several matrices; see `multi_dot`."""
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)


def matrix_power(input, n):
    """A square matrix, or a stack of them, multiplied n times with itself; its inverse for negative n."""
    if input.array.ndim < 2 or input.array.shape[-1] != input.array.shape[-2]:
        raise ShapeError(f"matrix_power() takes square matrices, not shape {tuple(input.array.shape)}")
    if n < 0:
        input, n = input.inverse(), -n
    result, power = None, input
    while n:
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if n:
            power = matmul(power, power)
    return identity_like(input) if result is None else result


@op(samples=[((2, 3, 3),)])
def identity_like(xp, input):
    """Unit matrices of the input's shape."""
    return xp.broadcast_to(xp.eye(input.shape[-1], dtype=input.dtype), input.shape).copy(), lambda g: xp.zeros_like(g)


def tensordot(a, b, dims=2):
    """Sum of products over pairs of dimensions.

    Args:
        a: A tensor.
        b: A tensor.
        dims: How many of the last dimensions of a and first of b; or two lists of dimensions.
    """
    if isinstance(dims, int):
        dims = list(range(a.array.ndim - dims, a.array.ndim)), list(range(dims))
    elif hasattr(dims, "array"):
        dims = dims.tolist()
        dims = (dims, dims) if isinstance(dims[0], int) else dims
    first, second = [[d % t.array.ndim for d in ds] for t, ds in zip((a, b), dims, strict=True)]
    for i, j in zip(first, second, strict=True):  # a size of 1 is repeated to fit
        if a.array.shape[i] == 1 != b.array.shape[j]:
            b = b.sum(j, keepdim=True, dtype=b.dtype)
        elif b.array.shape[j] == 1 != a.array.shape[i]:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
    keep_a = [i for i in range(a.array.ndim) if i not in first]
    keep_b = [i for i in range(b.array.ndim) if i not in second]
    shape_a, shape_b = a.array.shape, b.array.shape
    inner_size = 1
    for i, j in zip(first, second, strict=True):
        if shape_a[i] != shape_b[j]:
            raise ShapeError(f"tensordot() of shapes {shape_a} and {shape_b}: dims {i} and {j} have different sizes")
        inner_size *= shape_a[i]
    rows = math.prod([shape_a[i] for i in keep_a])
    columns = math.prod([shape_b[i] for i in keep_b])
    left = a.permute(*keep_a, *first).reshape(rows, inner_size) if a.array.ndim else a.reshape(1, 1)
    right = b.permute(*second, *keep_b).reshape(inner_size, columns) if b.array.ndim else b.reshape(1, 1)
    return matmul(left, right).reshape([shape_a[i] for i in keep_a] + [shape_b[i] for i in keep_b])


def kron(input, other):
    """Kronecker's product: each element of the first times the whole second."""
    ndim = max(input.array.ndim, other.array.ndim)
    shape_a = (1,) * (ndim - input.array.ndim) + input.array.shape
    shape_b = (1,) * (ndim - other.array.ndim) + other.array.shape
    a = input.reshape([n for size in shape_a for n in (size, 1)])
    b = other.reshape([n for size in shape_b for n in (1, size)])
    return (a * b).reshape([m * n for m, n in zip(shape_a, shape_b, strict=True)])


@op(
    samples=[((2, 3), (2, 3), 1), ((3, 2), (3, 2), 0), ((4, 1, 3), (2, 3), -1)],
    promote="common",
    tensors=2,
    name="cross",
)
def cross_along(xp, a, b, dim):
    """The cross product of vectors of three elements along a dimension."""
    return xp.cross(a, b, axis=dim), (
        lambda g: apply(xp, cross_along, b, g, dim),
        lambda g: apply(xp, cross_along, g, a, dim),
    )


def cross(input, other, dim=None):
    """The cross product of vectors of three elements, along ``dim`` (by default the first dimension of that size)."""
    if dim is None:
        found = [i for i, n in enumerate(input.array.shape) if n == 3]
        if not found:
            raise ShapeError(f"cross() needs a dimension of size 3; the shape is {tuple(input.array.shape)}")
        dim = found[0] - input.array.ndim
    if input.array.ndim != other.array.ndim:
        raise ShapeError(
            f"cross() takes tensors of as many dimensions, not shapes {input.array.shape} and {other.array.shape}"
        )
    if input.array.shape[dim] != 3 or other.array.shape[dim] != 3:
        raise ShapeError(
            f"cross() takes vectors of 3 elements; the shapes are {input.array.shape} and {other.array.shape}"
        )
    return cross_along(input, other, dim if dim < 0 else dim - input.array.ndim)


@op(samples=[((3, 4),), ((3, 3),)])
def trace(xp, input):
    """The sum of a matrix's diagonal.

    Raises:
        ShapeError: When it is no matrix.
    """
    if input.ndim != 2:
        raise ShapeError(f"trace() takes a matrix, not shape {input.shape}")
    rows, columns = input.shape
    out = input.trace(dtype=xp.int64) if input.dtype.kind in "biu" else xp.trace(input)
    return out, lambda g: g * (xp.arange(rows).reshape(rows, 1) == xp.arange(columns))


ger = outer
