"""How dtypes and reduce ops are told to NCCL, whose numbers are part of its binary interface."""

from functools import cache
from typing import Any

import numpy as np

from ddpflow.comm.reduce import ReduceOp

__all__ = ["move_type", "reduce_type"]

# ncclDataType_t in nccl.h. CuPy has names for these, but not in every version for bfloat16.
_CODES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
_BYTE = 1
_SUM, _PROD, _MAX, _MIN, _AVG = range(5)  # ncclRedOp_t
_OPS = {
    ReduceOp.SUM: _SUM,
    ReduceOp.PRODUCT: _PROD,
    ReduceOp.MAX: _MAX,
    ReduceOp.MIN: _MIN,
    ReduceOp.AVG: _AVG,
}
# On bytes that are 0 or 1: "any" is the greatest, "all" the least.
_BOOL_OPS = {
    ReduceOp.SUM: _MAX,
    ReduceOp.MAX: _MAX,
    ReduceOp.BOR: _MAX,
    ReduceOp.PRODUCT: _MIN,
    ReduceOp.MIN: _MIN,
    ReduceOp.BAND: _MIN,
}


@cache
def move_type(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Returns (NCCL's type, how many of it make an element) for operations that only copy: bytes will do for any."""
    code = _CODES.get(dtype.name)
    return (_BYTE, dtype.itemsize) if code is None else (code, 1)


@cache
def reduce_type(dtype: np.dtype[Any], op: ReduceOp) -> tuple[int, int, int] | None:
    """Returns (NCCL's type, how many of it make an element, NCCL's op), or None where NCCL cannot reduce so.

    Sums of complex numbers are sums of their parts. NCCL has no 16-bit integers, bitwise ops or complex products.
    """
    if dtype.kind == "b":
        return None if op not in _BOOL_OPS else (_BYTE, 1, _BOOL_OPS[op])
    if op not in _OPS:
        return None
    if dtype.kind == "c":
        return (_CODES[f"float{dtype.itemsize * 4}"], 2, _OPS[op]) if op in (ReduceOp.SUM, ReduceOp.AVG) else None
    code = _CODES.get(dtype.name)
    return None if code is None else (code, 1, _OPS[op])
