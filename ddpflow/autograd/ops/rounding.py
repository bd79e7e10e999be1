"""Rounding. The functions are flat between their jumps, so every gradient here is 0 but that of `frac`."""

from ddpflow.autograd.op import Floats, Ints, op
from ddpflow.autograd.ops.dims import narrow

__all__ = ["ceil", "fix", "floor", "frac", "round", "trunc"]

# Away from the jumps: finite differences must not step over one.
_SAMPLES = [(Floats((3, 4), 0.1, 0.4),), (Floats((3,), 1.6, 1.9),), (Floats((), -0.9, -0.6),), (Ints((3,), 5),)]


@op(samples=_SAMPLES)
def floor(xp, x):
    """The greatest integer not above x."""
    return xp.floor(x), lambda g: xp.zeros_like(g)


@op(samples=_SAMPLES)
def ceil(xp, x):
    """The least integer not below x."""
    return xp.ceil(x), lambda g: xp.zeros_like(g)


@op(samples=_SAMPLES)
def trunc(xp, x):
    """The integer next to x towards zero."""
    return xp.trunc(x), lambda g: xp.zeros_like(g)


@op(samples=[*_SAMPLES, (Floats((3,), 0.11, 0.14), 1), (Floats((3,), 110.0, 140.0), -2)])
def round(xp, input, decimals=0):
    """The nearest integer, halves to even; or to that many decimals."""
    if decimals == 0 or input.dtype.kind in "iu":
        return narrow(xp.rint(input), input.dtype), lambda g: xp.zeros_like(g)
    return xp.round(input, decimals), lambda g: xp.zeros_like(g)


@op(samples=[(Floats((3, 4), 0.1, 0.4),), (Floats((3,), -1.9, -1.6),)])
def frac(xp, x):
    """What `trunc` cuts off, with the sign of x."""
    return x - xp.trunc(x), lambda g: g


fix = trunc
