"""The arithmetic operators, with broadcasting: two tensors, or a tensor and a number."""

from ddpflow.autograd.kernels.choose import choose
from ddpflow.autograd.op import Floats, op
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "abs",
    "absolute",
    "add",
    "addcdiv",
    "addcmul",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "div",
    "divide",
    "float_power",
    "floor_divide",
    "fmod",
    "lerp",
    "mul",
    "multiply",
    "neg",
    "negative",
    "positive",
    "pow",
    "reciprocal",
    "remainder",
    "rsub",
    "sign",
    "square",
    "sub",
    "subtract",
    "true_divide",
]

_PAIRS = [
    ((3, 4), (3, 4)),
    ((2, 3), (3,)),
    ((5, 4), (1,)),
    ((4, 1), (1, 4)),
    ((), (2,)),
    ((1, 3, 1), (2, 1, 4)),
    ((0, 3), (3,)),
    ((3,), 2.5),
]
_POSITIVE = Floats((3, 4), 0.5, 2.0)
_QUOTIENTS = [((3, 4), _POSITIVE), ((2, 3), Floats((3,), 0.5, 2.0)), ((), Floats((2,), -2.0, -1.0)), ((3,), 2.5)]


@op(samples=_PAIRS, promote="common", name="add")
def plus(xp, a, b):
    """Sum of two tensors, or of a tensor and a number."""
    return a + b, (lambda g: g, lambda g: g)


@op(samples=_PAIRS, promote="common", name="sub")
def minus(xp, a, b):
    """Difference of two tensors, or of a tensor and a number."""
    return a - b, (lambda g: g, lambda g: -g)


@op(samples=_PAIRS, promote="common")
def mul(xp, a, b):
    """Product, element by element."""
    return a * b, (lambda g: g * b, lambda g: g * a)


@op(samples=_QUOTIENTS, promote="float", name="div")
def quotient(xp, a, b):
    """True quotient, element by element; integers give the default floating type."""
    return a / b, (lambda g: g / b, lambda g: -g * (a / b / b))


@op(samples=[((3, 4),), ((),), ((0, 2),)])
def neg(xp, a):
    """The negative."""
    return -a, lambda g: -g


@op(samples=[((3, 4),), ((),)])
def positive(xp, a):
    """The tensor itself."""
    return +a, lambda g: g


def add(input, other, *, alpha=1):
    """``input + alpha * other``."""
    return plus(input, other if alpha == 1 else mul(other, alpha))


def sub(input, other, *, alpha=1):
    """``input - alpha * other``."""
    return minus(input, other if alpha == 1 else mul(other, alpha))


def rsub(input, other, *, alpha=1):
    """``other - alpha * input``."""
    return minus(other, input if alpha == 1 else mul(input, alpha))


