"""Making tensors: from data, filled, and counted.

``dtype`` is taken from the data, or is the default floating type, as in PyTorch. ``layout`` and ``memory_format``
are accepted and mean nothing here; ``pin_memory`` puts tensors into pinned main memory where a GPU can be used.
"""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.inference import default_of, from_data, module_of, placed, shape_of
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import gpu_array, lies_on_gpu
from ddpflow.dtype import as_numpy, dtype_of, get_default_dtype
from ddpflow.errors import DtypeError, ShapeError

__all__ = [
    "arange",
    "as_tensor",
    "asarray",
    "complex",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "polar",
    "scalar_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
]


# --- from data ---


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with a copy of numbers, nested lists of them, an array or a tensor.

    Args:
        data: What to copy. Python floats give the default floating type, integers int64; arrays keep their dtype.
        dtype: Another element type.
        device: Where to put it; the default is where the data are.
        requires_grad: Collect a gradient in it.
        pin_memory: Put it into pinned main memory, where a GPU can be used (`Tensor.pin_memory`).

    Raises:
        DtypeError: When the data are not numbers.
        ValueRangeError: When nested lists differ in length.

    Example:
        >>> import ddpflow
        >>> ddpflow.tensor([[1, 2], [3, 4]])
        tensor([[1, 2],
                [3, 4]])
    """
    array = from_data(data, dtype)
    shared = array is getattr(data, "array", data) or getattr(array, "base", None) is not None
    if shared or (type(array) is not np.ndarray and lies_on_gpu(data)):
        array = array.copy()
    return placed(array, device, requires_grad, pin_memory)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """The data as a tensor; a tensor or an array that already fits is not copied."""
    if isinstance(data, TensorBase):
        return data.to(device=device, dtype=dtype)  # type: ignore[attr-defined, no-any-return]
    return placed(from_data(data, dtype), device)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """The data as a tensor, sharing memory where it can; ``copy=True`` never shares."""
    made = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    return made.requires_grad_() if requires_grad else made


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor on the same memory as a NumPy array.

    Raises:
        DtypeError: When it is not a NumPy array, or holds no numbers.
    """
    if not isinstance(ndarray, np.ndarray):
        raise DtypeError(f"from_numpy() takes a NumPy array, not {type(ndarray).__name__}")
    dtype_of(ndarray.dtype)
    if not ndarray.dtype.isnative:
        raise DtypeError(f"from_numpy() takes native byte order, not {ndarray.dtype.str}; use array.astype('=')")
    return wrap(ndarray if type(ndarray) is np.ndarray else ndarray.view(np.ndarray))


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor on the same memory as any object with ``__dlpack__``, such as a PyTorch, JAX or CuPy array.

    On a GPU the current stream waits for what wrote the memory, and the host for nothing. The other way it is the same:
    ``torch.from_dlpack``, ``jax.dlpack.from_dlpack`` and ``cupy.from_dlpack`` take tensors.

    Raises:
        DtypeError: When tensors have no such element type.
    """
    array = gpu_array(ext_tensor) if lies_on_gpu(ext_tensor) else np.from_dlpack(ext_tensor)
    dtype_of(array.dtype)
    return wrap(array)


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor of one dimension on the memory of a bytes-like object."""
    return placed(np.frombuffer(buffer, as_numpy(dtype), count, offset), None, requires_grad)


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A 0-d tensor with one number, of the default floating type."""
    return placed(np.array(s, default_of(dtype)), device, requires_grad)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers of their real and imaginary parts, which have one floating dtype."""
    if real.dtype != imag.dtype or not real.dtype.is_floating_point:
        raise ShapeError(f"complex() takes two tensors of one floating dtype, not {real.dtype} and {imag.dtype}")
    return real + imag * 1j  # type: ignore[no-any-return]


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of their absolute values and angles in radians, which have one floating dtype."""
    if abs.dtype != angle.dtype or not abs.dtype.is_floating_point:
        raise ShapeError(f"polar() takes two tensors of one floating dtype, not {abs.dtype} and {angle.dtype}")
    return complex(abs * angle.cos(), abs * angle.sin())


# --- filled ---


def zeros(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of zeros."""
    return placed(module_of(device).zeros(shape_of(size), default_of(dtype)), device, requires_grad, pin_memory)


