"""The methods that change a tensor's dtype or device, and make new tensors of its kind."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.inference import from_data, module_of
from ddpflow.autograd.ops.arrange import clone
from ddpflow.autograd.ops.casting import cast, moved
from ddpflow.autograd.ops.extents import sizes
from ddpflow.device import Device, array_module, as_device, device_of, lies_pinned, pinned
from ddpflow.dtype import as_dtype, as_numpy, dtype_of
from ddpflow.errors import DeviceError, DtypeError

__all__ = ["ConversionMethods"]

# PyTorch's names of tensor types, as `Tensor.type` gives and takes them.
_TYPE_NAMES = {
    "float32": "FloatTensor",
    "float64": "DoubleTensor",
    "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor",
    "int8": "CharTensor",
    "int16": "ShortTensor",
    "int32": "IntTensor",
    "int64": "LongTensor",
    "uint8": "ByteTensor",
    "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor",
    "complex128": "ComplexDoubleTensor",
}
_TYPES = {name: dtype for dtype, name in _TYPE_NAMES.items()}


def _address(array: Any) -> int:
    """The address of an array's first element."""
    return int(array.ctypes.data) if isinstance(array, np.ndarray) else int(array.data.ptr)


def _target(value: Any) -> tuple[Any, Any]:
    """What one positional argument of ``to`` means: (device, None) or (None, dtype)."""
    if isinstance(value, (Device, int)) and not isinstance(value, bool):
        return as_device(value), None
    if isinstance(value, str) and value.partition(":")[0] in ("cpu", "cuda"):
        return as_device(value), None
    return None, as_dtype(value)


