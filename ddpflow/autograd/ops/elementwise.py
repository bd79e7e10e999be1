"""Functions of one tensor, element by element: exponentials, logarithms, trigonometry."""

import math

from ddpflow.autograd.op import Floats, Ints, op
from ddpflow.autograd.ops.dims import named_result
from ddpflow.errors import DtypeError

__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "frexp",
    "log",
    "log10",
    "log1p",
    "log2",
    "logit",
    "nan_to_num",
    "rad2deg",
    "rsqrt",
    "sgn",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]

_ANY = [((3, 4),), ((),), ((0, 2),), (Ints((3,), 5),)]
_POSITIVE = [(Floats((3, 4), 0.5, 2.0),), (Floats((), 0.5, 2.0),)]
_INSIDE = [(Floats((3, 4), -0.9, 0.9),), (Floats((), 0.1, 0.9),)]
_BEYOND_ONE = [(Floats((3, 4), 1.1, 3.0),), (Floats((), 1.1, 3.0),)]


@op(samples=_ANY, promote="float")
def exp(xp, x):
    """The exponential function."""
    y = xp.exp(x)
    return y, lambda g: g * y


@op(samples=_ANY, promote="float")
def exp2(xp, x):
    """2 to the power of the elements."""
    y = xp.exp2(x)
    return y, lambda g: g * y * math.log(2.0)


@op(samples=_ANY, promote="float")
def expm1(xp, x):
    """``exp(x) - 1``, exact also for small x."""
    y = xp.expm1(x)
    return y, lambda g: g * (y + 1)


@op(samples=_POSITIVE, promote="float")
def log(xp, x):
    """The natural logarithm; -inf at 0, NaN below."""
    return xp.log(x), lambda g: g / x


@op(samples=_POSITIVE, promote="float")
def log2(xp, x):
    """The logarithm to base 2."""
    return xp.log2(x), lambda g: g / (x * math.log(2.0))


@op(samples=_POSITIVE, promote="float")
def log10(xp, x):
    """The logarithm to base 10."""
    return xp.log10(x), lambda g: g / (x * math.log(10.0))


@op(samples=_INSIDE, promote="float")
def log1p(xp, x):
    """``log(1 + x)``, exact also for small x."""
    return xp.log1p(x), lambda g: g / (1 + x)


@op(samples=_POSITIVE, promote="float")
def sqrt(xp, x):
    """The square root; NaN below 0, and a gradient of inf at 0 (as the derivative has)."""
    y = xp.sqrt(x)
    return y, lambda g: g / (2 * y)


@op(samples=_POSITIVE, promote="float")
def rsqrt(xp, x):
    """One over the square root."""
    y = 1 / xp.sqrt(x)
    return y, lambda g: g * (-0.5 * y * y * y)


@op(samples=_ANY, promote="float")
def sin(xp, x):
    """The sine of an angle in radians."""
    return xp.sin(x), lambda g: g * xp.cos(x)


@op(samples=_ANY, promote="float")
def cos(xp, x):
    """The cosine of an angle in radians."""
    return xp.cos(x), lambda g: -g * xp.sin(x)


@op(samples=_INSIDE, promote="float")
def tan(xp, x):
    """The tangent of an angle in radians."""
    y = xp.tan(x)
    return y, lambda g: g * (1 + y * y)


@op(samples=_INSIDE, promote="float")
def asin(xp, x):
    """The angle whose sine is x."""
    return xp.arcsin(x), lambda g: g / xp.sqrt(1 - x * x)


@op(samples=_INSIDE, promote="float")
def acos(xp, x):
    """The angle whose cosine is x."""
    return xp.arccos(x), lambda g: -g / xp.sqrt(1 - x * x)


@op(samples=_ANY, promote="float")
def atan(xp, x):
    """The angle whose tangent is x."""
    return xp.arctan(x), lambda g: g / (1 + x * x)


@op(samples=_ANY, promote="float")
def sinh(xp, x):
    """The hyperbolic sine."""
    return xp.sinh(x), lambda g: g * xp.cosh(x)


@op(samples=_ANY, promote="float")
def cosh(xp, x):
    """The hyperbolic cosine."""
    return xp.cosh(x), lambda g: g * xp.sinh(x)


@op(samples=_ANY, promote="float")
def tanh(xp, x):
    """The hyperbolic tangent."""
    y = xp.tanh(x)
    return y, lambda g: g * (1 - y * y)


