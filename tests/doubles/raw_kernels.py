"""``cupy.RawModule`` of the stand-in: the kernels' own CUDA sources, compiled by g++ and run on the CPU.

What a launch hands over is checked against the kernel's signature: the number of arguments, the dtype behind each
pointer, integers for ``long long``, floats for ``double``, contiguous memory, the size of grid and block. What a kernel
may only read (``const``) counts as read on the current stream, the rest as written. A pointer to pointers is a table of
addresses: each has to lie in memory of this device, and its type says what is done there.

Without g++ the stand-in has no `RawModule`, and what is run on it takes the formulas.

The kernel gets copies between guards: whoever writes outside an array, or where it may only read, is found.
It proves nothing about GPUs but that the source computes what it should.
"""

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ddpflow.dtype import as_numpy
from tests.doubles import memory
from tests.doubles.graphs import recorded
from tests.doubles.memory import Memory, ndarray
from tests.doubles.nccl import array_at

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is missing: CUDA kernels cannot be emulated")
CACHE = HERE.parents[1] / ".pytest_cache" / "kernels"
GUARD = 256  # bytes on either side of an array
_DTYPES = {"float": "float32", "double": "float64", "__half": "float16", "__nv_bfloat16": "bfloat16"}
_DTYPES |= {"long long": "int64", "bool": "bool"}
_MOST = ((1 << 31) - 1, 65535, 65535, 1024, 1024, 64)  # grid x, y, z and block x, y, z, by CUDA's manual


class Parameter(NamedTuple):
    """A parameter of a kernel: its C++ type, the dtype of a value or behind the pointer, what it is."""

    text: str
    dtype: np.dtype
    pointers: int  # 0 a value, 1 an array, 2 a table of addresses
    constant: bool


@functools.cache
def signature(code: str, name: str) -> list[Parameter]:
    """The parameters of a kernel, as its source declares them."""
    types = {new: old for old, new in re.findall(r"typedef (\w+) (\w);", code)}
    (text,) = re.findall(rf'extern "C" __global__ void {name}\((.*?)\)', code, re.DOTALL)
    found = []
    for part in text.split(","):
        declared = " ".join(part.split()).rpartition(" ")[0]
        base = declared.replace("const", "").replace("*", "").strip()
        dtype = as_numpy(_DTYPES[types.get(base, base)])
        found.append(Parameter(declared, dtype, declared.count("*"), declared.startswith("const")))
    return found


def _entry(code: str, name: str) -> str:
    """C++ for a function that takes a kernel's arguments as an array of pointers, as CUDA does."""
    args = ", ".join(f"*({p.text}*)args[{i}]" for i, p in enumerate(signature(code, name)))
    return (
        f"static void call_{name}(void** args) {{ {name}({args}); }}\n"
        f'extern "C" const char* run_{name}(const unsigned* dims, void** args)'
        f" {{ return emulation::run(dims, call_{name}, args); }}\n"
    )


_compiling = threading.Lock()


def library(code: str) -> ctypes.PyDLL:
    """A source as a shared library, compiled once and kept beside pytest's own cache."""
    with _compiling:
        return _library(code)


@functools.cache
def _library(code: str) -> ctypes.PyDLL:
    names = re.findall(r'extern "C" __global__ void (\w+)\(', code)
    text = '#include "cuda_emulation.h"\n' + code + "".join(_entry(code, name) for name in names)
    include = HERE / "include"
    options = ["-std=c++17", "-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", f"-I{include}"]
    headers = b"".join(path.read_bytes() for path in sorted(include.iterdir()))
    key = hashlib.sha256(text.encode() + headers + repr([COMPILER, *options]).encode()).hexdigest()[:24]
    target = CACHE / f"{key}.so"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = CACHE / f"{key}.{os.getpid()}"
        done = subprocess.run(
            [str(COMPILER), *options, "-x", "c++", "-", "-o", str(fresh)], input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        fresh.replace(target)
    return ctypes.PyDLL(str(target))  # it keeps the interpreter's lock: one grid runs at a time


class RawModule:
    """``cupy.RawModule``."""

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        assert isinstance(options, tuple)
        self.code = code

    def get_function(self, name: str) -> "RawKernel":
        """A kernel by its name."""
        return RawKernel(self.code, name)


class RawKernel:
    """``cupy.RawKernel``."""

    def __init__(self, code: str, name: str) -> None:
        self.code, self.name = code, name

    @recorded
    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        """Launch it on the current stream."""
        run = getattr(library(self.code), f"run_{self.name}")
        run.restype = ctypes.c_char_p
        dims = [*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3]]
        for size, most in zip(dims, _MOST, strict=True):
            if not (type(size) is int and 1 <= size <= most):
                raise ValueError(f"{self.name}: invalid configuration: grid {grid}, block {block}")
        if np.prod(dims[3:]) > 1024:
            raise ValueError(f"{self.name}: a block of {block} has more than 1024 threads")
        parameters = signature(self.code, self.name)
        if len(args) != len(parameters):
            raise TypeError(f"{self.name} takes {len(parameters)} arguments, {len(args)} given")
        copies = _Copies()
        values = [copies.argument(self.name, p, a) for p, a in zip(parameters, args, strict=True)]
        memory.launch(copies.reads, copies.writes)
        copies.fill()
        pointers = (ctypes.c_void_p * len(values))(*[v.ctypes.data for v in values])
        error = run((ctypes.c_uint * 6)(*dims), pointers)
        assert error is None, f"{self.name}: {error.decode()}"
        copies.check(self.name)


