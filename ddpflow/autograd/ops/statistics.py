"""Variance, standard deviation and norms."""

import math
import warnings

from ddpflow.autograd.kernels.spread import spread
from ddpflow.autograd.op import op
from ddpflow.autograd.ops.dims import axes_of, is_half, kept_shape, narrow, need_floating, need_real, wide
from ddpflow.autograd.ops.reduce import amax, amin, mean, sum
from ddpflow.errors import ShapeError

__all__ = ["dist", "norm", "std", "std_mean", "var", "var_mean", "vector_norm"]

_SAMPLES = [
    ((3, 4),),
    ((3, 4), 1),
    ((2, 3, 4), [0, -1], 0, True),
    ((4,), 0, 2),
    ((3, 4), [1], 0.5),
]


def _spread_of(xp, input, dim, correction, keepdim, name):
    """The variance, in float32 for halves, with the axes and the factor of the gradient."""
    need_floating(name, input)
    need_real(name, input)
    axes = axes_of(dim, input.ndim)
    count = math.prod([input.shape[axis] for axis in axes])
    if count <= correction:
        warnings.warn(
            f"{name}() of {count} element(s) with correction {correction} has no degrees of freedom: it is NaN or inf",
            UserWarning,
            stacklevel=5,
        )
        scale = math.inf if count else math.nan
    else:
        scale = 1.0 / (count - correction)
    a = wide(xp, input)
    deviations = a - a.sum(axes, keepdims=True) / count if count else a
    return (deviations * deviations).sum(axes, keepdims=keepdim) * scale, axes, scale, count


def _mean(input, axes, count):
    """The mean, kept; NumPy's own is right for halves and slow for the others."""
    return input.mean(axes, keepdims=True) if is_half(input.dtype) else input.sum(axes, keepdims=True) / count


@op(samples=_SAMPLES, name="var")
def variance(xp, input, dim=None, correction=1, keepdim=False):
    """Variance over the given dimensions, or all: the sum of squared deviations over ``n - correction``."""
    out, axes, scale, count = _spread_of(xp, input, dim, correction, keepdim, "var")
    kept = kept_shape(input.shape, axes)
    return narrow(out, input.dtype), lambda g: g.reshape(kept) * (2 * scale) * (input - _mean(input, axes, count))


@op(samples=_SAMPLES, name="std")
def deviation(xp, input, dim=None, correction=1, keepdim=False):
    """Standard deviation over the given dimensions, or all; its gradient where all elements are equal is 0."""
    out, axes, scale, count = _spread_of(xp, input, dim, correction, keepdim, "std")
    kept = kept_shape(input.shape, axes)
    out = xp.asarray(narrow(xp.sqrt(out), input.dtype))

    def vjp(g):
        y = out.reshape(kept)
        factor = g.reshape(kept) * scale / xp.where(y == 0, 1, y)
        return factor * (input - _mean(input, axes, count))

    return out, vjp


def _options(dim, unbiased, correction):
    """PyTorch's overloads: ``unbiased`` may stand in the place of ``dim``, and ``correction`` replaces it."""
    if dim.__class__ is bool:
        dim, unbiased = None, dim
    if correction is not None:
        return dim, correction
    return dim, 1 if unbiased is None or unbiased else 0


def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=False):
    """Variance over the given dimensions, or all.

    Args:
        input: A floating tensor.
        dim: Dimensions; None for all.
        unbiased: False for ``correction=0``.
        keepdim: Keep the dimensions with length 1.
        correction: What is taken off the number of elements in the divisor; 1 by default (Bessel's correction).
        axis: NumPy's name for ``dim``.
        keepdims: NumPy's name for ``keepdim``.

    Returns:
        The variance. Without degrees of freedom (one element and correction 1) it is NaN, with a warning.
    """
    dim, correction = _options(dim if axis is None else axis, unbiased, correction)
    return variance(input, dim, correction, keepdim or keepdims)


def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None, axis=None, keepdims=False):
    """Standard deviation over the given dimensions, or all; arguments as for `var`."""
    dim, correction = _options(dim if axis is None else axis, unbiased, correction)
    return deviation(input, dim, correction, keepdim or keepdims)


