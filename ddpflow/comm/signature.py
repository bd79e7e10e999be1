"""What identifies a collective call, so that ranks can find out that they called different ones."""

import enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ddpflow.comm.reduce import ReduceOp
from ddpflow.errors import DtypeError

__all__ = [
    "Call",
    "Kind",
    "Signature",
    "dtype_code",
    "dtype_from_code",
    "is_supported",
    "mismatch_text",
    "supported_names",
]


class Kind(enum.IntEnum):
    """The collectives and point-to-point operations."""

    ALL_REDUCE = 1
    BROADCAST = 2
    REDUCE = 3
    ALL_GATHER = 4
    GATHER = 5
    SCATTER = 6
    REDUCE_SCATTER = 7
    ALL_TO_ALL = 8
    BARRIER = 9
    SEND = 10
    RECV = 11

    @property
    def label(self) -> str:
        """The name that users call it by."""
        return self.name.lower()


_NAMES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_CODES = {name: code for code, name in enumerate(_NAMES, start=1)}


def supported_names() -> str:
    """Returns the dtypes that can be communicated, as text for errors."""
    return ", ".join(_NAMES)


@cache
def is_supported(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of ``dtype`` can be communicated (native byte order only)."""
    return dtype.name in _CODES and bool(dtype.isnative)


@cache
def dtype_code(dtype: np.dtype[Any]) -> int:
    """Returns the small number (1 to 15) that stands for ``dtype`` on the wire.

    Raises:
        DtypeError: Arrays of this dtype cannot be communicated.
    """
    if not is_supported(dtype):
        hint = "" if dtype.isnative else " in the other byte order"
        raise DtypeError(f"arrays of dtype {dtype.name}{hint} cannot be communicated; supported: {supported_names()}")
    return _CODES[dtype.name]


@cache
def dtype_from_code(code: int) -> np.dtype[Any]:
    """Returns the dtype of a code."""
    name = _NAMES[code - 1]
    scalar: Any = name
    if name == "bfloat16":
        import ml_dtypes

        scalar = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(scalar)
    return dtype


class Call:
    """One call of a collective on one rank, as the group hands it to the transport.

    Attributes:
        kind: Which operation.
        seq: Its number in the group, counted from 1 by every rank; 0 for send and recv.
        tag: Free text of the caller for errors ("bucket 2: fc.weight, fc.bias"), or "".
        timeout_s: Deadline in seconds, counted from the moment somebody starts to wait.
        root: Group rank of the source or destination where the operation has one, else -1.
    """

    __slots__ = ("kind", "root", "seq", "tag", "timeout_s")

    def __init__(self, kind: Kind, seq: int, tag: str, timeout_s: float, root: int = -1) -> None:
        self.kind, self.seq, self.tag, self.timeout_s, self.root = kind, seq, tag, timeout_s, root

    def __str__(self) -> str:
        number = f" #{self.seq}" if self.seq else ""
        return f"{self.kind.label}{number} ({self.tag})" if self.tag else f"{self.kind.label}{number}"


class Signature(NamedTuple):
    """The part of a call that must be equal on all ranks.

    ``length`` is the number of elements of the array that the kind's docstring in ``Backend`` names, -1 where ranks may
    differ (all_to_all with uneven splits); ``op`` is -1 and ``root`` is -1 where the kind has none.
    """

    kind: int
    seq: int
    dtype: int
    length: int
    op: int
    root: int

    def describe(self) -> str:
        """Returns "all_reduce #41 of float32[4], op=SUM"."""
        text = f"{Kind(self.kind).label} #{self.seq}"
        if self.kind != Kind.BARRIER:
            text += f" of {dtype_from_code(self.dtype).name}[{'' if self.length < 0 else self.length}]"
        if self.op >= 0:
            text += f", op={ReduceOp(self.op).name}"
        return text + (f", root={self.root}" if self.root >= 0 else "")

    def differences(self, other: "Signature") -> str:
        """Returns the names of the fields that differ: "dtype, count"."""
        names = ("operation", "sequence number", "dtype", "count", "reduce op", "root")
        return ", ".join(name for name, a, b in zip(names, self, other, strict=True) if a != b)


def mismatch_text(own_rank: int, own: Signature, other_rank: int, other: Signature) -> str:
    """Returns the text of the MismatchError with both calls in full, ranks as global ranks."""
    return (
        f"rank {own_rank} called {own.describe()}, but rank {other_rank} called {other.describe()}: "
        f"they differ in {own.differences(other)}. All ranks of a group must make the same calls in the same order."
    )
