"""Names that PyTorch scripts call and that have little or nothing to do here, and questions about tensors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.promotion import result_dtype
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import use_precision
from ddpflow.dtype import DType, as_dtype, as_numpy, dtype_of, kind_rank
from ddpflow.dtype import promote_types as _promote
from ddpflow.precision import chosen_precision

__all__ = [
    "are_deterministic_algorithms_enabled",
    "can_cast",
    "compile",
    "get_float32_matmul_precision",
    "is_complex",
    "is_floating_point",
    "is_nonzero",
    "is_tensor",
    "numel",
    "promote_types",
    "result_type",
    "set_float32_matmul_precision",
    "typename",
    "use_deterministic_algorithms",
]


def compile(model: Any = None, **options: Any) -> Any:
    """The module or function itself: there is nothing to compile to. Options are accepted and ignored."""
    if model is not None:
        return model

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    return decorate


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how exactly float32 matrices are multiplied on GPUs: ``"highest"`` in float32, else in TF32.

    As in PyTorch it is another name for ``backends.cuda.matmul.allow_tf32``. On the CPU it is always float32.

    Raises:
        ValueRangeError: When it is none of highest, high, medium.
    """
    use_precision(precision)


def get_float32_matmul_precision() -> str:
    """``"highest"`` (float32), or ``"high"`` or ``"medium"`` (TF32 on GPUs), as was last asked for."""
    return chosen_precision()


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted, and always so: on the CPU the same program gives the same bits on every run."""


def are_deterministic_algorithms_enabled() -> bool:
    """True: on the CPU the same program gives the same bits on every run."""
    return True


def is_tensor(obj: Any) -> bool:
    """True for a tensor."""
    return isinstance(obj, TensorBase)


def is_floating_point(input: Any) -> bool:
    """True when a tensor's dtype is a real floating type."""
    return dtype_of(input.array.dtype).is_floating_point


def is_complex(input: Any) -> bool:
    """True when a tensor's dtype is a complex type."""
    return dtype_of(input.array.dtype).is_complex


def is_nonzero(input: Any) -> bool:
    """The truth of a tensor with one element."""
    return bool(input)


def numel(input: Any) -> int:
    """The number of elements."""
    return math.prod(input.array.shape)


def typename(obj: Any) -> str:
    """The name of a tensor's type, such as ``ddpflow.FloatTensor``; of anything else its class."""
    return str(obj.type()) if isinstance(obj, Tensor) else f"{type(obj).__module__}.{type(obj).__qualname__}"


def promote_types(type1: Any, type2: Any) -> DType:
    """The smallest dtype that holds both, by PyTorch's rules."""
    return dtype_of(_promote(as_numpy(type1), as_numpy(type2)))


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of an operation on two tensors or numbers."""
    return dtype_of(np.dtype(result_dtype([getattr(x, "array", x) for x in (tensor1, tensor2)])))


def can_cast(from_: Any, to: Any) -> bool:
    """True when casting keeps the category: integers do not become booleans, floats do not become integers."""
    source, target = as_dtype(from_), as_dtype(to)
    if source.is_signed and target.name.startswith("u"):
        return False
    return kind_rank(source.dtype) <= kind_rank(target.dtype)
