"""The arithmetic of reductions, the same bits on every CPU transport: elements are combined in rank order.

Half types are accumulated in float32 and rounded once; an average is folded into the last step, never a pass of its
own.
"""

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpflow.errors import DtypeError

__all__ = [
    "BLOCK_BYTES",
    "ReduceOp",
    "check_reducible",
    "combine_in_rank_order",
    "reduce_in_rank_order",
    "ufunc_of_two",
]

# Blocks of the accumulator stay in the L1 or L2 cache while each rank's data streams through.
BLOCK_BYTES = 128 << 10


class ReduceOp(enum.IntEnum):
    """How a reduction combines the ranks' elements (the names are PyTorch's)."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


_UFUNC: dict[ReduceOp, np.ufunc] = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
_AVG = ReduceOp.AVG  # a member looked up on its class costs as much as adding a hundred numbers
_BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_ORDERED = (ReduceOp.MIN, ReduceOp.MAX)


def check_reducible(dtype: np.dtype[Any], op: ReduceOp) -> None:
    """Checks that ``op`` has a meaning for ``dtype``; the table is the same for all CPU transports.

    Raises:
        DtypeError: It has none; the text says why and what to do.
    """
    kind = "f" if dtype.name == "bfloat16" else dtype.kind
    if op is ReduceOp.AVG and kind in "biu":
        raise DtypeError(
            f"ReduceOp.AVG is not defined for {dtype.name}: the mean of integers is not one in general; "
            "convert to a float dtype, or use ReduceOp.SUM and divide"
        )
    if op in _BITWISE and kind not in "biu":
        raise DtypeError(f"ReduceOp.{op.name} needs an integer or bool dtype, not {dtype.name}")
    if op in _ORDERED and kind == "c":
        raise DtypeError(f"ReduceOp.{op.name} is not defined for {dtype.name}: complex numbers have no order")


def combine_in_rank_order(sources: Sequence[np.ndarray], out: np.ndarray, op: ReduceOp) -> None:
    """Writes the reduction of ``sources`` into ``out``, combining element by element in the order of ``sources``.

    The result of an element depends on nothing but that element's values: not on its place, the array's length or the
    block size. SUM of bool is "any", PRODUCT of bool is "all", as in NumPy.

    Args:
        sources: One flat contiguous array per rank, in rank order, all of ``out``'s length and dtype.
        out: Flat contiguous array; may be one of the sources (the same memory exactly, not a shifted part of it).
        op: The combination; AVG divides by ``len(sources)``.
    """
    n = len(sources)
    if n == 1:
        if out is not sources[0]:
            np.copyto(out, sources[0])
        return
    ufunc = _UFUNC[op]
    # A reciprocal is exact for powers of two only: other sizes divide, so that the average of n equal values is that
    # value.
    average = op is _AVG
    dtype = out.dtype
    itemsize = dtype.itemsize
    wide = itemsize == 2 and _is_half(dtype)
    step = BLOCK_BYTES // (4 if wide else itemsize)
    if wide:
        _reduce_half(sources, out, ufunc, average, step)
        return
    first, second, rest = sources[0], sources[1], sources[2:]
    aliases = bool(rest) and _aliases_later(rest, out)
    if out.size <= step and not aliases:
        ufunc(first, second, out=out)
        for source in rest:
            ufunc(out, source, out=out)
        if average:
            _divide(out, n)
        return
    scratch = np.empty(min(step, out.size), dtype) if aliases else None
    for start in range(0, out.size, step):
        part = slice(start, min(start + step, out.size))
        target = out[part]
        block = target if scratch is None else scratch[: target.size]
        ufunc(first[part], second[part], out=block)
        for source in rest:
            ufunc(block, source[part], out=block)
        if average:
            _divide(block, n)
        if scratch is not None:
            target[:] = block


def ufunc_of_two(dtype: np.dtype[Any], op: ReduceOp) -> np.ufunc | None:
    """Returns the ufunc that is the whole reduction of two ranks' small arrays; None where it takes more than that."""
    return None if op is _AVG or _is_half(dtype) else _UFUNC[op]


# Gradients may overflow to infinity: that is for a loss scaler to see, not for a warning.
_combine_quietly = np.errstate(all="ignore")(combine_in_rank_order)


def reduce_in_rank_order(sources: Sequence[np.ndarray], out: np.ndarray, op: ReduceOp) -> None:
    """Does what ``combine_in_rank_order`` does, without NumPy's warnings about overflow and invalid values."""
    _combine_quietly(sources, out, op)


def _is_half(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == 2 and (dtype.kind == "f" or dtype.name == "bfloat16")


def _divide(block: np.ndarray, n: int) -> None:
    if n & (n - 1):
        np.divide(block, n, out=block)
    else:
        np.multiply(block, 1.0 / n, out=block)


def _aliases_later(rest: Sequence[np.ndarray], out: np.ndarray) -> bool:
    """Whether writing into ``out`` would destroy a source that is read later than the first two."""
    return any(source is out or np.may_share_memory(source, out) for source in rest)


def _reduce_half(sources: Sequence[np.ndarray], out: np.ndarray, ufunc: np.ufunc, average: bool, step: int) -> None:
    accumulator = np.empty(min(step, out.size), np.float32)
    operand = np.empty_like(accumulator)
    for start in range(0, out.size, step):
        part = slice(start, min(start + step, out.size))
        target = out[part]
        acc, value = accumulator[: target.size], operand[: target.size]
        acc[:] = sources[0][part]
        for source in sources[1:]:
            value[:] = source[part]
            ufunc(acc, value, out=acc)
        if average:
            _divide(acc, len(sources))
        target[:] = acc