@op(samples=_ANY, promote="float")
def asinh(xp, x):
    """The inverse of the hyperbolic sine."""
    return xp.arcsinh(x), lambda g: g / xp.sqrt(x * x + 1)


@op(samples=_BEYOND_ONE, promote="float")
def acosh(xp, x):
    """The inverse of the hyperbolic cosine."""
    return xp.arccosh(x), lambda g: g / xp.sqrt(x * x - 1)


@op(samples=_INSIDE, promote="float")
def atanh(xp, x):
    """The inverse of the hyperbolic tangent."""
    return xp.arctanh(x), lambda g: g / (1 - x * x)


@op(samples=_ANY, promote="float")
def deg2rad(xp, x):
    """Degrees in radians."""
    return x * (math.pi / 180), lambda g: g * (math.pi / 180)


@op(samples=_ANY, promote="float")
def rad2deg(xp, x):
    """Radians in degrees."""
    return x * (180 / math.pi), lambda g: g * (180 / math.pi)


@op(
    samples=[(Floats((3, 4), 0.1, 0.9), 1e-3), (Floats((3, 4), 0.0, 1.0), 0.1), (Floats((3,), 0.1, 0.9),)],
    promote="float",
)
def logit(xp, input, eps=None):
    """``log(x / (1 - x))``; with ``eps`` the input is first held within [eps, 1 - eps]."""
    if eps is None:
        return xp.log(input / (1 - input)), lambda g: g / (input * (1 - input))
    held = xp.minimum(xp.maximum(input, eps), 1 - eps)
    return xp.log(held / (1 - held)), lambda g: xp.where(
        (input < eps) | (input > 1 - eps), 0, g / (input * (1 - input))
    )


@op(samples=[((3, 4),), ((),)], promote="float")
def sinc(xp, x):
    """``sin(pi x) / (pi x)``, and 1 at 0."""

    def vjp(g):
        zero = x == 0
        safe = xp.where(zero, 1.0, x)
        angle = safe * math.pi
        return g * xp.where(zero, 0, (xp.cos(angle) * angle - xp.sin(angle)) / (angle * safe))

    return xp.sinc(x), vjp


@op(samples=[((3, 4),), ((3, 4), 1.0, 2.0, 3.0)])
def nan_to_num(xp, input, nan=0.0, posinf=None, neginf=None):
    """NaN and infinities replaced by numbers: by default 0 and the greatest and least finite numbers."""
    if input.dtype.kind not in "fc":
        return input.copy(), lambda g: g
    out = xp.nan_to_num(input, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)
    return out, lambda g: xp.where(xp.isfinite(input), g, 0)


@op(samples=[(Floats((3, 4), 0.51, 0.98),), (Floats((3,), -7.9, -4.1),), (Floats((), 2.1, 3.9),)], several=True)
def significand_exponent(xp, input):
    """``m, e`` with ``input = m * 2 ** e``, an int32 e and m from 0.5 to 1 in magnitude, or 0."""
    found, exponent = xp.frexp(input)
    return (found, exponent), (lambda g, _: g * xp.exp2(-xp.frexp(input)[1].astype(input.dtype)),)


_FrexpResult = named_result("frexp", "mantissa", "exponent")


def frexp(input):
    """Significands from 0.5 to 1 in magnitude (0 for 0) and int32 exponents of 2, as a named tuple.

    Raises:
        DtypeError: For integers.
    """
    if input.array.dtype.kind in "biuc":
        raise DtypeError(f"frexp() takes floating tensors, not {input.dtype}")
    return _FrexpResult(*significand_exponent(input))


@op(samples=[((3, 4),), ((),)])
def sgn(xp, x):
    """The sign; for complex numbers the number on the unit circle with the same angle."""
    if x.dtype.kind == "c":
        return xp.sign(x), lambda g: xp.conj(_across(xp, xp.conj(g), x))
    y = x if x.dtype.kind == "b" else xp.sign(x)
    return (xp.where(y == y, y, 0) if x.dtype.kind == "f" else y), lambda g: xp.zeros_like(g)


def _across(xp, g, x):
    """The part of a gradient that turns a complex number; what stretches it does not change its sign."""
    size = xp.abs(x)
    zero = size == 0
    sign = x / xp.where(zero, 1, size)
    return xp.where(zero, 0, (g - (g * xp.conj(sign)).real * sign) / xp.where(zero, 1, size))


arccos, arccosh, arcsin, arcsinh, arctan, arctanh = acos, acosh, asin, asinh, atan, atanh
