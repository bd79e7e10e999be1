"""Arithmetic with broadcasting: two tensors, or a tensor and a number."""

from ddpflow.autograd.op import Floats, op

__all__ = ["add", "div", "mul", "neg", "sub"]

_PAIRS = [
    ((3, 4), (3, 4)),
    ((2, 3), (3,)),
    ((4, 1), (1, 4)),
    ((), (2,)),
    ((1, 3, 1), (2, 1, 4)),
    ((0, 3), (3,)),
    ((3,), 2.5),
]


@op(samples=_PAIRS, promote="common")
def add(xp, a, b):
    """Sum of two tensors, or of a tensor and a number."""
    return a + b, (lambda g: g, lambda g: g)


@op(samples=_PAIRS, promote="common")
def sub(xp, a, b):
    """Difference of two tensors, or of a tensor and a number."""
    return a - b, (lambda g: g, lambda g: -g)


@op(samples=_PAIRS, promote="common")
def mul(xp, a, b):
    """Product, element by element."""
    return a * b, (lambda g: g * b, lambda g: g * a)


@op(samples=[((3, 4), Floats((3, 4), 0.5, 2.0)), ((2, 3), Floats((3,), 0.5, 2.0)), ((3,), 2.5)], promote="float")
def div(xp, a, b):
    """True quotient, element by element; integers give the default floating type."""
    return a / b, (lambda g: g / b, lambda g: -g * a / (b * b))


@op(samples=[((3, 4),), ((),)])
def neg(xp, a):
    """The negative."""
    return -a, lambda g: -g
