"""Comparisons, tests of elements, logic on booleans and bits, and `where`. None but `where` has a gradient."""

from ddpflow.autograd.kernels.choose import choose
from ddpflow.autograd.op import Bools, Ints, op
from ddpflow.dtype import as_numpy, get_default_dtype
from ddpflow.errors import DtypeError

__all__ = [
    "allclose",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "eq",
    "equal",
    "ge",
    "greater",
    "greater_equal",
    "gt",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "le",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "ne",
    "not_equal",
    "signbit",
    "where",
]

_PAIRS = [((3, 4), (3, 4)), ((2, 3), (3,)), ((), (2,)), ((3,), 0.25), ((0, 3), (3,)), (Ints((3, 4), 3), Ints((4,), 3))]
_BITS = [(Ints((3, 4), 16), Ints((4,), 16)), (Bools((3, 4)), Bools((3, 4))), (Ints((3,), 16), 5)]
_LOGIC = [(Bools((3, 4)), Bools((4,))), ((3, 4), Ints((3, 4), 2))]
_SHIFTS = [(Ints((3, 4), 16), Ints((4,), 4)), (Ints((3,), 16), 2)]
_ONE = [((3, 4),), ((),), ((0, 2),)]


@op(samples=_PAIRS, promote="common", differentiable=False, tensors=2)
def eq(xp, input, other):
    """True where both are equal."""
    return input == other


@op(samples=_PAIRS, promote="common", differentiable=False, tensors=2)
def ne(xp, input, other):
    """True where both differ."""
    return input != other


@op(samples=_PAIRS, promote="common", differentiable=False, tensors=2)
def lt(xp, input, other):
    """True where the first is less."""
    return input < other


@op(samples=_PAIRS, promote="common", differentiable=False, tensors=2)
def le(xp, input, other):
    """True where the first is less or equal."""
    return input <= other


@op(samples=_PAIRS, promote="common", differentiable=False, tensors=2)
def gt(xp, input, other):
    """True where the first is greater."""
    return input > other


@op(samples=_PAIRS, promote="common", differentiable=False, tensors=2)
def ge(xp, input, other):
    """True where the first is greater or equal."""
    return input >= other


@op(samples=_ONE, differentiable=False)
def isnan(xp, input):
    """True where an element is NaN."""
    return input != input


@op(samples=_ONE, differentiable=False)
def isinf(xp, input):
    """True where an element is infinite."""
    return xp.isinf(input)


@op(samples=_ONE, differentiable=False)
def isfinite(xp, input):
    """True where an element is neither infinite nor NaN."""
    return xp.isfinite(input)


@op(samples=_ONE, differentiable=False)
def isposinf(xp, input):
    """True where an element is plus infinity."""
    return (input == xp.inf) if input.dtype.kind != "b" else xp.zeros(input.shape, bool)


@op(samples=_ONE, differentiable=False)
def isneginf(xp, input):
    """True where an element is minus infinity."""
    return (input == -xp.inf) if input.dtype.kind != "b" else xp.zeros(input.shape, bool)


@op(samples=_ONE, differentiable=False)
def isreal(xp, input):
    """True where an element has no imaginary part."""
    return xp.isreal(input)


@op(samples=_ONE, differentiable=False)
def signbit(xp, input):
    """True where the sign bit is set (also of -0.0)."""
    return xp.signbit(input) if input.dtype.kind == "f" else input < 0


