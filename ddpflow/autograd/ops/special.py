"""Error, gamma and related functions, which neither NumPy nor CuPy has.

The error function is Cody's rational approximation for float64 and a shorter one for the smaller types.
"""

import math

from ddpflow.autograd.op import Floats, apply, op
from ddpflow.autograd.ops.dims import is_half, narrow

__all__ = ["digamma", "erf", "erfc", "erfinv", "lgamma", "mvlgamma", "polygamma"]

# Source: W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969).
_A = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
_B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_C = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
_D = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
_P = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_Q = (
    1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip
# Source: the float32 approximation of Eigen, x * alpha(x * x) / beta(x * x) on [-4, 4].
_ALPHA = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_BETA = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
# Source: C. Lanczos' approximation with g = 7 and nine terms.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)
_SAMPLES = [((3, 4),), ((),), ((0, 2),)]


def _poly(x, coefficients):
    """Horner's rule, highest power first."""
    total = coefficients[0] * x + coefficients[1]
    for c in coefficients[2:]:
        total *= x
        total += c
    return total


def _erfc_of_magnitude(xp, y):
    """``erfc(y)`` of float64 numbers above 0.46875."""
    y = xp.minimum(y, 30.0)
    middle = _poly(y, _C) / _poly(y, _D)
    s = 1 / (y * y)
    tail = (1 / math.sqrt(math.pi) - s * _poly(s, _P) / _poly(s, _Q)) / y
    # exp(-y * y) with y * y split, so that its rounding error does not grow with y.
    head = xp.trunc(y * 16) / 16
    return xp.exp(-head * head) * xp.exp(-(y - head) * (y + head)) * xp.where(y > 4, tail, middle)


def _small_erf(xp, x):
    square = x * x
    return x * _poly(square, _A) / _poly(square, _B)


def _asymptotic(xp, s, z, terms=_BERNOULLI):
    """The Euler-Maclaurin tail of ``sum((z + k) ** -s)`` over k >= 0, for z of at least about 10."""
    total = z ** (1 - s) / (s - 1) + 0.5 * z**-s
    factor = s * z ** (-s - 1)
    for k, b in enumerate(terms, 1):
        total = total + b / math.factorial(2 * k) * factor
        factor = factor * ((s + 2 * k - 1) * (s + 2 * k)) / (z * z)
    return total


@op(samples=_SAMPLES, promote="float")
def erf(xp, x):
    """The error function."""
    if x.dtype == xp.float64:
        y = xp.abs(x)
        outside = xp.copysign(1 - _erfc_of_magnitude(xp, xp.maximum(y, 0.4)), x)
        out = xp.where(y <= 0.46875, _small_erf(xp, xp.minimum(xp.maximum(x, -0.5), 0.5)), outside)
        out = xp.where(x != x, x, out)
    else:
        held = xp.minimum(xp.maximum(x.astype(xp.float32) if is_half(x.dtype) else x, -4.0), 4.0)
        square = held * held
        out = narrow(held * _poly(square, _ALPHA) / _poly(square, _BETA), x.dtype)
    return out, lambda g: g * (_TWO_OVER_SQRT_PI * xp.exp(-x * x))


@op(samples=_SAMPLES, promote="float")
def erfc(xp, x):
    """``1 - erf(x)``, exact also where erf is near 1."""
    wide = x.astype(xp.float64)
    y = xp.abs(wide)
    outside = _erfc_of_magnitude(xp, xp.maximum(y, 0.4))
    outside = xp.where(wide < 0, 2 - outside, outside)
    out = xp.where(y <= 0.46875, 1 - _small_erf(xp, xp.minimum(xp.maximum(wide, -0.5), 0.5)), outside)
    out = xp.where(x != x, x, out).astype(x.dtype)
    return out, lambda g: g * (-_TWO_OVER_SQRT_PI * xp.exp(-x * x))


@op(samples=[(Floats((3, 4), -0.9, 0.9),), (Floats((), 0.1, 0.9),)], promote="float")
def erfinv(xp, x):
    """The inverse of the error function; infinite at -1 and 1, NaN beyond."""
    wide = x.astype(xp.float64)
    # Winitzki's guess, then Newton's method (Halley's form) on erf.
    tail = xp.log((1 - wide) * (1 + wide))
    middle = 2 / (math.pi * 0.147) + 0.5 * tail
    y = xp.copysign(xp.sqrt(xp.sqrt(middle * middle - tail / 0.147) - middle), wide)
    finite = xp.where(xp.abs(wide) < 1, y, 0)
    for _ in range(3):
        # Through erfc of the magnitude: 1 - |x| keeps its digits near 1.
        error = xp.where(
            xp.abs(wide) < 0.5,
            apply(xp, erf, finite) - wide,
            xp.sign(wide) * ((1 - xp.abs(wide)) - apply(xp, erfc, xp.abs(finite))),
        )
        step = error / (_TWO_OVER_SQRT_PI * xp.exp(-finite * finite))
        finite = finite - step / (1 + finite * step)
    out = xp.where(xp.abs(wide) < 1, finite, xp.where(xp.abs(wide) == 1, wide * xp.inf, xp.nan)).astype(x.dtype)
    return out, lambda g: g * (xp.exp(out * out) / _TWO_OVER_SQRT_PI)


@op(samples=[(Floats((3, 4), 0.5, 4.0),), (Floats((3,), -1.9, -1.1),), (Floats((), 0.1, 0.4),)], promote="float")
def lgamma(xp, x):
    """The logarithm of the magnitude of the gamma function."""
    wide = x.astype(xp.float64)
    low = wide < 0.5
    z = xp.where(low, 1 - wide, wide) - 1
    total = sum((c / (z + k) for k, c in enumerate(_LANCZOS[1:], 1)), _LANCZOS[0])
    t = z + 7.5
    value = 0.5 * math.log(2 * math.pi) + (z + 0.5) * xp.log(t) - t + xp.log(total)
    # Far out the two large terms of the formula cancel; Stirling's series does not have them.
    value = xp.where(z > 100, _stirling(xp, xp.maximum(z, 1.0) + 1), value)
    sine = xp.abs(xp.sin(math.pi * (wide - xp.floor(wide))))
    out = xp.where(low, math.log(math.pi) - xp.log(sine) - value, value)
    out = xp.where(xp.isinf(wide), xp.inf, out).astype(x.dtype)
    return out, lambda g: g * apply(xp, digamma, x)


def _stirling(xp, z):
    return (z - 0.5) * xp.log(z) - z + 0.5 * math.log(2 * math.pi) + 1 / (12 * z) - 1 / (360 * z**3)


@op(samples=[(Floats((3, 4), 0.5, 4.0),), (Floats((3,), -1.9, -1.1),), (Floats((), 0.1, 0.4),)], promote="float")
def digamma(xp, x):
    """The derivative of `lgamma`."""
    wide = x.astype(xp.float64)
    low = wide < 0
    z = xp.where(low, 1 - wide, wide)
    value = 0.0
    for k in range(10):
        value = value - 1 / (z + k)
    far = z + 10
    series = xp.log(far) - 0.5 / far
    power = far * far
    for k, b in enumerate(_BERNOULLI, 1):
        series = series - b / (2 * k * power)
        power = power * far * far
    value = value + series
    fraction = wide - xp.trunc(wide)
    out = xp.where(low, value - math.pi / xp.tan(math.pi * fraction), value)
    out = xp.where(wide == 0, -xp.copysign(xp.inf, wide), xp.where(low & (fraction == 0), xp.nan, out))
    return out.astype(x.dtype), lambda g: g * apply(xp, polygamma_of, x, 1)


@op(
    samples=[(Floats((3, 4), 0.5, 4.0), 1), (Floats((3,), -1.9, -1.1), 2)], promote="float", tensors=1, name="polygamma"
)
def polygamma_of(xp, input, n):
    """As `polygamma`, with the order last."""
    wide = input.astype(xp.float64)
    total = 0.0
    for k in range(12):
        total = total + (wide + k) ** (-(n + 1))
    total = total + _asymptotic(xp, n + 1, wide + 12)
    out = ((-1) ** (n + 1) * math.factorial(n) * total).astype(input.dtype)
    return out, lambda g: g * apply(xp, polygamma_of, input, n + 1)


def polygamma(n, input):
    """The n-th derivative of `digamma`, for arguments above -12."""
    return digamma(input) if n == 0 else polygamma_of(input, n)


def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension p."""
    total = p * (p - 1) / 4 * math.log(math.pi)
    for i in range(p):
        total = lgamma(input - i / 2) + total
    return total