class _Copies:
    """What a kernel is given instead of the device's memory: a guarded copy of each allocation that it uses."""

    def __init__(self) -> None:
        self.reads: list[ndarray] = []
        self.writes: list[ndarray] = []
        self.buffers: dict[int, tuple[Memory, np.ndarray]] = {}
        self.tables: list[np.ndarray] = []

    def argument(self, kernel: str, parameter: Parameter, given: Any) -> np.ndarray:
        """One argument's value as the kernel sees it, after a check of its type."""
        shown = f"an array of {given.dtype}" if isinstance(given, ndarray) else repr(given)
        wrong = TypeError(f"{kernel}: {shown} for the parameter {parameter.text}")
        if not parameter.pointers:
            kinds = {"i": int, "f": float, "b": bool}
            if type(given) is not kinds[parameter.dtype.kind]:
                raise wrong
            return np.array(given, parameter.dtype)
        if type(given) is int and given == 0:  # a null pointer
            return np.array(0, np.int64)
        expected = parameter.dtype if parameter.pointers == 1 else np.dtype(np.int64)
        if not (isinstance(given, ndarray) and given.dtype == expected and given.flags.c_contiguous):
            raise wrong
        if parameter.pointers == 1:
            (self.reads if parameter.constant else self.writes).append(given)
            return np.array(self.address(given._memory, given.data.ptr), np.int64)
        self.reads.append(given)
        translated = [self.pointee(parameter, int(address)) for address in given._a]
        self.tables.append(np.array([-1, *translated, -1], np.int64))
        return np.array(self.tables[-1].ctypes.data + 8, np.int64)

    def pointee(self, parameter: Parameter, address: int) -> int:
        """Where the copy of the memory behind an entry of a table lies."""
        element, owner = array_at(address, 1, parameter.dtype)
        array = object.__new__(ndarray)
        array._a, array._memory = element, owner
        (self.reads if parameter.constant else self.writes).append(array)
        return self.address(owner, address)

    def address(self, owner: Memory, pointer: int) -> int:
        """Where the copy of the memory behind a pointer lies."""
        if id(owner) not in self.buffers:
            self.buffers[id(owner)] = (owner, np.full(owner.root.nbytes + 2 * GUARD, 0xFF, np.uint8))
        buffer = self.buffers[id(owner)][1]
        return int(buffer.ctypes.data) + GUARD + pointer - owner.address

    def fill(self) -> None:
        """Copy in."""
        for owner, buffer in self.buffers.values():
            buffer[GUARD : len(buffer) - GUARD] = _bytes(owner.root)

    def check(self, kernel: str) -> None:
        """Copy out, and see that only what may be written was."""
        written = {id(a._memory) for a in self.writes}
        for owner, buffer in self.buffers.values():
            inside = buffer[GUARD : len(buffer) - GUARD]
            assert (buffer[:GUARD] == 0xFF).all(), f"{kernel} wrote before an array"
            assert (buffer[len(buffer) - GUARD :] == 0xFF).all(), f"{kernel} wrote behind an array"
            if id(owner) in written:
                _bytes(owner.root)[...] = inside
            else:
                assert (inside == _bytes(owner.root)).all(), f"{kernel} wrote where it may only read"


def _bytes(root: np.ndarray) -> np.ndarray:
    """An allocation's memory, in the order in which it lies there."""
    flat = root.reshape(-1, order="A") if root.ndim else root.reshape(1)
    assert np.shares_memory(flat, root) or not root.size
    return flat.view(np.uint8)
