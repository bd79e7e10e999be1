"""PyTorch's old constructors by type: ``FloatTensor``, ``LongTensor`` and their like."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.inference import from_data
from ddpflow.autograd.ops.extents import sizes
from ddpflow.autograd.tensor import Tensor
from ddpflow.dtype import as_dtype

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "TensorType",
]


class TensorType:
    """Makes tensors of one dtype: of sizes (uninitialised) or of data; ``isinstance`` tells tensors of that dtype.

    Args:
        name: PyTorch's name.
        dtype: The dtype.

    Example:
        >>> import ddpflow
        >>> ddpflow.LongTensor([1, 2])
        tensor([1, 2])
    """

    def __init__(self, name: str, dtype: str) -> None:
        self.__name__ = name
        self.tensor_dtype = as_dtype(dtype)

    def __call__(self, *args: Any) -> Tensor:
        """A tensor with the given sizes, or with a copy of the given data."""
        dtype = self.tensor_dtype.dtype
        if len(args) == 1 and not hasattr(args[0], "__index__"):
            return wrap(np.array(from_data(args[0], dtype)))
        if len(args) == 1 and isinstance(args[0], (np.ndarray, TensorBase)):
            return wrap(np.array(from_data(args[0], dtype)))
        return wrap(np.zeros(sizes(args) if args else (0,), dtype))

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, TensorBase) and instance.array.dtype == self.tensor_dtype.dtype

    def __repr__(self) -> str:
        return f"ddpflow.{self.__name__}"


FloatTensor = TensorType("FloatTensor", "float32")
DoubleTensor = TensorType("DoubleTensor", "float64")
HalfTensor = TensorType("HalfTensor", "float16")
BFloat16Tensor = TensorType("BFloat16Tensor", "bfloat16")
LongTensor = TensorType("LongTensor", "int64")
IntTensor = TensorType("IntTensor", "int32")
ShortTensor = TensorType("ShortTensor", "int16")
CharTensor = TensorType("CharTensor", "int8")
ByteTensor = TensorType("ByteTensor", "uint8")
BoolTensor = TensorType("BoolTensor", "bool")