def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The variance and the mean, as a tuple; arguments as for `var`."""
    dim, correction = _options(dim, unbiased, correction)
    return variance(input, dim, correction, keepdim), mean(input, dim, keepdim)


def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The standard deviation and the mean, as a tuple; arguments as for `var`."""
    dim, correction = _options(dim, unbiased, correction)
    return deviation(input, dim, correction, keepdim), mean(input, dim, keepdim)


@op(samples=[((3, 4),), ((3, 4), 1), ((2, 3, 4), [0, -1], True), ((),)])
def norm2(xp, input, dim=None, keepdim=False):
    """The Euclidean norm over the given dimensions, or all; its gradient at 0 is 0."""
    axes = axes_of(dim, input.ndim)
    kept = kept_shape(input.shape, axes)
    a = wide(xp, input)
    out = xp.asarray(narrow(xp.sqrt((a * a).sum(axes, keepdims=keepdim)), input.dtype))

    def vjp(g):
        y = out.reshape(kept)
        return g.reshape(kept) / xp.where(y == 0, 1, y) * input

    return out, vjp


@op(samples=[((3, 4),), ((3, 4), 1), ((2, 3, 4), [0, -1], True)])
def norm0(xp, input, dim=None, keepdim=False):
    """How many elements are not 0, in the input's dtype; its gradient is 0."""
    axes, shape = axes_of(dim, input.ndim), input.shape
    kept = kept_shape(shape, axes)
    count = (input != 0).sum(axes, keepdims=keepdim)
    return count.astype(input.dtype), lambda g: spread(xp, xp.zeros_like(g), kept, shape)


@op(samples=[((3, 4), 3.0), ((3, 4), 1.5, 1), ((2, 3, 4), 4, [0, -1], True), ((3, 4), -1.0, 0)], tensors=1)
def norm_p(xp, input, p, dim=None, keepdim=False):
    """``sum(|x| ** p) ** (1 / p)``; its gradient where the norm or an element is 0 is 0."""
    axes = axes_of(dim, input.ndim)
    kept = kept_shape(input.shape, axes)
    a = wide(xp, input)
    out = xp.asarray(narrow((xp.abs(a) ** p).sum(axes, keepdims=keepdim) ** (1.0 / p), input.dtype))

    def vjp(g):
        y = out.reshape(kept)
        zero = (input == 0) | (y == 0)
        ratio = xp.where(zero, 1, xp.abs(input)) / xp.where(y == 0, 1, y)
        return xp.where(zero, 0, g.reshape(kept) * xp.sign(input) * ratio ** (p - 1))

    return out, vjp


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The norm of the vectors along the given dimensions (of all elements when None).

    Args:
        x: A floating tensor.
        ord: Any number; ``inf`` and ``-inf`` give the greatest and least magnitude, 0 counts the non-zero elements.
        dim: Dimensions that hold the vectors.
        keepdim: Keep them with length 1.
        dtype: Convert to this dtype first.

    Returns:
        The norms. Gradients where a norm is 0 are 0.
    """
    if dtype is not None:
        x = x.to(dtype)
    need_floating("vector_norm", x.array)
    if x.array.dtype.kind == "c":
        x = abs(x)
    if ord in (2, "fro"):
        return norm2(x, dim, keepdim)
    if ord == 1:
        return sum(abs(x), dim, keepdim)
    if ord == math.inf:
        return amax(abs(x), dim, keepdim)
    if ord == -math.inf:
        return amin(abs(x), dim, keepdim)
    if ord == 0:
        return norm0(x, dim, keepdim)
    return norm_p(x, ord, dim, keepdim)


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """The p-norm of all elements or along dimensions (PyTorch's older function; see also ``linalg.norm``).

    Raises:
        ShapeError: For the nuclear norm of anything but a matrix.
    """
    if p == "nuc":
        if dim is None and input.array.ndim != 2:
            raise ShapeError(
                f"the nuclear norm is one of a matrix, not of a tensor of shape {tuple(input.array.shape)}"
            )
        return input.svd()[1].sum(-1)
    return vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


def dist(input, other, p=2):
    """The p-norm of ``input - other``."""
    return vector_norm(input - other, p)
