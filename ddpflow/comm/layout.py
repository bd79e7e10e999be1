"""Between users' arrays and the flat contiguous ones that transports take: checks, views, copies in and out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.comm.reduce import ReduceOp, check_reducible
from ddpflow.comm.signature import dtype_code, is_supported, supported_names
from ddpflow.device import array_module, unwrap
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError

__all__ = ["as_array", "check_op", "check_output", "check_same", "flat_input", "flat_output", "nothing", "overlaps"]

_known_pairs: set[tuple[np.dtype[Any], int]] = set()


def nothing() -> None:
    """The last step of an operation that needs none."""


def as_array(x: Any, what: str) -> Any:
    """Returns the raw array of a Tensor or array whose dtype can be communicated.

    Raises:
        TypeError: ``x`` is neither.
        DtypeError: Its dtype cannot be communicated.
    """
    array = x if type(x) is np.ndarray else unwrap(x)
    if not isinstance(array, np.ndarray) and array_module(array) is np:
        raise TypeError(f"{what} takes a Tensor or an array, not {type(x).__name__}")
    if not is_supported(array.dtype):
        order = "" if array.dtype.isnative else " in non-native byte order"
        raise DtypeError(f"{what} cannot carry dtype {array.dtype.name}{order}; supported: {supported_names()}")
    return array


def check_op(dtype: np.dtype[Any], op: ReduceOp, what: str) -> None:
    """Checks that the reduce op has a meaning for the dtype; remembers what it has allowed.

    Raises:
        TypeError: ``op`` is not a ReduceOp.
        DtypeError: It has none.
    """
    if (dtype, op) in _known_pairs:
        return
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{what} takes a ReduceOp such as ReduceOp.SUM, not {op!r}")
    try:
        dtype_code(dtype)
        check_reducible(dtype, op)
    except DtypeError as error:
        raise DtypeError(f"{what}: {error}") from None
    _known_pairs.add((dtype, op))


def overlaps(array: Any) -> bool:
    """Whether several indices of ``array`` are surely the same memory: stride 0, or more bytes than it spans."""
    if array.size == 0:
        return False
    span = 1
    for n, stride in zip(array.shape, array.strides, strict=True):
        if stride == 0 and n > 1:
            return True
        span += (n - 1) * abs(stride)
    return bool(span + array.itemsize - 1 < array.nbytes)


def check_output(array: Any, what: str) -> None:
    """Checks that results can be written into ``array``.

    Raises:
        ValueRangeError: It is read-only, or several of its elements share memory.
    """
    if overlaps(array):
        raise ValueRangeError(
            f"{what} cannot write into an array whose elements share memory (shape {tuple(array.shape)}, strides "
            f"{tuple(array.strides)}: an expanded view?); make a copy first"
        )
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise ValueRangeError(f"{what} cannot write into a read-only array; make a copy first")


def flat_input(array: Any) -> Any:
    """Returns the elements in C order as a flat contiguous array: a view where that is possible."""
    flags = array.flags
    if not flags.c_contiguous or not getattr(flags, "aligned", True):
        array = array.copy(order="C") if isinstance(array, np.ndarray) else array_module(array).ascontiguousarray(array)
    return array.reshape(-1)


def flat_output(array: Any, what: str, load: bool = False) -> tuple[Any, Callable[[], None]]:
    """Returns a flat contiguous array to write to, and the step that then brings the result into ``array``.

    Args:
        array: Where the result shall be.
        what: Operation for errors.
        load: Whether the flat array must hold the content of ``array``, for operations that work in place.

    Raises:
        ValueRangeError: See ``check_output``.
    """
    check_output(array, what)
    flags = array.flags
    if flags.c_contiguous and getattr(flags, "aligned", True):
        return array.reshape(-1), nothing
    xp = array_module(array)
    flat = flat_input(array) if load else xp.empty(array.size, array.dtype)

    def copy_back() -> None:
        array[...] = flat.reshape(array.shape)

    return flat, copy_back


def check_same(arrays: list[Any], like: Any, count: int, what: str) -> None:
    """Checks that a list has one array per rank, all of one shape and dtype.

    Raises:
        ShapeError: The number of arrays, or a shape, is wrong.
        DtypeError: A dtype is.
    """
    if len(arrays) != count:
        raise ShapeError(f"{what} needs one array per rank, {count} in all, not {len(arrays)}")
    for r, array in enumerate(arrays):
        if array.dtype != like.dtype:
            raise DtypeError(f"{what}: array {r} of the list is {array.dtype.name}, expected {like.dtype.name}")
        if array.shape != like.shape:
            raise ShapeError(f"{what}: array {r} of the list has shape {array.shape}, expected {like.shape}")
