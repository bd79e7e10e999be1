"""Half types in matrix products: in `ddpflow.amp.autocast` blocks, and where the tensors themselves are halves.

NumPy has no fast products of half types, and adds them up in the half type. So on the CPU such a product is computed in
float32 and rounded once, at the end; on a GPU the operands are cast and the GPU's own half products are used. Norms,
softmax and losses of halves are computed in float32 on both.
"""

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpflow.autograd.base import TensorBase

if TYPE_CHECKING:
    from ddpflow.autograd.op import Op

__all__ = ["autocast_mode", "autocasting", "in_float32", "in_half"]


class _AutocastMode(threading.local):
    """NumPy's dtype of the half type in force for each kind of device; None outside of autocast blocks."""

    cpu: Any = None
    cuda: Any = None


autocast_mode = _AutocastMode()

# Computed in the half type, and given in it.
_PRODUCTS = frozenset(["matmul", "linear", "convolution", "attention", "lstm_sequence", "gru_sequence", "rnn_sequence"])
# Given in float32, because halves would lose what matters (PyTorch's list for GPUs, as far as it is about layers; batch
# norm as well, whose statistics would be rounded).
_PRECISE = frozenset(
    """softmax log_softmax cross_entropy pick_class mse_loss smooth_difference bernoulli_nll logit_nll layer_norm
    rms_norm batch_norm_training batch_norm_inference norm2 norm_p""".split()
)
_FLOAT32 = np.dtype(np.float32)


def autocasting(definition: "Op", call: Callable[..., Any]) -> Callable[..., Any]:
    """The caller of an operation, which obeys autocast blocks where the operation is one of those they are about."""
    if definition.name in _PRODUCTS:
        return in_half(call)
    return in_float32(call) if definition.name in _PRECISE else call


def _is_half(dtype: Any) -> bool:
    return dtype.itemsize == 2 and dtype.kind in "fV"


def in_half(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result is a half type in autocast blocks; also for functions that combine operations."""

    @functools.wraps(call)
    def caster(*args: Any, **kwargs: Any) -> Any:
        array = _first(args, kwargs)
        on_cpu = array.__class__ is np.ndarray
        if array is None or (on_cpu and array.dtype is _FLOAT32 and autocast_mode.cpu is None):
            return call(*args, **kwargs)
        half = autocast_mode.cpu if on_cpu else autocast_mode.cuda
        if half is None:
            if not on_cpu or not _is_half(array.dtype) or not _same_dtype(args, kwargs, array.dtype):
                return call(*args, **kwargs)
            half = array.dtype
        elif array.dtype != _FLOAT32 and not _is_half(array.dtype):
            return call(*args, **kwargs)
        result = _called(call, _FLOAT32 if on_cpu else half, args, kwargs)
        if result.__class__ is tuple:
            return tuple([_cast(part, half) for part in result])
        return _cast(result, half)

    return caster


def in_float32(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives float32 in autocast blocks; also for functions that combine operations.

    Outside of them, halves are computed in float32 and rounded once.
    """

    @functools.wraps(call)
    def caster(*args: Any, **kwargs: Any) -> Any:
        array = _first(args, kwargs)
        if array is None:
            return call(*args, **kwargs)
        on_cpu = array.__class__ is np.ndarray
        if (autocast_mode.cpu if on_cpu else autocast_mode.cuda) is not None:
            return _called(call, _FLOAT32, args, kwargs)
        if array.dtype.itemsize != 2 or not _is_half(array.dtype):
            return call(*args, **kwargs)
        if not _same_dtype(args, kwargs, array.dtype):
            return call(*args, **kwargs)
        result = _called(call, _FLOAT32, args, kwargs)
        if result.__class__ is tuple:
            return tuple([_cast(part, array.dtype) for part in result])
        return _cast(result, array.dtype)

    return caster


def _first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The array of the first argument that is a tensor."""
    array = getattr(args[0], "array", None) if args else None
    if array is None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, TensorBase):
                return value.array
    return array


def _same_dtype(args: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> bool:
    """Whether all floating tensors have that dtype: what differs is the operation's to refuse."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, TensorBase)]
    return all(x.array.dtype == dtype or x.array.dtype.kind in "iub" for x in tensors)


def _called(call: Callable[..., Any], dtype: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation on tensors cast to a dtype, apart from those that are neither halves nor float32."""
    return call(*[_cast(x, dtype) for x in args], **{name: _cast(x, dtype) for name, x in kwargs.items()})


def _cast(value: Any, dtype: Any) -> Any:
    if not isinstance(value, TensorBase) or value.array.dtype == dtype:
        return value
    held = value.array.dtype
    return TensorBase.namespace.astype(value, dtype) if held == _FLOAT32 or _is_half(held) else value
