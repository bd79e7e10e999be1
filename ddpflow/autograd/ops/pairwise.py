"""Functions of two tensors, element by element, beyond the arithmetic operators."""

import math

from ddpflow.autograd.kernels.choose import choose
from ddpflow.autograd.op import Floats, Ints, op

__all__ = [
    "arctan2",
    "atan2",
    "copysign",
    "fmax",
    "fmin",
    "gcd",
    "heaviside",
    "hypot",
    "lcm",
    "ldexp",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "nextafter",
    "xlogy",
]

_PAIRS = [((3, 4), (3, 4)), ((2, 3), (3,)), ((4, 1), (1, 4)), ((), (2,)), ((3,), 0.25)]
_POSITIVE = Floats((3, 4), 0.5, 2.0)


@op(samples=_PAIRS, promote="common")
def maximum(xp, a, b):
    """The greater of two, element by element; where they are equal each gets half of the gradient."""
    return xp.maximum(a, b), (
        lambda g: choose(xp, a == b, g * 0.5, choose(xp, a < b, 0, g)),
        lambda g: choose(xp, a == b, g * 0.5, choose(xp, b < a, 0, g)),
    )


@op(samples=_PAIRS, promote="common")
def minimum(xp, a, b):
    """The smaller of two, element by element; where they are equal each gets half of the gradient."""
    return xp.minimum(a, b), (
        lambda g: choose(xp, a == b, g * 0.5, choose(xp, a > b, 0, g)),
        lambda g: choose(xp, a == b, g * 0.5, choose(xp, b > a, 0, g)),
    )


@op(samples=_PAIRS, promote="common")
def fmax(xp, a, b):
    """The greater of two; where one is NaN, the other."""
    return xp.fmax(a, b), (
        lambda g: choose(xp, (a >= b) | (b != b), g, 0),
        lambda g: choose(xp, (a >= b) | (b != b), 0, g),
    )


@op(samples=_PAIRS, promote="common")
def fmin(xp, a, b):
    """The smaller of two; where one is NaN, the other."""
    return xp.fmin(a, b), (
        lambda g: choose(xp, (a <= b) | (b != b), g, 0),
        lambda g: choose(xp, (a <= b) | (b != b), 0, g),
    )


@op(samples=[(_POSITIVE, (3, 4)), ((2, 3), Floats((3,), 0.5, 2.0)), ((), (2,))], promote="float")
def atan2(xp, a, b):
    """The angle of the point (b, a)."""
    return xp.arctan2(a, b), (lambda g: g * b / (a * a + b * b), lambda g: -g * a / (a * a + b * b))


@op(samples=[((3, 4), _POSITIVE), ((2, 3), (3,)), ((), (2,))], promote="float")
def hypot(xp, a, b):
    """``sqrt(a * a + b * b)`` without overflow on the way."""
    y = xp.hypot(a, b)
    return y, (lambda g: g * a / y, lambda g: g * b / y)


@op(samples=_PAIRS, promote="float")
def copysign(xp, a, b):
    """The magnitude of the first with the sign of the second."""
    return xp.copysign(a, b), (
        lambda g: choose(xp, a == 0, 0, g * xp.copysign(xp.ones_like(g), b) * xp.sign(a)),
        lambda g: xp.zeros_like(g),
    )


@op(samples=[*_PAIRS[:-1]], promote="float")
def logaddexp(xp, a, b):
    """``log(exp(a) + exp(b))`` without overflow."""
    return xp.logaddexp(a, b), (lambda g: g * _share(xp, b, a), lambda g: g * _share(xp, a, b))


@op(samples=[*_PAIRS[:-1]], promote="float")
def logaddexp2(xp, a, b):
    """``log2(2 ** a + 2 ** b)`` without overflow."""
    two = math.log(2.0)
    return xp.logaddexp2(a, b), (lambda g: g * _share(xp, b * two, a * two), lambda g: g * _share(xp, a * two, b * two))


def _share(xp, other, own):
    """``exp(own) / (exp(own) + exp(other))``; equal infinities share evenly."""
    return 1 / (1 + xp.exp(xp.where(other == own, 0, other - own)))


@op(samples=[((3, 4), _POSITIVE), ((2, 3), Floats((3,), 0.5, 2.0)), (2.0, _POSITIVE)], promote="float")
def xlogy(xp, a, b):
    """``a * log(b)``, and 0 where a is 0 (unless b is NaN)."""
    return xp.where((a == 0) & (b == b), 0, a * xp.log(b)), (
        lambda g: choose(xp, (a == 0) & (b <= 0), 0, g * xp.log(choose(xp, (a == 0) & (b <= 0), 1, b))),
        lambda g: g * a / b,
    )


@op(samples=[((3, 4), (4,))], promote="common", differentiable=False, tensors=2)
def heaviside(xp, input, values):
    """0 for negative, 1 for positive elements, and ``values`` where the input is 0."""
    return xp.heaviside(input, values) if input.dtype.kind == "f" else xp.where(input == 0, values, input > 0)


@op(samples=[((3, 4), (4,))], promote="common")
def nextafter(xp, a, b):
    """The next representable number after ``a`` towards ``b``."""
    return xp.nextafter(a, b), (lambda g: xp.where(a == b, 0, g), lambda g: xp.zeros_like(g))


@op(samples=[(Ints((3, 4), 20), Ints((4,), 20))], promote="common", differentiable=False, tensors=2)
def gcd(xp, input, other):
    """The greatest common divisor of two integers."""
    return xp.gcd(input, other)


@op(samples=[(Ints((3, 4), 20), Ints((4,), 20))], promote="common", differentiable=False, tensors=2)
def lcm(xp, input, other):
    """The least common multiple of two integers."""
    return xp.abs(xp.lcm(input, other))


@op(samples=[((3, 4), Ints((4,), 4)), ((3, 4), (3, 4))], promote="float")
def ldexp(xp, a, b):
    """``a * 2 ** b``."""
    return a * xp.exp2(b), (lambda g: g * xp.exp2(b), lambda g: g * (a * xp.exp2(b) * math.log(2.0)))


arctan2 = atan2
