"""Element types and how they combine."""

import pickle

import numpy as np
import pytest

import ddpflow
from ddpflow import dtype as DType
from ddpflow.dtype import as_dtype, as_numpy, dtype_of, is_floating, kind_rank, promote_types
from ddpflow.errors import DtypeError

NAMES = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128".split()


@pytest.mark.parametrize("name", NAMES)
def test_names_and_numpy(name):
    """Each dtype prints as PyTorch's, converts to NumPy's and back, and survives pickling as itself."""
    found = getattr(ddpflow, name)
    assert repr(found) == f"ddpflow.{name}" and isinstance(found, DType)
    assert np.dtype(found) == np.dtype(name) == as_numpy(found) and found.itemsize == np.dtype(name).itemsize
    assert dtype_of(np.dtype(name)) is found is as_dtype(name) is as_dtype(np.dtype(name))
    assert pickle.loads(pickle.dumps(found)) is found
    assert found.is_floating_point == (np.dtype(name).kind == "f") and found.is_complex == (np.dtype(name).kind == "c")
    assert found.is_signed == (np.dtype(name).kind in "ifc")


def test_other_names():
    """PyTorch's short names, and Python's types."""
    for short, long in {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64",
                        "short": "int16", "cfloat": "complex64", "cdouble": "complex128"}.items():  # fmt: skip
        assert getattr(ddpflow, short) is getattr(ddpflow, long)
    assert as_dtype(float) is ddpflow.float32 and as_dtype(int) is ddpflow.int64 and as_dtype(bool) is ddpflow.bool
    for bad in ("float31", object, "U5", None.__class__):
        with pytest.raises(DtypeError):
            as_dtype(bad)


# torch.promote_types, as printed by PyTorch 2.13 for these in this order.
ORDER = ["uint8", "int8", "int16", "int64", "float16", "float32", "float64", "complex64", "bool"]
TABLE = """
uint8 int16 int16 int64 float16 float32 float64 complex64 uint8
int16 int8 int16 int64 float16 float32 float64 complex64 int8
int16 int16 int16 int64 float16 float32 float64 complex64 int16
int64 int64 int64 int64 float16 float32 float64 complex64 int64
float16 float16 float16 float16 float16 float32 float64 complex64 float16
float32 float32 float32 float32 float32 float32 float64 complex64 float32
float64 float64 float64 float64 float64 float64 float64 complex128 float64
complex64 complex64 complex64 complex64 complex64 complex64 complex128 complex64 complex64
uint8 int8 int16 int64 float16 float32 float64 complex64 bool
"""


def test_promotion_table():
    """An integer beside a float takes the float's type; otherwise the smallest that holds both."""
    for a, row in zip(ORDER, TABLE.split("\n")[1:-1], strict=True):
        for b, expected in zip(ORDER, row.split(), strict=True):
            assert promote_types(np.dtype(a), np.dtype(b)).name == expected, (a, b)


def test_categories():
    """Bool, integer, floating, complex."""
    assert [kind_rank(np.dtype(n)) for n in ("bool", "uint8", "int64", "float16", "complex64")] == [0, 1, 1, 2, 3]
    assert is_floating(np.dtype("complex64")) and not is_floating(np.dtype("int8"))
    assert ddpflow.complex64.to_real() is ddpflow.float32 and ddpflow.float64.to_complex() is ddpflow.complex128


def test_limits():
    """Finfo and iinfo give the limits as Python numbers."""
    for name in ("float16", "float32", "float64"):
        info, expected = ddpflow.finfo(getattr(ddpflow, name)), np.finfo(name)
        assert (info.eps, info.max, info.min, info.tiny) == tuple(
            map(float, (expected.eps, expected.max, expected.min, expected.tiny))
        )
        assert info.bits == expected.bits
    assert ddpflow.finfo().bits == 32
    assert (ddpflow.iinfo(ddpflow.int8).min, ddpflow.iinfo(ddpflow.int8).max) == (-128, 127)


def test_python_numbers_are_weak():
    """A tensor keeps its dtype beside Python numbers of its category, and beside 0-d tensors of it."""
    half = ddpflow.ones(2, dtype=ddpflow.float16)
    assert (half * 2.5).dtype == (half + 1).dtype == ddpflow.float16
    assert (ddpflow.tensor([1]) * 2.5).dtype == ddpflow.float32
    wrapped = ddpflow.tensor([1, 2], dtype=ddpflow.int8) + 1000
    assert wrapped.dtype == ddpflow.int8 and wrapped.tolist() == [-23, -22]
    assert (half * ddpflow.tensor(2.0, dtype=ddpflow.float64)).dtype == ddpflow.float16
    assert (ddpflow.tensor([True]) + 1).dtype == ddpflow.int64
    assert (ddpflow.tensor([1.0]) * 1j).dtype == ddpflow.complex64
