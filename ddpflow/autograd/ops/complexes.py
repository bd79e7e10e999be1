"""Parts of complex numbers; real tensors pass through."""

import math

from ddpflow.autograd.op import Complexes, op
from ddpflow.errors import DtypeError

__all__ = ["angle", "conj", "conj_physical", "imag", "real", "resolve_conj", "resolve_neg"]

_SAMPLES = [((3, 4),), ((),)]


def real(input):
    """The real part; of a real tensor the tensor itself."""
    return real_part(input) if input.array.dtype.kind == "c" else input


@op(samples=[(Complexes((3, 4)),)])
def real_part(xp, input):
    """The real part of complex numbers, as a new tensor."""
    return input.real.copy(), lambda g: g


def imag(input):
    """The imaginary part of a complex tensor.

    Raises:
        DtypeError: For a real tensor.
    """
    if input.array.dtype.kind != "c":
        raise DtypeError(f"imag() takes a complex tensor, not {input.dtype}")
    return imaginary(input)


@op(samples=[(Complexes((3, 4)),)])
def imaginary(xp, input):
    """The imaginary part of complex numbers, as a new tensor."""
    return input.imag.copy(), lambda g: g * 1j


@op(samples=_SAMPLES)
def conj_physical(xp, input):
    """The complex conjugate, as a new tensor."""
    return (xp.conj(input) if input.dtype.kind == "c" else input.copy()), lambda g: xp.conj(g)


conj = conj_physical


def resolve_conj(input):
    """The tensor itself: conjugation is never put off here."""
    return input


def resolve_neg(input):
    """The tensor itself: negation is never put off here."""
    return input


@op(samples=_SAMPLES, promote="float")
def angle(xp, input):
    """The angle of a complex number; of a real one 0, or pi where it is negative."""
    if input.dtype.kind == "c":
        return xp.angle(input), lambda g: g * (1j * input / (xp.abs(input) * xp.abs(input)))
    return xp.where(input != input, input, xp.where(input < 0, math.pi, 0)).astype(
        input.dtype
    ), lambda g: xp.zeros_like(g)
