"""Call signatures, their codes and texts."""

import numpy as np
import pytest

from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import (
    Call,
    Kind,
    Signature,
    dtype_code,
    dtype_from_code,
    is_supported,
    mismatch_text,
    supported_names,
)
from ddpflow.errors import DtypeError
from tests.comm.reference import DTYPES, dtype_of


def test_codes():
    """Each supported dtype has a code of its own, and back."""
    codes = {name: dtype_code(dtype_of(name)) for name in DTYPES}
    assert len(set(codes.values())) == len(DTYPES) and all(0 < code < 16 for code in codes.values())
    for name, code in codes.items():
        assert dtype_from_code(code) == dtype_of(name)
        assert name in supported_names()


@pytest.mark.parametrize("dtype", ["O", "U3", "M8[s]", ">f8", "f4,f4"])
def test_unsupported(dtype):
    """What has no fixed meaning on the wire is refused with what works."""
    assert not is_supported(np.dtype(dtype))
    with pytest.raises(DtypeError, match="float32"):
        dtype_code(np.dtype(dtype))


def test_texts():
    """Texts show the operation, its number, the array, the reduce op and the root, and what differs."""
    a = Signature(Kind.ALL_REDUCE, 41, dtype_code(np.dtype("f4")), 4, ReduceOp.SUM, -1)
    b = Signature(Kind.BROADCAST, 41, dtype_code(np.dtype("f8")), 4, -1, 2)
    assert a.describe() == "all_reduce #41 of float32[4], op=SUM"
    assert b.describe() == "broadcast #41 of float64[4], root=2"
    assert Signature(Kind.BARRIER, 3, 0, 0, -1, -1).describe() == "barrier #3"
    assert Signature(Kind.ALL_TO_ALL, 3, 1, -1, -1, -1).describe() == "all_to_all #3 of bool[]"
    assert a.differences(b) == "operation, dtype, reduce op, root"
    text = mismatch_text(0, a, 1, b)
    assert a.describe() in text and b.describe() in text and "rank 0" in text and "rank 1" in text
    assert str(Call(Kind.ALL_REDUCE, 41, "bucket 2", 1.0)) == "all_reduce #41 (bucket 2)"
    assert str(Call(Kind.SEND, 0, "", 1.0)) == "send"
