"""Every operation as a tensor method, under PyTorch's names."""

from typing import Any

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.ops import (
    activation,
    arithmetic,
    compare,
    complexes,
    elementwise,
    matrices,
    pairwise,
    products,
    quantiles,
    reduce,
    rounding,
    scan,
    softmax,
    special,
    statistics,
)

__all__ = ["TensorMethods"]


class TensorMethods(TensorBase):
    """The operations of `ddpflow.autograd.ops`, bound."""

    __slots__ = ()
    __array_priority__ = 1000  # NumPy leaves array + tensor to the tensor

    # arithmetic
    add = arithmetic.add
    __add__ = __radd__ = arithmetic.plus
    sub = subtract = arithmetic.sub
    __sub__ = arithmetic.minus
    mul = multiply = __mul__ = __rmul__ = arithmetic.mul
    div = divide = true_divide = arithmetic.div
    __truediv__ = arithmetic.quotient
    floor_divide = __floordiv__ = arithmetic.floor_divide
    remainder = __mod__ = arithmetic.remainder
    fmod = arithmetic.fmod
    neg = negative = __neg__ = arithmetic.neg
    positive = __pos__ = arithmetic.positive
    pow = __pow__ = arithmetic.pow
    float_power = arithmetic.float_power
    square = arithmetic.square
    reciprocal = arithmetic.reciprocal
    abs = absolute = __abs__ = arithmetic.abs
    sign = arithmetic.sign
    clamp = clip = arithmetic.clamp
    clamp_min = arithmetic.clamp_min
    clamp_max = arithmetic.clamp_max
    lerp = arithmetic.lerp
    addcmul = arithmetic.addcmul
    addcdiv = arithmetic.addcdiv

    def __rsub__(self, other: Any) -> Any:
        return arithmetic.minus(other, self)

    def __rtruediv__(self, other: Any) -> Any:
        return arithmetic.quotient(other, self)

    def __rfloordiv__(self, other: Any) -> Any:
        return arithmetic.floor_divide(other, self)

    def __rmod__(self, other: Any) -> Any:
        return arithmetic.remainder(other, self)

    def __rpow__(self, other: Any) -> Any:
        return arithmetic.pow(other, self)

    # pairwise
    maximum = pairwise.maximum
    minimum = pairwise.minimum
    fmax = pairwise.fmax
    fmin = pairwise.fmin
    atan2 = arctan2 = pairwise.atan2
    hypot = pairwise.hypot
    copysign = pairwise.copysign
    logaddexp = pairwise.logaddexp
    logaddexp2 = pairwise.logaddexp2
    xlogy = pairwise.xlogy
    heaviside = pairwise.heaviside
    nextafter = pairwise.nextafter
    gcd = pairwise.gcd
    lcm = pairwise.lcm
    ldexp = pairwise.ldexp
    frexp = elementwise.frexp

    # compare
    eq = compare.eq
    ne = not_equal = compare.ne
    lt = less = __lt__ = compare.lt
    le = less_equal = __le__ = compare.le
    gt = greater = __gt__ = compare.gt
    ge = greater_equal = __ge__ = compare.ge
    isnan = compare.isnan
    isinf = compare.isinf
    isfinite = compare.isfinite
    isposinf = compare.isposinf
    isneginf = compare.isneginf
    isreal = compare.isreal
    signbit = compare.signbit
    isclose = compare.isclose
    allclose = compare.allclose
    equal = compare.equal
    logical_and = compare.logical_and
    logical_or = compare.logical_or
    logical_xor = compare.logical_xor
    logical_not = compare.logical_not
    bitwise_and = __and__ = __rand__ = compare.bitwise_and
    bitwise_or = __or__ = __ror__ = compare.bitwise_or
    bitwise_xor = __xor__ = __rxor__ = compare.bitwise_xor
    bitwise_not = __invert__ = compare.bitwise_not
    bitwise_left_shift = __lshift__ = compare.bitwise_left_shift
    bitwise_right_shift = __rshift__ = compare.bitwise_right_shift

    def where(self, condition: Any, other: Any) -> Any:
        """Elements of this tensor where the condition is True, of ``other`` elsewhere."""
        return compare.where(condition, self, other)

    def __eq__(self, other: object) -> Any:
        return compare.eq(self, other) if _comparable(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return compare.ne(self, other) if _comparable(other) else NotImplemented

    __hash__ = TensorBase.__hash__

    def __rlshift__(self, other: Any) -> Any:
        return compare.bitwise_left_shift(other, self)

    def __rrshift__(self, other: Any) -> Any:
        return compare.bitwise_right_shift(other, self)

    # elementwise
    exp = elementwise.exp
    exp2 = elementwise.exp2
    expm1 = elementwise.expm1
    log = elementwise.log
    log2 = elementwise.log2
    log10 = elementwise.log10
    log1p = elementwise.log1p
    sqrt = elementwise.sqrt
    rsqrt = elementwise.rsqrt
    sin = elementwise.sin
    cos = elementwise.cos
    tan = elementwise.tan
    asin = arcsin = elementwise.asin
    acos = arccos = elementwise.acos
    atan = arctan = elementwise.atan
    sinh = elementwise.sinh
    cosh = elementwise.cosh
    tanh = elementwise.tanh
    asinh = arcsinh = elementwise.asinh
    acosh = arccosh = elementwise.acosh
    atanh = arctanh = elementwise.atanh
    deg2rad = elementwise.deg2rad
    rad2deg = elementwise.rad2deg
    logit = elementwise.logit
    sinc = elementwise.sinc
    nan_to_num = elementwise.nan_to_num
    sgn = elementwise.sgn

    # rounding
    floor = rounding.floor
    ceil = rounding.ceil
    trunc = fix = rounding.trunc
    round = rounding.round
    frac = rounding.frac

    # activation
    log_softmax = softmax.log_softmax
    softmax = softmax.softmax  # last: the name is the file's until here
    relu = activation.relu
    sigmoid = activation.sigmoid

    # special
    erf = special.erf
    erfc = special.erfc
    erfinv = special.erfinv
    lgamma = special.lgamma
    digamma = special.digamma
    mvlgamma = special.mvlgamma

    def polygamma(self, n: int) -> Any:
        """The n-th derivative of `digamma`."""
        return special.polygamma(n, self)

    # reduce
    sum = reduce.sum
    nansum = reduce.nansum
    mean = reduce.mean
    nanmean = reduce.nanmean
    prod = reduce.prod
    amax = reduce.amax
    amin = reduce.amin
    aminmax = reduce.aminmax
    max = reduce.max
    min = reduce.min
    argmax = reduce.argmax
    argmin = reduce.argmin
    any = reduce.any
    all = reduce.all
    count_nonzero = reduce.count_nonzero
    logsumexp = reduce.logsumexp

    # statistics
    var = statistics.var
    std = statistics.std
    norm = statistics.norm
    dist = statistics.dist

    # scan
    cumsum = scan.cumsum
    cumprod = scan.cumprod
    cummax = scan.cummax
    cummin = scan.cummin
    logcumsumexp = scan.logcumsumexp
    diff = scan.diff

    # quantiles
    median = quantiles.median
    nanmedian = quantiles.nanmedian
    mode = quantiles.mode
    quantile = quantiles.quantile
    nanquantile = quantiles.nanquantile
    cov = quantiles.cov
    corrcoef = quantiles.corrcoef
    renorm = quantiles.renorm

    # matrices
    cholesky = matrices.cholesky
    cholesky_inverse = matrices.cholesky_inverse
    cholesky_solve = matrices.cholesky_solve
    det = matrices.det
    inverse = matrices.inverse
    logdet = matrices.logdet
    matrix_exp = matrices.matrix_exp
    pinverse = matrices.pinverse
    qr = matrices.qr
    slogdet = matrices.slogdet
    svd = matrices.svd
    triangular_solve = matrices.triangular_solve

    # complexes
    conj = complexes.conj
    conj_physical = complexes.conj_physical
    angle = complexes.angle
    resolve_conj = complexes.resolve_conj
    resolve_neg = complexes.resolve_neg

    real = property(complexes.real)
    imag = property(complexes.imag)

    # products
    matmul = __matmul__ = products.matmul
    mm = products.mm
    bmm = products.bmm
    mv = products.mv
    dot = products.dot
    vdot = products.vdot
    outer = ger = products.outer
    inner = products.inner
    addmm = products.addmm
    baddbmm = products.baddbmm
    addbmm = products.addbmm
    addmv = products.addmv
    addr = products.addr
    matrix_power = products.matrix_power
    kron = products.kron
    cross = products.cross
    trace = products.trace

    def __rmatmul__(self, other: Any) -> Any:
        return products.matmul(other, self)


def _comparable(other: object) -> bool:
    return isinstance(other, (TensorBase, bool, int, float, complex)) or hasattr(other, "__array__")
