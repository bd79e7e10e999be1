"""Softmax, its logarithm, and the functions made of them."""

from ddpflow.autograd.kernels import softmax as kernels
from ddpflow.autograd.op import op

__all__ = ["log_softmax", "softmax", "softmin"]

_SAMPLES = [((3, 4), 1), ((2, 3, 4), 1), ((4,), -1), ((), 0), ((0, 3), 1), ((3, 0), 1)]


@op(samples=_SAMPLES, promote="float", name="softmax", tensors=1)
def _softmax(xp, input, dim=-1):
    """Normalised exponentials along a dimension."""
    y = kernels.softmax(xp, input, dim)
    return y, lambda g: kernels.softmax_backward(xp, g, y, dim)


@op(samples=_SAMPLES, promote="float", name="log_softmax", tensors=1)
def _log_softmax(xp, input, dim=-1):
    """Logarithm of the softmax along a dimension."""
    y = kernels.log_softmax(xp, input, dim)
    return y, lambda g: kernels.log_softmax_backward(xp, g, y, dim)


def _legacy_dim(input, dim):
    """The dimension that PyTorch takes when none is given."""
    return dim if dim is not None else 0 if input.ndim in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """Normalised exponentials along a dimension: ``exp(x) / sum(exp(x))``, shifted by the maximum.

    A row of only -inf gives NaN in that row only, as PyTorch does; where a probability is 0 its gradient is exactly 0.

    Args:
        input: Any shape; half types are accumulated in float32.
        dim: The dimension; None takes 0 for 0-d, 1-d and 3-d inputs, else 1.
        _stacklevel: Taken for compatibility.
        dtype: Convert the input to this type first.
    """
    return _softmax(input if dtype is None else input.to(dtype), _legacy_dim(input, dim))


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """Logarithm of `softmax`, computed without overflow; arguments as there."""
    return _log_softmax(input if dtype is None else input.to(dtype), _legacy_dim(input, dim))


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """`softmax` of the negative."""
    return softmax(-input, _legacy_dim(input, dim), dtype=dtype)
