"""Clipping of gradients, all together by their norm, or each by its size."""

import math
from collections.abc import Iterable
from types import GeneratorType
from typing import Any
from warnings import warn

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.errors import AutogradError

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not tensors and isinstance(parameters, GeneratorType):
        warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    return [tensor._grad for tensor in tensors if tensor._grad is not None]


def _norm_of(g: Any, norm_type: float) -> Any:
    """The norm of one array, raised to the power ``norm_type`` where that is finite."""
    xp = array_module(g)
    if g.size == 0:
        return xp.zeros((), g.real.dtype)
    if g.dtype.itemsize == 2:
        g = g.astype(np.float32)
    if norm_type == 2.0 and g.dtype.kind != "c":
        flat = g.reshape(-1)
        return xp.dot(flat, flat)
    size = xp.abs(g)
    if norm_type == math.inf:
        return size.max()
    if norm_type == -math.inf:
        return size.min()
    return (size != 0).sum() if norm_type == 0 else (size**norm_type).sum()


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of several tensors together, as if they were one vector.

    Args:
        tensors: The tensors.
        norm_type: The norm's degree; ``math.inf`` for the greatest size.
        error_if_nonfinite: Raise when the norm is NaN or infinite.
        foreach: Taken for compatibility.

    Returns:
        A 0-d tensor of the first tensor's dtype.

    Raises:
        AutogradError: When asked to, for a norm that is not finite.
    """
    arrays = [tensor.array for tensor in ([tensors] if isinstance(tensors, Tensor) else tensors)]
    if not arrays:
        return wrap(np.zeros((), np.float32))
    degree = float(norm_type)
    with np.errstate(all="ignore"):
        xp = array_module(arrays[0])
        parts = xp.asarray([_norm_of(g, degree) for g in arrays]).astype(np.float64)
        if degree in (math.inf, -math.inf):
            total = parts.max() if degree > 0 else parts.min()
        else:
            total = parts.sum() if degree == 0 else parts.sum() ** (1.0 / degree)
        if error_if_nonfinite and not math.isfinite(float(total)):
            raise AutogradError(
                f"The total norm of order {degree} for gradients from `parameters` is non-finite, so it cannot be "
                "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                "`error_if_nonfinite=False`"
            )
        return wrap(xp.asarray(total, dtype=arrays[0].real.dtype))


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients in place by ``max_norm / total_norm`` where that is below 1.

    Args:
        parameters: Whose gradients.
        max_norm: The greatest norm that is left alone.
        total_norm: Their norm, as `get_total_norm` gives it.
        foreach: Taken for compatibility.
    """
    total = total_norm.array
    xp = array_module(total)
    with np.errstate(all="ignore"):
        if xp is np:
            factor = float(max_norm) / (float(total) + 1e-6)
            if factor >= 1.0:
                return
        else:  # the host is not to wait for the norm: a factor of 1 changes nothing
            factor = xp.minimum(float(max_norm) / (total + 1e-6), 1.0)
        for grad in _grads(parameters):
            grad.array *= factor
            grad.bump_version()


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of all parameters in place, so that their common norm is at most ``max_norm``.

    Args:
        parameters: The parameters; those without a gradient do not count.
        max_norm: The greatest norm that is left alone.
        norm_type: The norm's degree; ``math.inf`` for the greatest size.
        error_if_nonfinite: Raise when the norm is NaN or infinite, instead of scaling by it.
        foreach: Taken for compatibility.

    Returns:
        The norm before, as a 0-d tensor.

    Raises:
        AutogradError: When asked to, for a norm that is not finite.

    Example:
        >>> import ddpflow
        >>> w = ddpflow.nn.Parameter(ddpflow.ones(2))
        >>> (w * ddpflow.tensor([3.0, 4.0])).sum().backward()
        >>> ddpflow.nn.utils.clip_grad_norm_([w], max_norm=1.0)
        tensor(5.)
        >>> w.grad
        tensor([0.6000, 0.8000])
    """
    if not isinstance(parameters, Tensor):
        kept = list(parameters)
        if not kept and isinstance(parameters, GeneratorType):
            warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
        parameters = kept
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Cut the gradients' elements off at ``-clip_value`` and ``clip_value``, in place.

    Args:
        parameters: Whose gradients.
        clip_value: The bound.
        foreach: Taken for compatibility.
    """
    bound = float(clip_value)
    for grad in _grads(parameters):
        array_module(grad.array).clip(grad.array, -bound, bound, out=grad.array)
        grad.bump_version()
