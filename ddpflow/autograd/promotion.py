"""Operands of mixed kinds: Python numbers beside tensors, and tensors of different dtypes, by PyTorch's rules."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.device import array_module
from ddpflow.dtype import as_numpy, dtype_of, get_default_dtype, kind_rank, promote_types
from ddpflow.errors import DtypeError, MixedDtypeError

__all__ = ["common", "common_list", "operands", "result_dtype"]

_PLAIN = (float, int, bool, type(None))
_SCALAR_RANK = {bool: 0, int: 1, float: 2, complex: 3}


def result_dtype(values: Any) -> Any:
    """The dtype that PyTorch gives to arrays and Python numbers together.

    Arrays with dimensions decide before 0-d arrays, and those before Python numbers, within the same category (bool,
    integer, floating, complex). Source: PyTorch's type promotion documentation.
    """
    best: list[Any] = [None, None]
    scalar_rank = -1
    for value in values:
        if isinstance(value, (bool, int, float, complex)):
            scalar_rank = max(scalar_rank, _SCALAR_RANK[type(value)])
        else:
            level = 0 if value.ndim else 1
            best[level] = value.dtype if best[level] is None else promote_types(best[level], value.dtype)
    dims, zero = best
    if dims is None:
        found = zero
    elif zero is None or kind_rank(zero) <= kind_rank(dims):
        found = dims
    else:
        found = promote_types(dims, zero)
    if scalar_rank > (-1 if found is None else kind_rank(found)):
        scalar = as_numpy((bool, int, float, complex)[scalar_rank])
        if scalar_rank == 3 and found is not None and found == np.float64:
            return np.dtype(np.complex128)
        return scalar
    return found


def common(definition: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Both arrays cast to their common dtype (a floating one for ops such as division).

    Raises:
        MixedDtypeError: When the dtypes differ in an operation that casts none.
    """
    if definition.promote == "same":
        if x.dtype != y.dtype:
            raise MixedDtypeError(
                f"{definition.name}() takes two tensors of one dtype, but got {dtype_of(x.dtype)} and "
                f"{dtype_of(y.dtype)}: convert one with to()"
            )
        return x, y
    dtype = x.dtype if x.dtype == y.dtype else result_dtype((x, y))
    if definition.promote == "float" and kind_rank(dtype) < 2:
        dtype = as_numpy(get_default_dtype())
    return (x if x.dtype == dtype else x.astype(dtype)), (y if y.dtype == dtype else y.astype(dtype))


def operands(definition: Any, a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """The two operands as tensors (None for a Python number) and as arrays or numbers, ready for the rule.

    Raises:
        DtypeError: When an operand is neither a tensor, nor an array, nor a number.
    """
    if (b.__class__ is float or b.__class__ is int) and definition.promote != "same":  # by far the most frequent
        x = getattr(a, "array", None)
        if x is not None and x.dtype.kind == "f":
            return a, None, x, b
    a, b = _lift(definition, a, 0), _lift(definition, b, 1)
    a_is, b_is = isinstance(a, TensorBase), isinstance(b, TensorBase)
    if a_is and b_is:
        x, y = common(definition, a.array, b.array)
        return a, b, x, y
    if not (a_is or b_is) or definition.promote == "same":
        wanted = "two tensors" if definition.promote == "same" else "at least one tensor"
        raise DtypeError(f"{definition.name}() takes {wanted}, not {type(a).__name__} and {type(b).__name__}")
    array, number = (a.array, b) if a_is else (b.array, a)
    rank = kind_rank(array.dtype)
    if _SCALAR_RANK[type(number)] > rank or (rank < 2 and definition.promote == "float"):
        dtype = result_dtype((array, number))
        if kind_rank(dtype) < 2 and definition.promote == "float":
            dtype = as_numpy(get_default_dtype())
        array = array.astype(dtype)
    if number.__class__ is int and array.dtype.kind in "iu" and definition.differentiable and not 0 <= number <= 127:
        number = _wrapped(number, array.dtype)
    if array.dtype.kind == "V":  # NumPy widens bfloat16 beside a Python number
        constant = wrap(array_module(array).full((), number, array.dtype))
        return (a, constant, array, constant.array) if a_is else (constant, b, constant.array, array)
    return (a, None, array, number) if a_is else (None, b, number, array)


def _wrapped(number: int, dtype: Any) -> int:
    """A Python integer as the dtype holds it: cut to its bits, as in PyTorch."""
    bits = int(dtype.itemsize) * 8
    cut = number & ((1 << bits) - 1)
    return cut - (1 << bits) if dtype.kind == "i" and cut >> (bits - 1) else cut


def common_list(definition: Any, args: tuple[Any, ...], arrays: list[Any]) -> list[Any]:
    """The arrays of all tensor arguments cast to their common dtype; Python numbers among the tensors take part."""
    count = len(args) if definition.variadic else definition.tensor_count
    first = getattr(arrays[0], "dtype", None)
    if first is not None and first.kind == "f":
        for x in arrays[1:count]:
            if getattr(x, "dtype", None) is not first and x.__class__ not in _PLAIN:
                break
        else:
            return arrays
    for i, x in enumerate(arrays[:count]):
        if isinstance(x, np.generic):  # counts as a Python number, as in `operands`
            arrays[i] = x.item()
    chosen = [x for x in arrays[:count] if hasattr(x, "dtype") or isinstance(x, (bool, int, float, complex))]
    dtype = result_dtype(chosen)
    if definition.promote == "float" and kind_rank(dtype) < 2:
        dtype = as_numpy(get_default_dtype())
    if dtype.kind in "iu" and definition.differentiable:
        arrays[:count] = [_wrapped(x, dtype) if x.__class__ is int else x for x in arrays[:count]]
    done = [x.astype(dtype) if hasattr(x, "dtype") and x.dtype != dtype else x for x in arrays[:count]]
    return done + arrays[count:]


def _lift(definition: Any, value: Any, position: int) -> Any:
    """A tensor, or a Python number; NumPy scalars count as Python numbers, arrays become constant tensors."""
    if isinstance(value, np.generic):  # first: NumPy's float64 is a Python float by inheritance
        return value.item()
    if isinstance(value, (TensorBase, bool, int, float, complex)):
        return value
    if isinstance(value, np.ndarray):
        return wrap(value)
    raise DtypeError(
        f"{definition.name}(): argument {position + 1} is a {type(value).__name__}; it must be a tensor or a number"
    )