def div(input, other, *, rounding_mode=None):
    """Quotient, element by element.

    Args:
        input: Dividend.
        other: Divisor.
        rounding_mode: None for the true quotient, ``"floor"`` or ``"trunc"`` to round it.

    Raises:
        ValueRangeError: When the rounding mode is none of these.
    """
    if rounding_mode is None:
        return quotient(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return truncated_quotient(input, other)
    raise ValueRangeError(f"rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")


@op(samples=_QUOTIENTS, promote="common")
def floor_divide(xp, a, b):
    """Quotient rounded down."""
    _refuse_integer_zero(a, b)
    y = a // b
    if y.dtype.kind == "f":
        # NumPy gives nan where the quotient is infinite; PyTorch and IEEE give the infinity.
        y = xp.where(b == 0, a / b, y)
    return y, (lambda g: xp.zeros_like(g), lambda g: xp.zeros_like(g))


@op(samples=_QUOTIENTS, promote="common")
def truncated_quotient(xp, a, b):
    """Quotient rounded towards zero."""
    _refuse_integer_zero(a, b)
    if _kind(a, b) == "f":
        y = xp.trunc(a / b)
    else:
        y = (a - xp.fmod(a, b)) // b
    return y, (lambda g: xp.zeros_like(g), lambda g: xp.zeros_like(g))


@op(samples=_QUOTIENTS, promote="common")
def remainder(xp, a, b):
    """Remainder with the sign of the divisor, as Python's ``%``."""
    _refuse_integer_zero(a, b)
    return a % b, (lambda g: g, lambda g: -g * xp.floor(a / b))


@op(samples=_QUOTIENTS, promote="common")
def fmod(xp, a, b):
    """Remainder with the sign of the dividend, as C's ``fmod``."""
    _refuse_integer_zero(a, b)
    return xp.fmod(a, b), (lambda g: g, lambda g: -g * xp.trunc(a / b))


@op(
    samples=[
        (_POSITIVE, (3, 4)),
        (_POSITIVE, (4,)),
        ((3, 4), 2),
        ((3, 4), 3.0),
        (_POSITIVE, 0.5),
        ((3,), 0),
        (2.0, (3,)),
        (Floats((), 0.5, 2.0), (2,)),
    ],
    promote="common",
)
def pow(xp, a, b):
    """``a`` to the power ``b``, element by element.

    The gradient with respect to the base is 0 where the exponent is 0, and with respect to the exponent 0 where a zero
    base has an exponent of at least 0 (PyTorch's conventions).
    """
    if b.__class__ in (int, float, bool):
        return a**b, (lambda g: xp.zeros_like(g) if b == 0 else g * (b * a ** (b - 1)), None)

    def to_base(g):
        zero = b == 0
        return g * xp.where(zero, 0.0, b * a ** xp.where(zero, 1.0, b - 1))

    def to_exponent(g):
        base = xp.where((b >= 0) & (a == 0), 1.0, a)
        return g * (xp.log(base) * a**b)

    if b.dtype.kind == "i" and a.__class__ is not float and getattr(a, "dtype", b.dtype).kind in "iub":
        return _whole_power(xp, a, b), (to_base, to_exponent)
    return a**b, (to_base, to_exponent)


def _whole_power(xp, a, b):
    """Integers to integer powers: a negative power of anything but 1 and -1 is rounded to 0, as in PyTorch."""
    negative = b < 0
    if not negative.any():
        return a**b
    unit = (a == 1) | (a == -1)
    return xp.where(negative & xp.logical_not(unit), 0, a ** xp.abs(b))


def float_power(input, exponent):
    """``input ** exponent`` in float64 (complex128 for complex numbers)."""
    wide = [x.astype("float64") if hasattr(x, "array") and x.array.dtype.kind != "c" else x for x in (input, exponent)]
    return pow(*wide)


@op(samples=[((3, 4),), ((),)])
def square(xp, a):
    """The square; of booleans int64."""
    return (a * a if a.dtype.kind != "b" else a.astype(xp.int64)), lambda g: g * (2 * a)


@op(samples=[(_POSITIVE,), (Floats((), -2.0, -1.0),)], promote="float")
def reciprocal(xp, a):
    """One over the tensor."""
    y = 1 / a
    return y, lambda g: -g * y * y


@op(samples=[((3, 4),), ((),)])
def abs(xp, a):
    """The magnitude; its gradient at 0 is 0."""
    return xp.abs(a), lambda g: g * xp.sign(a)


@op(samples=[((3, 4),), ((),)])
def sign(xp, a):
    """-1, 0 or 1; 0 for NaN."""
    y = a if a.dtype.kind == "b" else xp.sign(a)
    return (xp.where(y == y, y, 0) if a.dtype.kind == "f" else y), lambda g: xp.zeros_like(g)


@op(
    samples=[
        ((3, 4), -0.5, 0.5),
        ((3, 4), None, 0.25),
        ((3, 4), 0.1, None),
        ((3, 4), (4,), Floats((3, 1), 1.0, 2.0)),
        ((3, 4), Floats((3, 4), -0.5, 0.0), None),
        ((3, 4), None, Floats((), 0.0, 0.5)),
        ((), -0.5, 0.5),
    ],
    promote="common",
    tensors=3,
    name="clamp",
)
def limited(xp, a, min, max):
    """The values held between two bounds, numbers or tensors; a bound that is None does not bind."""
    if min is None:
        return xp.minimum(a, max), (lambda g: choose(xp, a <= max, g, 0), None, lambda g: choose(xp, a > max, g, 0))
    if max is None:
        return xp.maximum(a, min), (lambda g: choose(xp, a >= min, g, 0), lambda g: choose(xp, a < min, g, 0), None)
    return xp.minimum(xp.maximum(a, min), max), (
        lambda g: choose(xp, (a >= min) & (a <= max), g, 0),
        lambda g: choose(xp, (a < min) & (min < max), g, 0),
        lambda g: choose(xp, (a > max) | (max < min), g, 0),
    )


def clamp(input, min=None, max=None):
    """The values held between ``min`` and ``max``, each a number, a tensor that broadcasts, or None.

    The gradient passes where the value lies within the bounds, these included. Where min exceeds max, max wins.

    Raises:
        ShapeError: When both bounds are None.
    """
    if min is None and max is None:
        raise ShapeError("clamp() needs at least one of min and max")
    return limited(input, min, max)


def clamp_min(input, min):
    """The values, but at least ``min``."""
    return limited(input, min, None)


def clamp_max(input, max):
    """The values, but at most ``max``."""
    return limited(input, None, max)


@op(
    samples=[
        ((3, 4), (3, 4), 0.25),
        ((3, 4), (4,), 0.75),
        ((3, 4), (3, 4), Floats((3, 4), 0.0, 1.0)),
        ((2, 3), (3,), Floats((2, 1), 0.0, 1.0)),
    ],
    promote="common",
    tensors=3,
)
def lerp(xp, input, end, weight):
    """``input + weight * (end - input)``; weight is a number or a tensor."""
    return input + weight * (end - input), (
        lambda g: g * (1 - weight),
        lambda g: g * weight,
        lambda g: g * (end - input),
    )


def addcmul(input, tensor1, tensor2, *, value=1):
    """``input + value * tensor1 * tensor2``."""
    product = mul(tensor1, tensor2)
    return plus(input, product if value == 1 else mul(product, value))


def addcdiv(input, tensor1, tensor2, *, value=1):
    """``input + value * tensor1 / tensor2``."""
    fraction = quotient(tensor1, tensor2)
    return plus(input, fraction if value == 1 else mul(fraction, value))


def _kind(a, b):
    return (a if hasattr(a, "dtype") else b).dtype.kind


def _refuse_integer_zero(a, b):
    """Integers have no infinity to give for a division by zero."""
    if getattr(a, "size", 1) and _kind(a, b) in "iub" and (b == 0 if not hasattr(b, "dtype") else (b == 0).any()):
        raise ShapeError("ZeroDivisionError: integer division by zero")


absolute = abs
clip = clamp
divide = true_divide = div
multiply = mul
negative = neg
subtract = sub
