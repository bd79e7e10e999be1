"""Element types under PyTorch's names, and PyTorch's rules for combining them."""

from typing import Any

import numpy as np

from ddpflow.errors import BackendUnavailable, DtypeError

__all__ = [
    "DType",
    "as_dtype",
    "as_numpy",
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "dtype_of",
    "finfo",
    "float16",
    "float32",
    "float64",
    "get_default_dtype",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_floating",
    "kind_rank",
    "promote_types",
    "set_default_dtype",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class DType:
    """An element type. ``numpy.dtype(ddpflow.float32)`` gives NumPy's own.

    Attributes:
        name: PyTorch's name without the package, such as ``"float32"``.
        itemsize: Bytes per element.
        is_floating_point: True for the real floating types.
        is_complex: True for the complex types.
        is_signed: True when negative values can be held.
    """

    __slots__ = ("_numpy", "is_complex", "is_floating_point", "is_signed", "itemsize", "name")

    def __init__(self, name: str, numpy_dtype: Any, itemsize: int, kind: str) -> None:
        self.name = name
        self.itemsize = itemsize
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_signed = kind in "ifc"
        self._numpy: np.dtype[Any] | None = None if numpy_dtype is None else np.dtype(numpy_dtype)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """NumPy's dtype; the attribute by which ``numpy.dtype(x)`` converts.

        Raises:
            BackendUnavailable: For bfloat16 without the package ml_dtypes (extra ``bf16``).
        """
        if self._numpy is None:
            self._numpy = _load_bfloat16()
        return self._numpy

    def to_complex(self) -> "DType":
        """The complex type of the same precision."""
        return complex128 if self.itemsize == 8 else complex64

    def to_real(self) -> "DType":
        """The real type of the same precision."""
        return {complex64: float32, complex128: float64}.get(self, self)

    def __repr__(self) -> str:
        return f"ddpflow.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


def _load_bfloat16() -> "np.dtype[Any]":
    try:
        import ml_dtypes
    except ImportError:
        raise BackendUnavailable("bfloat16 needs the package ml_dtypes: pip install 'ddpflow[bf16]'") from None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    _BY_NUMPY[found] = bfloat16
    return found


float16 = DType("float16", np.float16, 2, "f")
float32 = DType("float32", np.float32, 4, "f")
float64 = DType("float64", np.float64, 8, "f")
bfloat16 = DType("bfloat16", None, 2, "f")
int8 = DType("int8", np.int8, 1, "i")
int16 = DType("int16", np.int16, 2, "i")
int32 = DType("int32", np.int32, 4, "i")
int64 = DType("int64", np.int64, 8, "i")
uint8 = DType("uint8", np.uint8, 1, "u")
uint16 = DType("uint16", np.uint16, 2, "u")
uint32 = DType("uint32", np.uint32, 4, "u")
uint64 = DType("uint64", np.uint64, 8, "u")
bool_ = DType("bool", np.bool_, 1, "b")
complex64 = DType("complex64", np.complex64, 8, "c")
complex128 = DType("complex128", np.complex128, 16, "c")

_ALL = (
    float16,
    float32,
    float64,
    bfloat16,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    bool_,
    complex64,
    complex128,
)
_BY_NUMPY: dict["np.dtype[Any]", DType] = {d._numpy: d for d in _ALL if d._numpy is not None}
_BY_NAME = {d.name: d for d in _ALL} | {
    "float": float32,
    "double": float64,
    "half": float16,
    "int": int32,
    "long": int64,
    "short": int16,
}
_BY_PYTHON: dict[type, DType] = {float: float32, int: int64, bool: bool_, complex: complex64}
_default = float32


def dtype_of(numpy_dtype: "np.dtype[Any]") -> DType:
    """The `DType` for NumPy's dtype.

    Raises:
        DtypeError: When there is none (strings, objects, dates).
    """
    found = _BY_NUMPY.get(numpy_dtype)
    if found is None:
        if numpy_dtype.name == "bfloat16":
            _load_bfloat16()
            return bfloat16
        if numpy_dtype.newbyteorder("=") in _BY_NUMPY:
            return _BY_NUMPY[numpy_dtype.newbyteorder("=")]
        raise DtypeError(f"tensors cannot hold NumPy's dtype {numpy_dtype}; convert it to a number type first")
    return found


def as_dtype(value: Any) -> DType:
    """A `DType` from a DType, a name, NumPy's dtype or one of Python's float, int, bool, complex."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    if isinstance(value, type) and value in _BY_PYTHON:
        return _default if value is float else _BY_PYTHON[value]
    try:
        return dtype_of(np.dtype(value))
    except TypeError:
        raise DtypeError(f"{value!r} is not a dtype; use one such as ddpflow.float32") from None


def as_numpy(value: Any) -> "np.dtype[Any]":
    """NumPy's dtype for anything that `as_dtype` takes."""
    return value.dtype if isinstance(value, DType) else as_dtype(value).dtype


def get_default_dtype() -> DType:
    """The floating type of new tensors made from Python numbers (float32 unless changed)."""
    return _default


def set_default_dtype(dtype: Any) -> None:
    """Set the floating type of new tensors made from Python numbers.

    Raises:
        DtypeError: When it is not a floating type.
    """
    global _default
    chosen = as_dtype(dtype)
    if not chosen.is_floating_point:
        raise DtypeError(f"the default dtype must be a floating type, not {chosen}")
    _default = chosen


def kind_rank(dtype: "np.dtype[Any]") -> int:
    """0 bool, 1 integer, 2 floating, 3 complex: the category that decides promotion."""
    kind = dtype.kind
    if kind == "f" or dtype.name == "bfloat16":
        return 2
    return {"b": 0, "i": 1, "u": 1, "c": 3}[kind]


def is_floating(dtype: "np.dtype[Any]") -> bool:
    """True for the real and complex floating types: those that can carry a gradient."""
    return kind_rank(dtype) >= 2


def promote_types(a: "np.dtype[Any]", b: "np.dtype[Any]") -> "np.dtype[Any]":
    """The dtype that holds both, by PyTorch's table: an integer beside a float takes the float's type.

    Source: PyTorch's type promotion rules (torch.promote_types).
    """
    if a == b:
        return a
    rank_a, rank_b = kind_rank(a), kind_rank(b)
    if rank_a != rank_b and min(rank_a, rank_b) < 2:
        return a if rank_a > rank_b else b
    if {a.name, b.name} == {"bfloat16", "float16"}:
        return np.dtype(np.float32)
    if "bfloat16" in (a.name, b.name):
        other = b if a.name == "bfloat16" else a
        return other if other.itemsize > 2 else np.promote_types(a, b)
    return np.promote_types(a, b)


class finfo:
    """Limits of a floating type, with PyTorch's attribute names (``eps``, ``max``, ``min``, ``tiny``, ``bits``)."""

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = _default if dtype is None else as_dtype(dtype)
        if self.dtype is bfloat16:
            import ml_dtypes

            info: Any = ml_dtypes.finfo(ml_dtypes.bfloat16)
        else:
            info = np.finfo(self.dtype.dtype)
        self.bits = self.dtype.itemsize * 8
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.tiny)
        self.resolution = float(info.resolution)


class iinfo:
    """Limits of an integer type (``min``, ``max``, ``bits``)."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = as_dtype(dtype)
        info = np.iinfo(self.dtype.dtype)
        self.bits, self.min, self.max = info.bits, int(info.min), int(info.max)
