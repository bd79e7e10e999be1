"""Test data of every dtype, and reductions by their definition."""

from typing import Any

import ml_dtypes
import numpy as np

from ddpflow.comm import ReduceOp

DTYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
UFUNCS = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a name."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def is_defined(name: str, op: ReduceOp) -> bool:
    """Whether the table of reductions has this pair."""
    integer = dtype_of(name).kind in "biu"
    if op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        return integer
    if op in (ReduceOp.MIN, ReduceOp.MAX) and name.startswith("complex"):
        return False
    return not (op is ReduceOp.AVG and integer)


def values(name: str, rank: int, shape: Any = 7) -> np.ndarray:
    """Distinct values that differ by rank, the same on whoever asks."""
    draw = np.random.default_rng([rank, 3])
    dtype = dtype_of(name)
    if name == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return draw.integers(0, 120, shape).astype(dtype)
    x = draw.standard_normal(shape) * 10.0 ** draw.integers(-3, 3, shape)
    if dtype.kind == "c":
        return (x + 1j * draw.standard_normal(shape)).astype(dtype)
    return x.astype(dtype)


def reduced(arrays: list[np.ndarray], op: ReduceOp) -> np.ndarray:
    """The result by definition: element by element in rank order; half types in float32, rounded once."""
    dtype = arrays[0].dtype
    wide = [a.astype(np.float32) for a in arrays] if dtype.itemsize == 2 and dtype.kind not in "iu" else arrays
    total = wide[0]
    for a in wide[1:]:
        total = UFUNCS[op](total, a)
    if op is ReduceOp.AVG and len(arrays) > 1:
        n = len(arrays)
        total = total / total.dtype.type(n) if n & (n - 1) else total * total.dtype.type(1 / n)
    return total.astype(dtype)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Bitwise equal, with dtype and shape."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes(), (a, b)