@op(samples=[((3, 4), (3, 4)), ((2, 3), (3,), 1e-3, 1e-3, True)], promote="common", differentiable=False, tensors=2)
def isclose(xp, input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True where both differ by at most ``atol + rtol * |other|``."""
    return xp.isclose(input, other, rtol, atol, equal_nan)


@op(samples=_LOGIC, differentiable=False, tensors=2)
def logical_and(xp, input, other):
    """True where both are non-zero."""
    return xp.logical_and(input, other)


@op(samples=_LOGIC, differentiable=False, tensors=2)
def logical_or(xp, input, other):
    """True where at least one is non-zero."""
    return xp.logical_or(input, other)


@op(samples=_LOGIC, differentiable=False, tensors=2)
def logical_xor(xp, input, other):
    """True where exactly one is non-zero."""
    return xp.logical_xor(input, other)


@op(samples=[((3, 4),), (Bools((3,)),)], differentiable=False)
def logical_not(xp, input):
    """True where the element is zero."""
    return xp.logical_not(input)


@op(samples=_BITS, promote="common", differentiable=False, tensors=2)
def bitwise_and(xp, input, other):
    """The bits that both have."""
    return input & other


@op(samples=_BITS, promote="common", differentiable=False, tensors=2)
def bitwise_or(xp, input, other):
    """The bits that at least one has."""
    return input | other


@op(samples=_BITS, promote="common", differentiable=False, tensors=2)
def bitwise_xor(xp, input, other):
    """The bits that exactly one has."""
    return input ^ other


@op(samples=[(Ints((3, 4), 16),), (Bools((3,)),)], differentiable=False)
def bitwise_not(xp, input):
    """All bits flipped."""
    return ~input


@op(samples=_SHIFTS, promote="common", differentiable=False, tensors=2)
def bitwise_left_shift(xp, input, other):
    """The bits moved up by ``other`` places."""
    return input << other


@op(samples=_SHIFTS, promote="common", differentiable=False, tensors=2)
def bitwise_right_shift(xp, input, other):
    """The bits moved down by ``other`` places."""
    return input >> other


@op(
    samples=[
        ((3, 4), (4,), Bools((3, 4))),
        ((3, 1), (3, 4), Bools((4,))),
        ((3,), 0.5, Bools((3,))),
        (-1.0, (), Bools((3,))),
        ((), (), Bools(())),
        ((0, 2), (2,), Bools((0, 2))),
    ],
    promote="common",
    tensors=2,
    name="where",
)
def chosen(xp, input, other, condition):
    """As `where`, with the condition last."""
    if hasattr(condition, "dtype") and condition.dtype.name != "bool":
        raise DtypeError(f"where() takes a boolean condition, not {condition.dtype}; compare first, as in x > 0")
    out = choose(xp, condition, input, other)
    if not hasattr(input, "dtype") and not hasattr(other, "dtype") and out.dtype.kind == "f":
        out = out.astype(as_numpy(get_default_dtype()))
    return out, (
        lambda g: choose(xp, condition, g, 0),
        lambda g: choose(xp, condition, 0, g),
    )


@op(samples=[(Bools((3, 4)),), ((2, 3),)], differentiable=False)
def where_indices(xp, condition):
    """The indices of the non-zero elements: one integer tensor for each dimension."""
    return xp.nonzero(condition)


def where(condition, input=None, other=None):
    """Elements of ``input`` where the condition is True, of ``other`` elsewhere; all three broadcast.

    With the condition alone, the indices where it holds: one tensor for each dimension.

    The gradient is a selection: what the other branch's value is, NaN too, does not reach it. A branch whose own
    gradient is infinite still poisons its input, so guard the input of such a function first ("double where")::

        safe = where(x > 0, x, 1.0)
        y = where(x > 0, sqrt(safe), 0.0)

    Raises:
        DtypeError: When the condition is not boolean.
    """
    if input is None and other is None:
        return where_indices(condition)
    if input is None or other is None:
        raise DtypeError("where() takes both values, or none of them for the indices where the condition holds")
    return chosen(input, other, condition)


@op(samples=[((3, 4), (3, 4)), ((2,), (3,))], differentiable=False, tensors=2, name="equal")
def same(xp, input, other):
    """True when both have the same shape and the same elements."""
    return xp.asarray(input.shape == other.shape and bool((input == other).all()))


def equal(input, other):
    """True when both have the same shape and the same elements, as a Python bool."""
    return bool(same(input, other))


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True when all elements are close, as a Python bool; see `isclose`."""
    return bool(isclose(input, other, rtol, atol, equal_nan).array.all())


greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
