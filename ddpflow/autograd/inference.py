"""An array of what a user calls data, with PyTorch's dtypes, and the steps that all factories share."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.device import array_module, as_device, current_gpu, gpu_array, lies_on_gpu, move, pinned, required_cupy
from ddpflow.dtype import as_numpy, dtype_of, get_default_dtype, promote_types
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError

if TYPE_CHECKING:
    from ddpflow.autograd.tensor import Tensor

__all__ = ["default_of", "from_data", "module_of", "placed", "shape_of"]

_PYTHON = {bool: np.dtype(np.bool_), int: np.dtype(np.int64)}


def from_data(data: Any, dtype: Any = None) -> Any:
    """The data as an array: the same array where it fits, else a new one.

    Args:
        data: A number, nested lists or tuples of numbers, an array, a tensor, or any object with ``__array__``.
        dtype: The element type wanted; None infers it: Python floats have the default floating type, integers int64.

    Raises:
        DtypeError: When the data are not numbers.
        ValueRangeError: When nested lists differ in length.
    """
    before = silence(QUIET)  # a number beyond the dtype's range becomes inf, as in PyTorch
    try:
        return _converted(data, dtype)
    finally:
        restore(before)


def _converted(data: Any, dtype: Any) -> Any:
    wanted = None if dtype is None else as_numpy(dtype)
    if isinstance(data, TensorBase):
        data = data.array
    if isinstance(data, np.ndarray) or lies_on_gpu(data):
        data = data if isinstance(data, np.ndarray) else gpu_array(data)
        dtype_of(data.dtype)
        if type(data) is not np.ndarray and isinstance(data, np.ndarray):
            data = data.view(np.ndarray)
        if not data.dtype.isnative:
            data = data.astype(data.dtype.newbyteorder("="))
        return data if wanted is None or data.dtype == wanted else data.astype(wanted)
    if not isinstance(data, (list, tuple, range)):
        if isinstance(data, (bool, int, float, complex, np.generic)):
            return np.array(data, _scalar_dtype(type(data), data) if wanted is None else wanted)
        if hasattr(data, "__array__"):
            return from_data(np.asarray(data), dtype)
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or isinstance(data, (str, bytes, dict)):
            raise DtypeError(f"a tensor cannot be made of a {type(data).__name__}: {data!r:.60}")
        data = list(data)
    found = _infer(data)
    plain, module = _plain(data)
    chosen = wanted or found or as_numpy(get_default_dtype())
    try:
        array = module.array(plain, dtype=chosen)
    except (ValueError, TypeError) as error:
        if "inhomogeneous" in str(error) or "sequence" in str(error):
            raise ValueRangeError(f"nested lists of different lengths make no tensor: {error}") from None
        raise DtypeError(f"a tensor cannot be made of these data: {error}") from None
    except OverflowError as error:
        raise DtypeError(f"a number does not fit into {dtype_of(chosen)}: {error}") from None
    return array


def _infer(data: Any) -> Any:
    """The dtype of nested lists: the highest that occurs in them; None when they hold nothing."""
    found = None
    kinds = set(map(type, data))
    for kind in kinds:
        if kind in (list, tuple, range) or not (kind in _PYTHON or kind in (float, complex)):
            each = [_infer_one(item) for item in data if type(item) is kind]
        else:
            each = [_scalar_dtype(kind, None)]
        for dtype in each:
            if dtype is not None:
                found = dtype if found is None else promote_types(found, dtype)
    return found


def _infer_one(item: Any) -> Any:
    if isinstance(item, (list, tuple, range)):
        return _infer(item)
    if hasattr(item, "array") and isinstance(item, TensorBase):
        return item.array.dtype
    if isinstance(item, (np.ndarray, np.generic)) or hasattr(item, "__cuda_array_interface__"):
        return item.dtype
    if hasattr(item, "__array__"):
        return np.asarray(item).dtype
    return _scalar_dtype(type(item), item)


def _scalar_dtype(kind: type, value: Any) -> Any:
    """The dtype of one number; subclasses of Python's numbers count as these."""
    if issubclass(kind, np.generic):
        dtype_of(value.dtype)
        return value.dtype
    if issubclass(kind, bool):
        return _PYTHON[bool]
    if issubclass(kind, int):
        return _PYTHON[int]
    if issubclass(kind, float):
        return as_numpy(get_default_dtype())
    if issubclass(kind, complex):
        return as_numpy(get_default_dtype().to_complex())
    raise DtypeError(f"a tensor holds numbers, not {kind.__name__}")


def _plain(data: Any) -> tuple[Any, Any]:
    """Nested lists with raw arrays in the place of tensors, and the module that makes an array of them."""
    module: Any = np
    plain = []
    for item in data:
        if isinstance(item, TensorBase):
            item = item.array
        elif isinstance(item, (list, tuple)):
            item, inner = _plain(item)
            module = inner if inner is not np else module
        if hasattr(item, "__cuda_array_interface__"):
            module = array_module(item)
        plain.append(item)
    return plain, module


# --- what every factory does ---


def placed(array: Any, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> "Tensor":
    """A tensor around an array that was made for it.

    Raises:
        DeviceError: When the array is on a GPU but ``pin_memory`` is wanted.
    """
    if device is not None:
        array = move(array, as_device(device))
    if pin_memory:
        array = pinned(array)
    made = wrap(array)
    return made.requires_grad_() if requires_grad else made


def module_of(device: Any) -> Any:
    """The array module of a device."""
    if as_device(device).type == "cpu":
        return np
    current_gpu()  # chosen before the first array is made
    return required_cupy()


def shape_of(size: tuple[Any, ...], keyword: Any = None) -> tuple[int, ...]:
    """The shape from ``f(2, 3)``, ``f((2, 3))`` or ``f(size=(2, 3))``."""
    if keyword is not None:
        size = tuple(keyword) if isinstance(keyword, (tuple, list)) else (keyword,)
    elif len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    try:
        shape = tuple([n.__index__() for n in size])
    except AttributeError:
        raise DtypeError(f"a size is made of integers, not {size!r}") from None
    if any(n < 0 for n in shape):
        raise ShapeError(f"a size cannot be negative: {shape}")
    return shape


def default_of(dtype: Any) -> Any:
    """NumPy's dtype for a dtype; the default floating type for None."""
    return as_numpy(get_default_dtype() if dtype is None else dtype)