def ones(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of ones."""
    return placed(module_of(device).ones(shape_of(size), default_of(dtype)), device, requires_grad, pin_memory)


def empty(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor whose values are whatever was in the memory."""
    return placed(module_of(device).empty(shape_of(size), default_of(dtype)), device, requires_grad, pin_memory)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor filled with one number, of that number's type (floats: the default floating type)."""
    value = getattr(fill_value, "array", fill_value)
    chosen = as_numpy(dtype) if dtype is not None else from_data(value, None).dtype
    return placed(module_of(device).full(shape_of((size,)), value, chosen), device, requires_grad, pin_memory)


def _like(input: Any, dtype: Any, device: Any) -> tuple[Any, Any, Any]:
    """The shape, NumPy dtype and device for a tensor like another."""
    array = input.array
    return array.shape, array.dtype if dtype is None else as_numpy(dtype), input.device if device is None else device


def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    memory_format: Any = None,
) -> Tensor:
    """Zeros in the shape, dtype and device of a tensor."""
    shape, chosen, place = _like(input, dtype, device)
    return placed(module_of(place).zeros(shape, chosen), place, requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    memory_format: Any = None,
) -> Tensor:
    """Ones in the shape, dtype and device of a tensor."""
    shape, chosen, place = _like(input, dtype, device)
    return placed(module_of(place).ones(shape, chosen), place, requires_grad)


def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    memory_format: Any = None,
) -> Tensor:
    """Whatever was in the memory, in the shape, dtype and device of a tensor."""
    shape, chosen, place = _like(input, dtype, device)
    return placed(module_of(place).empty(shape, chosen), place, requires_grad)


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    memory_format: Any = None,
) -> Tensor:
    """One number in the shape, dtype and device of a tensor."""
    shape, chosen, place = _like(input, dtype, device)
    return placed(module_of(place).full(shape, getattr(fill_value, "array", fill_value), chosen), place, requires_grad)


def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones on the diagonal of an (n, m) matrix of zeros."""
    rows, columns = shape_of((n, n if m is None else m))
    return placed(module_of(device).eye(rows, columns, dtype=default_of(dtype)), device, requires_grad)


# --- counted ---


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Numbers from ``start`` up to, not including, ``end``; int64 when all three are integers.

    Raises:
        ShapeError: When the step is zero, or leads away from the end.
    """
    first, last, stride = _number(start), _number(end), _number(step)
    if last is None:
        first, last = 0, first
    if stride == 0:
        raise ShapeError("arange() needs a step that is not zero")
    if (last - first) * stride < 0:
        raise ShapeError(f"arange() cannot go from {first} to {last} in steps of {stride}")
    whole = all(isinstance(value, int) for value in (first, last, stride))
    chosen = as_numpy(int if whole else get_default_dtype()) if dtype is None else as_numpy(dtype)
    if chosen.kind in "iu" and not whole:  # PyTorch cuts the numbers off first, and for int64 also what it counts with
        count = None if chosen.itemsize == 8 else int(np.ceil((last - first) / stride))
        first, last, stride, whole = int(first), int(last), int(stride), True
        last = last if count is None else first + count * stride
    xp = module_of(device)
    if whole:
        return placed(xp.arange(first, last, stride).astype(chosen, copy=False), device, requires_grad, pin_memory)
    count = int(np.ceil((last - first) / stride))
    values = first + xp.arange(count, dtype=np.float64) * stride
    return placed(values.astype(chosen, copy=False), device, requires_grad, pin_memory)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """``steps`` numbers at equal distances from ``start`` to ``end``, both included."""
    first, last = _number(start), _number(end)
    if steps < 0:
        raise ShapeError(f"linspace() takes a number of steps >= 0, not {steps}")
    if dtype is None and (np.iscomplexobj(first) or np.iscomplexobj(last)):
        dtype = get_default_dtype().to_complex()
    chosen = default_of(dtype)
    if chosen.kind in "iu":
        first, last = int(first), int(last)
    return placed(module_of(device).linspace(first, last, steps).astype(chosen), device, requires_grad)


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """``base`` to the powers that `linspace` gives."""
    if steps < 0:
        raise ShapeError(f"logspace() takes a number of steps >= 0, not {steps}")
    values = base ** module_of(device).linspace(_number(start), _number(end), steps)
    return placed(values.astype(default_of(dtype)), device, requires_grad)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int, device: Any = None) -> Tensor:
    """The indices of the lower triangle of a (row, col) matrix, as a (2, n) tensor."""
    return placed(np.stack(np.tril_indices(row, offset, col)).astype(as_numpy(dtype)), device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int, device: Any = None) -> Tensor:
    """The indices of the upper triangle of a (row, col) matrix, as a (2, n) tensor."""
    return placed(np.stack(np.triu_indices(row, offset, col)).astype(as_numpy(dtype)), device)
