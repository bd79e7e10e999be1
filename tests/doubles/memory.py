"""Arrays of the CuPy stand-in: NumPy inside, strict outside.

What CuPy refuses is refused: conversion to NumPy without `asnumpy` or `get`, NumPy arrays beside CuPy ones, names and
keywords that CuPy does not have (`cupy_names.json` lists those of the real one), a pointer of another device, memory
that a stream may not touch yet.
"""

import contextlib
import functools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np

from ddpflow.dtype import as_numpy
from tests.doubles.allocation import Memory, _memories, root_of
from tests.doubles.graphs import recorded
from tests.doubles.host import receive
from tests.doubles.timeline import Device, host_waits, merge, state, wait_for

NAMES = json.loads(Path(__file__).with_name("cupy_names.json").read_text())
_CLASSES = (bool, int, float, complex, np.generic, str, bytes, type(None), slice, type, np.dtype, type(Ellipsis))


class _Data:
    """``ndarray.data``: a memory pointer."""

    def __init__(self, array: "ndarray") -> None:
        a, memory = array._a, array._memory
        start = a.__array_interface__["data"][0] - memory.root.__array_interface__["data"][0]
        self.ptr = memory.address + start
        self.device = Device(memory.device)
        self.device_id = memory.device
        self.mem = memory


class _Flags:
    """``ndarray.flags``: only what CuPy's has."""

    def __init__(self, a: np.ndarray) -> None:
        self.c_contiguous = a.flags.c_contiguous
        self.f_contiguous = a.flags.f_contiguous
        self.owndata = a.flags.owndata
        self.fnc = self.f_contiguous and not self.c_contiguous
        self.forc = self.f_contiguous or self.c_contiguous

    @recorded
    def __getitem__(self, name: str) -> bool:
        return {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous, "OWNDATA": self.owndata}[name]


