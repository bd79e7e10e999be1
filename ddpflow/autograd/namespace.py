"""NumPy's function names over tensors: what ``xp`` is when a rule runs on tensors, for gradients of gradients.

Only what rules use is here, with NumPy's argument names (``axis``, ``keepdims``).
"""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.ops import (
    arithmetic,
    arrange,
    casting,
    compare,
    complexes,
    diagonals,
    elementwise,
    joining,
    matrices,
    pairwise,
    products,
    reduce,
    rounding,
    scan,
    shape,
)
from ddpflow.device import array_module
from ddpflow.dtype import as_numpy

__all__ = ["namespace"]


class _Linalg:
    """What rules take from ``xp.linalg``."""

    inv = staticmethod(matrices.inverse)
    solve = staticmethod(matrices.solve_matrix)
    det = staticmethod(matrices.det)
    slogdet = staticmethod(matrices.slogdet)
    cholesky = staticmethod(matrices.cholesky_lower)
    eigh = staticmethod(matrices.eigh)
    qr = staticmethod(matrices.reduced_qr)
    pinv = staticmethod(matrices.pseudo_inverse)

    @staticmethod
    def svd(a: Any, full_matrices: bool = False) -> Any:
        return matrices.reduced_svd(a)


class _Namespace:
    """The functions, as static methods."""

    add = staticmethod(arithmetic.add)
    subtract = staticmethod(arithmetic.sub)
    multiply = staticmethod(arithmetic.mul)
    divide = staticmethod(arithmetic.div)
    negative = staticmethod(arithmetic.neg)
    power = staticmethod(arithmetic.pow)
    remainder = staticmethod(arithmetic.remainder)
    fmod = staticmethod(arithmetic.fmod)
    floor_divide = staticmethod(arithmetic.floor_divide)
    abs = staticmethod(arithmetic.abs)
    absolute = staticmethod(arithmetic.absolute)
    sign = staticmethod(elementwise.sgn)
    square = staticmethod(arithmetic.square)
    reciprocal = staticmethod(arithmetic.reciprocal)
    clip = staticmethod(arithmetic.clamp)

    # functions of one element or two
    exp = staticmethod(elementwise.exp)
    exp2 = staticmethod(elementwise.exp2)
    expm1 = staticmethod(elementwise.expm1)
    log = staticmethod(elementwise.log)
    log2 = staticmethod(elementwise.log2)
    log10 = staticmethod(elementwise.log10)
    log1p = staticmethod(elementwise.log1p)
    sqrt = staticmethod(elementwise.sqrt)
    sin = staticmethod(elementwise.sin)
    cos = staticmethod(elementwise.cos)
    tan = staticmethod(elementwise.tan)
    arcsin = staticmethod(elementwise.asin)
    arccos = staticmethod(elementwise.acos)
    arctan = staticmethod(elementwise.atan)
    sinh = staticmethod(elementwise.sinh)
    cosh = staticmethod(elementwise.cosh)
    tanh = staticmethod(elementwise.tanh)
    arcsinh = staticmethod(elementwise.asinh)
    arccosh = staticmethod(elementwise.acosh)
    arctanh = staticmethod(elementwise.atanh)
    maximum = staticmethod(pairwise.maximum)
    minimum = staticmethod(pairwise.minimum)
    fmax = staticmethod(pairwise.fmax)
    fmin = staticmethod(pairwise.fmin)
    arctan2 = staticmethod(pairwise.atan2)
    hypot = staticmethod(pairwise.hypot)
    copysign = staticmethod(pairwise.copysign)
    logaddexp = staticmethod(pairwise.logaddexp)
    logaddexp2 = staticmethod(pairwise.logaddexp2)
    frexp = staticmethod(elementwise.significand_exponent)
    floor = staticmethod(rounding.floor)
    ceil = staticmethod(rounding.ceil)
    trunc = staticmethod(rounding.trunc)
    rint = staticmethod(rounding.round)
    where = staticmethod(compare.where)
    isfinite = staticmethod(compare.isfinite)
    isinf = staticmethod(compare.isinf)
    isnan = staticmethod(compare.isnan)
    logical_and = staticmethod(compare.logical_and)
    logical_or = staticmethod(compare.logical_or)
    logical_not = staticmethod(compare.logical_not)
    logical_xor = staticmethod(compare.logical_xor)

    conj = staticmethod(complexes.conj_physical)

    # reductions, running sums, products
    sum = staticmethod(reduce.sum)
    mean = staticmethod(reduce.mean)
    prod = staticmethod(reduce.prod)
    max = staticmethod(reduce.amax)
    min = staticmethod(reduce.amin)
    amax = staticmethod(reduce.amax)
    amin = staticmethod(reduce.amin)
    argmax = staticmethod(reduce.argmax)
    argmin = staticmethod(reduce.argmin)
    any = staticmethod(reduce.any)
    all = staticmethod(reduce.all)
    cumsum = staticmethod(scan.cumsum)
    cumprod = staticmethod(scan.cumprod)
    matmul = staticmethod(products.matmul)
    outer = staticmethod(products.outer)
    dot = staticmethod(products.dot)

    inf, nan, pi = np.inf, np.nan, np.pi
    float16, float32, float64, int64 = np.float16, np.float32, np.float64, np.int64

    @staticmethod
    def asarray(a: Any) -> Any:
        return a if isinstance(a, TensorBase) else wrap(np.asarray(a))

    @staticmethod
    def arange(n: int) -> Any:
        return wrap(np.arange(n))

    # shape, order, places
    reshape = staticmethod(shape.reshape)
    swapaxes = staticmethod(shape.swapaxes)
    expand_dims = staticmethod(shape.unsqueeze)
    squeeze = staticmethod(shape.squeeze)
    broadcast_to = staticmethod(shape.broadcast_to)
    moveaxis = staticmethod(shape.moveaxis)
    diagonal = staticmethod(diagonals.diagonal)
    concatenate = staticmethod(joining.concatenate)
    stack = staticmethod(joining.stack)
    tile = staticmethod(arrange.tile)
    roll = staticmethod(arrange.roll)
    flip = staticmethod(arrange.flip)
    tril = staticmethod(diagonals.tril)
    triu = staticmethod(diagonals.triu)
    ascontiguousarray = staticmethod(arrange.contiguous)
    copy = staticmethod(arrange.clone)
    astype = staticmethod(casting.cast)

    linalg = _Linalg

    @staticmethod
    def eye(n: int) -> Any:
        return wrap(np.eye(n))

    @staticmethod
    def transpose(a: Any, axes: Any = None) -> Any:
        return shape.reverse_dims(a) if axes is None else shape.permute(a, axes)

    @staticmethod
    def zeros(shape: Any, dtype: Any) -> Any:
        return wrap(np.zeros(shape, as_numpy(dtype)))

    @staticmethod
    def ones(shape: Any, dtype: Any) -> Any:
        return wrap(np.ones(shape, as_numpy(dtype)))

    @staticmethod
    def full(shape: Any, value: Any, dtype: Any) -> Any:
        return wrap(np.full(shape, value, as_numpy(dtype)))

    @staticmethod
    def zeros_like(a: Any) -> Any:
        return wrap(array_module(a.array).zeros_like(a.array))

    @staticmethod
    def ones_like(a: Any) -> Any:
        return wrap(array_module(a.array).ones_like(a.array))


namespace: Any = _Namespace()
TensorBase.namespace = namespace
