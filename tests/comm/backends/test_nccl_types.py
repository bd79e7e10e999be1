"""dtypes and reduce ops in NCCL's numbers."""

import ml_dtypes
import numpy as np
import pytest

from ddpflow.comm import ReduceOp
from ddpflow.comm.backends.nccl_types import move_type, reduce_type
from tests.comm.reference import DTYPES, dtype_of


def test_moves_take_every_dtype():
    """Known types are themselves, others their bytes."""
    for name in DTYPES:
        kind, each = move_type(dtype_of(name))
        assert each * [1, 1, 4, 4, 8, 8, 2, 4, 8, 2][kind] == dtype_of(name).itemsize
    assert move_type(np.dtype(ml_dtypes.bfloat16)) == (9, 1) and move_type(np.dtype("int16")) == (1, 2)


@pytest.mark.parametrize(
    ("name", "op", "expected"),
    [
        ("float32", ReduceOp.AVG, (7, 1, 4)),
        ("bfloat16", ReduceOp.SUM, (9, 1, 0)),
        ("bool", ReduceOp.SUM, (1, 1, 2)),
        ("bool", ReduceOp.PRODUCT, (1, 1, 3)),
        ("bool", ReduceOp.BXOR, None),
        ("complex64", ReduceOp.SUM, (7, 2, 0)),
        ("complex128", ReduceOp.AVG, (8, 2, 4)),
        ("complex64", ReduceOp.PRODUCT, None),
        ("int64", ReduceOp.MIN, (4, 1, 3)),
        ("int16", ReduceOp.SUM, None),
        ("uint8", ReduceOp.BOR, None),
    ],
)
def test_reductions(name, op, expected):
    """What NCCL can do is told in its numbers; what it cannot is None, and then gathered and combined."""
    assert reduce_type(dtype_of(name), op) == expected