class ndarray:
    """``cupy.ndarray``."""

    __array_priority__ = 100
    __slots__ = ("__weakref__", "_a", "_memory")

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        fresh = fresh_array(np.empty(shape, dtype, order))
        self._a, self._memory = fresh._a, fresh._memory

    # --- what NumPy may not do ----------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc.__name__ not in NAMES["functions"]:
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        if method == "__call__":
            return call(ufunc, ufunc.__name__, inputs, kwargs)
        if method not in NAMES["ufunc_methods"]:
            return NotImplemented
        return call(getattr(ufunc, method), f"{ufunc.__name__}.{method}", inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        inner = func.__module__.partition(".")[2]
        name = f"{inner}.{func.__name__}" if inner == "linalg" else func.__name__
        if name not in NAMES["functions"]:
            return NotImplemented
        return call(func, name, args, kwargs)

    # --- facts --------------------------------------------------------------------------------------------------------

    shape = property(lambda self: self._a.shape)
    strides = property(lambda self: self._a.strides)
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    itemsize = property(lambda self: self._a.itemsize)
    nbytes = property(lambda self: self._a.nbytes)
    data = property(_Data)
    flags = property(lambda self: _Flags(self._a))
    device = property(lambda self: Device(self._memory.device))
    T = property(lambda self: view_of(self._a.T, self))
    mT = property(lambda self: view_of(self._a.mT, self))
    base = property(lambda self: None if self._a.base is None else view_of(self._memory.root, self))
    __hash__ = None

    @property
    def real(self) -> "ndarray":
        """The real parts, a view."""
        return view_of(self._a.real, self)

    @property
    def imag(self) -> "ndarray":
        """The imaginary parts, a view where there are any."""
        return view_of(self._a.imag, self) if self._a.dtype.kind == "c" else fresh_array(self._a.imag.copy())

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self._a)))

    # --- host values: each makes the host wait ------------------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        """A copy as a NumPy array."""
        if not blocking:
            recording = launch([self], []).recording
            (receive if recording is None else recording.deliver)(self._a, out)
            return out
        to_host(self, "get")
        result = np.array(self._a, order=order)
        if out is not None:
            out[...] = result
        return result if out is None else out

    @recorded
    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        """Copy a NumPy array here."""
        launch([], [self])
        self._a[...] = arr

    def item(self) -> Any:
        """The only element as a Python number."""
        return to_host(self, "item").item()

    def tolist(self) -> Any:
        """Python numbers."""
        return to_host(self, "tolist").tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The bytes."""
        return to_host(self, "tobytes").tobytes(order)

    def __bool__(self) -> bool:
        return bool(to_host(self, "bool"))

    def __int__(self) -> int:
        return int(to_host(self, "int"))

    def __float__(self) -> float:
        return float(to_host(self, "float"))

    def __complex__(self) -> complex:
        return complex(to_host(self, "complex"))

    def __index__(self) -> int:
        return operator.index(to_host(self, "index"))

    def __repr__(self) -> str:
        return repr(to_host(self, "repr"))

    def __format__(self, text: str) -> str:
        return format(to_host(self, "format").item() if self._a.ndim == 0 else to_host(self, "format"), text)

    def __reduce__(self) -> Any:
        return (fresh_array, (self.get(),))

    # --- elements -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> "ndarray":
        plain, arrays = index_of(key)
        masks = any(a._a.dtype.kind == "b" for a in arrays)
        if arrays:
            launch([self, *arrays], [])
        if masks:
            host_waits("boolean index")
        result = self._a[plain]
        if isinstance(result, np.generic):  # NumPy has read it; a GPU gives a view
            result = self._a[(*plain, ...) if isinstance(plain, tuple) else (plain, ...)]
        return view_of(result, self) if not arrays and isinstance(result, np.ndarray) else wrap(result, [self])

    @recorded
    def __setitem__(self, key: Any, value: Any) -> None:
        plain, arrays = index_of(key)
        refuse_numpy((value,), "setitem")
        source = [value] if isinstance(value, ndarray) else []
        if np.iterable(value) and not source:
            raise TypeError(f"Unsupported type {type(value)}")
        launch([*arrays, *source], [self])
        with np.errstate(all="ignore"):
            self._a[plain] = value._a if source else value

    @recorded
    def copy(self, order: str = "C") -> "ndarray":
        """A copy on the current device."""
        launch([self], [], anywhere=True)
        return fresh_array(self._a.copy(order))

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> "ndarray":
        return self.copy()

    @recorded
    def scatter_add(self, slices: Any, value: Any) -> None:
        """Add at places, also where places repeat."""
        plain, arrays = index_of(slices)
        refuse_numpy((value,), "scatter_add")
        launch([*arrays, *([value] if isinstance(value, ndarray) else [])], [self])
        np.add.at(self._a, plain, value._a if isinstance(value, ndarray) else value)

    @recorded
    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> "ndarray":
        """A cast copy."""
        launch([self], [])
        with np.errstate(all="ignore"):
            result = self._a.astype(dtype, order, copy=copy)
        return self if result is self._a else fresh_array(result)


def index_of(key: Any) -> tuple[Any, list[ndarray]]:
    """A NumPy index, and the device arrays in it."""
    parts = key if isinstance(key, tuple) else (key,)
    plain, arrays = [], []
    for part in parts:
        if isinstance(part, ndarray):
            arrays.append(part)
            plain.append(part._a)
        elif isinstance(part, np.ndarray) and part.ndim:
            raise IndexError(f"Unsupported type {type(part)}")
        elif isinstance(part, list):
            arrays.append(fresh_array(np.array(part)))
            plain.append(part)
        else:
            plain.append(part)
    return (tuple(plain) if isinstance(key, tuple) else plain[0]), arrays


def launch(reads: list[ndarray], writes: list[ndarray], anywhere: bool = False) -> Any:
    """An operation on the current stream that reads and writes arrays."""
    machine = state()
    with machine.lock:
        stream = machine.current_stream()
        tick = stream.step()
        machine.launches += 1
        waiting = []
        for a in reads:
            a._memory.use(stream, tick, False, anywhere)
        for a in writes:
            a._memory.use(stream, tick, True)
        for a in (*reads, *writes):
            waiting += a._memory.pending
    wait_for(waiting)  # the stand-in computes at once, so it waits here for what the stream would wait for
    return stream


def to_host(a: ndarray, why: str) -> np.ndarray:
    """The values, after the host has waited for them."""
    host_waits(why)
    stream = launch([a], [])
    machine = state()
    wait_for(stream.pending)
    merge(machine.host_clock(), stream.clock)
    return a._a


def fresh_array(a: np.ndarray) -> ndarray:
    """A device array of its own memory, written on the current stream."""
    if a.base is not None:
        a = a.copy(order="K")
    array = object.__new__(ndarray)
    array._a = a
    machine = state()
    memory = Memory(a, machine.current_device())
    _memories[id(a)] = memory
    array._memory = memory
    with machine.lock:
        stream = machine.current_stream()
        memory.use(stream, stream.step(), True)
    return array


def view_of(a: np.ndarray, owner: ndarray) -> ndarray:
    """A device array on the memory of another."""
    with contextlib.suppress(ValueError):
        a.flags.writeable = True  # NumPy's diagonal is read-only; CuPy knows no such thing
    array = object.__new__(ndarray)
    array._a, array._memory = a, owner._memory
    return array


def wrap(result: Any, inputs: list[ndarray]) -> Any:
    """Device arrays of what a NumPy function gave: views keep their memory."""
    if isinstance(result, (tuple, list)):
        made = [wrap(r, inputs) for r in result]
        if isinstance(result, list):
            return made
        return tuple(made) if type(result) is tuple else type(result)(*made)
    if isinstance(result, np.generic):
        return fresh_array(np.array(result))
    if not isinstance(result, np.ndarray):
        return result
    root = root_of(result)
    for a in inputs:
        if a._memory.root is root:
            return view_of(result, a)
    return fresh_array(np.asarray(result))


def refuse_numpy(values: Any, what: str) -> None:
    """NumPy arrays do not mix with CuPy's; NumPy's scalars do."""
    for value in values:
        if isinstance(value, np.ndarray):
            raise TypeError(f"Unsupported type {type(value)} in {what}")
        if isinstance(value, (list, tuple)):
            refuse_numpy(value, what)


def plain(value: Any, found: list[ndarray]) -> Any:
    """The NumPy arrays behind device arrays, which are collected."""
    if isinstance(value, ndarray):
        found.append(value)
        return value._a
    if type(value) in (list, tuple):
        return type(value)([plain(v, found) for v in value])
    return value


@functools.cache
def loops(types: str) -> list[list[np.dtype]]:
    """The input dtypes of each of a ufunc's loops."""
    names = {"E": "bfloat16"}
    return [[as_numpy(names[c]) if c in names else np.dtype(c) for c in t.split("->")[0]] for t in types.split()]


def check_loop(name: str, types: str, dtypes: list[np.dtype]) -> None:
    """Refuse dtypes for which CuPy's ufunc has no loop."""
    for inputs in loops(types):
        if all(any(np.can_cast(d, i) for i in inputs) for d in dtypes):
            return
    raise TypeError(f"Wrong type ({', '.join(map(str, dtypes))}) of arguments for cupy.{name}")


@recorded
def call(function: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a NumPy function on device arrays as CuPy's of that name would."""
    refuse_numpy(args, name)
    refuse_numpy(kwargs.values(), name)
    out = kwargs.get("out")
    reads: list[ndarray] = []
    given = [plain(a, reads) for a in args]
    named = {k: plain(v, []) if k == "out" else plain(v, reads) for k, v in kwargs.items()}
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, ndarray)]
    if name.endswith(".at"):
        outs = [args[0]]
    kinds = NAMES["functions"].get(name)
    if isinstance(kinds, dict) and "out" not in kwargs and "dtype" not in kwargs:
        check_loop(name, kinds["ufunc"], [a.dtype for a in reads])
    launch(reads, outs)
    with np.errstate(all="ignore"):
        result = function(*given, **named)
    if outs and out is not None:
        return out
    return wrap(result, reads)