class ConversionMethods(TensorBase):
    """``to``, its short forms, and ``new_*``."""

    __slots__ = ()

    def to(
        self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
        memory_format: Any = None,
    ) -> Any:
        """The tensor with another dtype and/or on another device; itself when nothing changes.

        Args:
            args: A dtype, a device, both (device first), or a tensor whose dtype and device to take; after them
                ``non_blocking`` and ``copy``.
            device: Where to put it.
            dtype: The element type.
            non_blocking: Between a GPU and pinned memory (`pin_memory`), let the GPU copy while the host goes on. A
                result in main memory is pinned, and there once `ddpflow.cuda.synchronize` or an event says so.
            copy: Copy in any case.
            memory_format: Accepted, ignored.
        """
        for arg in args[:2]:
            if isinstance(arg, TensorBase):
                device, dtype = device_of(arg.array), arg.array.dtype
            elif arg is not None and not isinstance(arg, bool):
                place, kind = _target(arg)
                device, dtype = (device if place is None else place), (dtype if kind is None else kind)
        if args and isinstance(args[-1], bool):
            flags = [arg for arg in args if isinstance(arg, bool)]
            non_blocking, copy = flags[0], copy or len(flags) > 1 and flags[1]
        array = self.array
        result: Any = self
        if dtype is not None:
            wanted = as_numpy(dtype)
            if array.dtype != wanted:
                result = cast(result, wanted)
        if device is not None:
            place = as_device(device)
            here = device_of(array)
            if here.type != place.type or (place.index is not None and here.index != place.index):
                result = moved(result, place, non_blocking)
        return clone(self) if copy and result is self else result

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the tensor's type (``"ddpflow.FloatTensor"``), or the tensor as another one."""
        if dtype is None:
            prefix = "ddpflow.cuda." if device_of(self.array).type == "cuda" else "ddpflow."
            name = dtype_of(self.array.dtype).name
            return prefix + _TYPE_NAMES.get(name, name)
        if isinstance(dtype, str):
            *path, name = dtype.split(".")
            if name not in _TYPES:
                return self.to(dtype=dtype)
            moved_to = "cuda" if "cuda" in path else "cpu" if path else None
            return self.to(dtype=_TYPES[name], device=moved_to, non_blocking=non_blocking)
        return self.to(dtype=getattr(dtype, "tensor_dtype", dtype))

    def type_as(self, other: Any) -> Any:
        """The tensor with the dtype of another."""
        return self.to(dtype=other.dtype)

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """The tensor with another dtype: ``to`` under NumPy's name."""
        return self.to(dtype=dtype, copy=copy)

    def float(self, memory_format: Any = None) -> Any:
        """The tensor as float32."""
        return self.to(dtype="float32")

    def double(self, memory_format: Any = None) -> Any:
        """The tensor as float64."""
        return self.to(dtype="float64")

    def half(self, memory_format: Any = None) -> Any:
        """The tensor as float16."""
        return self.to(dtype="float16")

    def bfloat16(self, memory_format: Any = None) -> Any:
        """The tensor as bfloat16 (needs the package ml_dtypes)."""
        return self.to(dtype="bfloat16")

    def long(self, memory_format: Any = None) -> Any:
        """The tensor as int64."""
        return self.to(dtype="int64")

    def int(self, memory_format: Any = None) -> Any:
        """The tensor as int32."""
        return self.to(dtype="int32")

    def short(self, memory_format: Any = None) -> Any:
        """The tensor as int16."""
        return self.to(dtype="int16")

    def char(self, memory_format: Any = None) -> Any:
        """The tensor as int8."""
        return self.to(dtype="int8")

    def byte(self, memory_format: Any = None) -> Any:
        """The tensor as uint8."""
        return self.to(dtype="uint8")

    def bool(self, memory_format: Any = None) -> Any:
        """The tensor as booleans: what is not zero is true."""
        return self.to(dtype="bool")

    def cfloat(self, memory_format: Any = None) -> Any:
        """The tensor as complex64."""
        return self.to(dtype="complex64")

    def cdouble(self, memory_format: Any = None) -> Any:
        """The tensor as complex128."""
        return self.to(dtype="complex128")

    def cpu(self, memory_format: Any = None) -> Any:
        """The tensor in main memory."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: Any = False, memory_format: Any = None) -> Any:
        """The tensor on a GPU."""
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def pin_memory(self, device: Any = None) -> Any:
        """A copy in pinned memory, from and to which a GPU copies while the host goes on.

        The tensor itself where it is pinned, or no GPU can be used, as then nothing would be gained.

        Raises:
            DeviceError: When the tensor is on a GPU.
        """
        array = pinned(self.array)
        return self if array is self.array else wrap(array)

    # --- what kind it is ---

    is_sparse = is_quantized = is_meta = is_mps = False
    layout = "strided"

    @property
    def is_cpu(self) -> Any:
        """True for a tensor in main memory."""
        return device_of(self.array).type == "cpu"

    def get_device(self) -> Any:
        """The number of the GPU that holds the tensor; -1 in main memory."""
        place = device_of(self.array)
        return -1 if place.type == "cpu" else place.index

    def is_signed(self) -> Any:
        """True when the dtype holds negative numbers."""
        return dtype_of(self.array.dtype).is_signed

    def is_same_size(self, other: Any) -> Any:
        """True when another tensor has the same shape."""
        return self.array.shape == other.array.shape

    def is_pinned(self, device: Any = None) -> Any:
        """True when the tensor lies in pinned main memory."""
        return lies_pinned(self.array)

    def is_shared(self) -> Any:
        """True on a GPU, whose memory processes can share; False in main memory."""
        return device_of(self.array).type == "cuda"

    def share_memory_(self) -> Any:
        """Refused: processes share nothing but what ``ddpflow.comm`` carries between them.

        Raises:
            DeviceError: Always.
        """
        raise DeviceError(
            "tensors cannot be put into shared memory; DistributedDataParallel's buckets are there by themselves"
        )

    def storage_offset(self) -> Any:
        """How many elements of the memory that it is a view of lie before its first."""
        owner = self.array
        while owner.base is not None and hasattr(owner.base, "itemsize"):
            owner = owner.base
        return (_address(self.array) - _address(owner)) // self.array.itemsize

    # --- new tensors of the same kind ---

    def _new(self, make: Any, dtype: Any, device: Any, requires_grad: Any) -> Any:
        xp = array_module(self.array) if device is None else module_of(device)
        made: Any = wrap(make(xp, self.array.dtype if dtype is None else as_numpy(dtype)))
        return made.requires_grad_() if requires_grad else made

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> Any:
        """A tensor with a copy of the data, of the dtype and on the device of this one."""
        return self._new(lambda xp, kind: xp.array(from_data(data, kind)), dtype, device, requires_grad)

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> Any:
        """A tensor of zeros, of the dtype and on the device of this one."""
        return self._new(lambda xp, kind: xp.zeros(sizes(size), kind), dtype, device, requires_grad)

    def new_ones(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> Any:
        """A tensor of ones, of the dtype and on the device of this one."""
        return self._new(lambda xp, kind: xp.ones(sizes(size), kind), dtype, device, requires_grad)

    def new_empty(self, *size: Any, dtype: Any = None, device: Any = None, requires_grad: Any = False) -> Any:
        """A tensor with whatever was in the memory, of the dtype and on the device of this one."""
        return self._new(lambda xp, kind: xp.empty(sizes(size), kind), dtype, device, requires_grad)

    def new_full(
        self, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: Any = False
    ) -> Any:
        """A tensor filled with one number, of the dtype and on the device of this one."""
        value = getattr(fill_value, "array", fill_value)
        return self._new(lambda xp, kind: xp.full(sizes((size,)), value, kind), dtype, device, requires_grad)

    def new(self, *size: Any) -> Any:
        """An uninitialised tensor of the dtype and on the device of this one, or one with a list's numbers."""
        if len(size) == 1 and isinstance(size[0], (list, np.ndarray)):
            return self.new_tensor(size[0])
        if any(not hasattr(n, "__index__") and not isinstance(n, tuple) for n in size):
            raise DtypeError(f"new() takes sizes or a list of numbers, not {size!r}")
        return self.new_empty(*size)
