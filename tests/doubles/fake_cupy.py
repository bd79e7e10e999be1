"""The CuPy stand-in as a module: ``with installed(devices=2): ...`` puts it in the place of ``cupy``.

It proves nothing about CUDA. It proves that our code uses only what CuPy has, keeps NumPy and CuPy apart, and orders
its streams; see `tests.doubles.memory`, `timeline` and `nccl`.
"""

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from ddpflow.autograd.kernels import cuda as kernels
from ddpflow.random import _threads
from tests.doubles import memory, nccl, raw_kernels, timeline
from tests.doubles.exchange import from_dlpack, from_interface
from tests.doubles.graphs import Graph, MemoryPool, recorded, using_allocator
from tests.doubles.host import PinnedMemoryPointer, pointer_attributes, send
from tests.doubles.memory import NAMES, call, fresh_array, launch, ndarray
from tests.doubles.timeline import host_waits, state

# Functions that make the host wait because the size of their result depends on values.
_SYNCING = {"nonzero", "flatnonzero", "argwhere", "unique", "extract", "allclose", "array_equal", "histogram"}
_SYNCING |= {"bincount"}
_CREATORS = {"arange", "empty", "eye", "full", "identity", "linspace", "logspace", "ones", "tri", "zeros", "indices"}
_HOST = {
    "can_cast",
    "common_type",
    "get_printoptions",
    "ndim",
    "result_type",
    "shape",
    "size",
    "broadcast_shapes",
    "iterable",
}
_HOST |= {"may_share_memory", "shares_memory", "isscalar", "min_scalar_type", "promote_types", "issubdtype"}


class ufunc:
    """``cupy.ufunc``."""

    def __init__(self, name: str, types: str) -> None:
        self.name, self.types = name, tuple(types.split())
        self._function = getattr(np, name)
        ins, _, outs = self.types[0].partition("->")
        self.nin, self.nout = len(ins), len(outs)
        self.nargs = self.nin + self.nout

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply it element by element."""
        for name in kwargs:
            if name not in ("out", "dtype", "casting"):
                raise TypeError(f"Wrong arguments {{'{name}'}}")
        if len(args) > self.nin:
            args, kwargs = args[: self.nin], {**kwargs, "out": args[self.nin]}
        known = [a.dtype for a in args if isinstance(a, ndarray)]
        if not known:
            args = tuple(fresh_array(np.asarray(a)) if not isinstance(a, np.ndarray) else a for a in args)
        return call(self._function, self.name, args, kwargs)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or method not in NAMES["ufunc_methods"]:
            raise AttributeError(f"'cupy.ufunc' object has no attribute '{method}'")
        function = getattr(self._function, method)
        return lambda *args, **kwargs: call(function, f"{self.name}.{method}", args, kwargs)


def _function(name: str, given: Any, params: Any) -> Any:
    if isinstance(params, dict):
        return ufunc(name, params["ufunc"])
    open_ended = params is None or any(p.startswith("**") for p in params)

    def run(*args: Any, **kwargs: Any) -> Any:
        for key in kwargs:
            if not open_ended and key not in params:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
        if name in _SYNCING or (name == "where" and len(args) == 1):
            host_waits(name)
        if name == "repeat" and isinstance(args[1], ndarray):
            raise ValueError("cupy.repeat: repeats must be host integers")
        if name in _HOST:
            return given(*[memory.plain(a, []) for a in args], **kwargs)
        if name in _CREATORS:
            return _created(given, args, kwargs)
        return call(given, name, args, kwargs)

    run.__name__ = name.rpartition(".")[2]
    return run


@recorded
def _created(given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = given(*args, **kwargs)
    return [fresh_array(m) for m in made] if isinstance(made, list) else fresh_array(np.asarray(made))


@recorded
def _asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False, copy: bool = False) -> ndarray:
    if isinstance(a, ndarray) and not copy:
        return a if dtype is None or a.dtype == np.dtype(dtype) else a.astype(dtype)
    if isinstance(a, ndarray):
        return a.copy() if dtype is None else a.astype(dtype)
    if isinstance(a, (list, tuple)) and a and isinstance(a[0], ndarray):
        stacked = call(np.stack, "stack", (list(a),), {})
        return stacked if dtype is None else stacked.astype(dtype, copy=False)
    if hasattr(a, "__cuda_array_interface__"):
        return from_interface(a)
    if not isinstance(a, (np.ndarray, list, tuple, bool, int, float, complex, np.generic)):
        raise TypeError(f"Implicit conversion of {type(a)} to a device array")
    host = np.array(a, dtype=dtype)
    recording = state().current_stream().recording
    if recording is not None and host.ndim:  # CuPy would ask its event, which is captured, and keep its buffer for ever
        recording.refuse("cudaErrorCapturedEvent: data of the host in a captured step")
    made = fresh_array(host)
    if isinstance(a, np.ndarray) and a.dtype == host.dtype:
        send(a)
    if blocking:
        state().current_stream().synchronize()
    return made


def _array(
    obj: Any, dtype: Any = None, copy: bool = True, order: Any = "K", subok: bool = False, ndmin: int = 0
) -> ndarray:
    return _asarray(obj, dtype, copy=copy)


class Generator:
    """``cupy.random.Generator``: only the methods that CuPy's has."""

    def __init__(self, seed: Any) -> None:
        recording = state().current_stream().recording
        assert recording is None, "a captured kernel would seed the generator anew at every launch"
        self._rng = np.random.default_rng(seed)

    def __getattr__(self, name: str) -> Any:
        params = NAMES["generator"].get(name)
        if params is None:
            raise AttributeError(f"'Generator' object has no attribute '{name}'")
        method = getattr(self._rng, name)

        @recorded
        def draw(*args: Any, **kwargs: Any) -> ndarray:
            for key in kwargs:
                if key not in params:
                    raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
            for dtype in (*args, *kwargs.values()):
                if isinstance(dtype, (np.dtype, type)) and np.dtype(dtype).kind == "f" and np.dtype(dtype).itemsize < 4:
                    raise TypeError(f"{name} makes float32 and float64 only")
            reads: list[ndarray] = []
            args = tuple(memory.plain(a, reads) for a in args)
            launch(reads, [])
            return fresh_array(np.asarray(method(*args, **kwargs)))

        return draw


class _Pool:
    """``cupy.get_default_memory_pool()``."""

    def used_bytes(self) -> int:
        """Bytes in use on the current device."""
        return state().used.get(state().current_device(), 0)

    def total_bytes(self) -> int:
        """Bytes held."""
        return self.used_bytes()

    def free_all_blocks(self, stream: Any = None) -> None:
        """Nothing is held back."""


@recorded
def _changed(array: ndarray, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    launch([], [array])
    getattr(array._a, name)(*[memory.plain(a, []) for a in args], **kwargs)


def _methods() -> None:
    """Give `ndarray` the methods that CuPy's has, and the operators."""
    for name, params in NAMES["methods"].items():
        if params == "attribute" or hasattr(ndarray, name) or not hasattr(np.ndarray, name):
            continue

        def method(self: ndarray, *args: Any, _name: str = name, _params: Any = params, **kwargs: Any) -> Any:
            known = [p.lstrip("*") for p in _params]
            for key in kwargs:
                if key not in known:
                    raise TypeError(f"{_name}() got an unexpected keyword argument '{key}'")
            if _name == "nonzero":
                host_waits(_name)
            if _name in ("fill", "sort", "partition", "put"):
                memory.refuse_numpy(args, _name)
                return _changed(self, _name, args, kwargs)
            if _name == "view" and (args or kwargs):
                return memory.view_of(self._a.view(*args, **kwargs), self)
            if _name in ("reshape", "transpose", "swapaxes", "squeeze", "view", "ravel", "diagonal"):
                result = getattr(self._a, _name)(*args, **kwargs)
                if memory.root_of(result) is self._memory.root:
                    return memory.view_of(result, self)
            return call(lambda a, *rest, **named: getattr(a, _name)(*rest, **named), _name, (self, *args), kwargs)

        setattr(ndarray, name, method)
    binary = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
        "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
        "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
    }  # fmt: skip
    for short, name in binary.items():
        function = getattr(np, name)
        setattr(ndarray, f"__{short}__", lambda a, b, f=function, n=name: _operate(f, n, a, b))
        setattr(ndarray, f"__r{short}__", lambda a, b, f=function, n=name: _operate(f, n, b, a))
        if short != "matmul":  # which CuPy lacks
            setattr(ndarray, f"__i{short}__", lambda a, b, f=function, n=name: call(f, n, (a, b), {"out": a}))
    compare = {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }
    for short, name in compare.items():
        function = getattr(np, name)
        setattr(ndarray, f"__{short}__", lambda a, b, f=function, n=name: _operate(f, n, a, b))
    for short, name in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
        function = getattr(np, name)
        setattr(ndarray, f"__{short}__", lambda a, f=function, n=name: call(f, n, (a,), {}))


def _operate(function: Any, name: str, a: Any, b: Any) -> Any:
    for value in (a, b):
        if not isinstance(value, (ndarray, np.ndarray, bool, int, float, complex, np.generic)):
            return NotImplemented
    return call(function, name, (a, b), {})


_methods()


def build() -> dict[str, ModuleType]:
    """The modules by the names under which they are imported."""
    cupy = ModuleType("cupy", __doc__)
    cupy.__version__ = "14.2.0"
    cupy.is_stand_in = True
    linalg, random, cuda, runtime = (ModuleType(f"cupy.{n}") for n in ("linalg", "random", "cuda", "cuda.runtime"))
    lib, tricks = ModuleType("cupy.lib"), ModuleType("cupy.lib.stride_tricks")
    for name, params in NAMES["functions"].items():
        home, _, short = name.rpartition(".")
        source = np.linalg if home else np
        if hasattr(source, short):  # a newer NumPy has dropped some names that CuPy still has
            setattr(linalg if home else cupy, short, _function(name, getattr(source, short), params))
    for name in dir(np):
        value = getattr(np, name)
        if isinstance(value, type) and issubclass(value, np.generic):
            setattr(cupy, name, value)
    cupy.inf, cupy.nan, cupy.pi, cupy.e, cupy.newaxis, cupy.dtype = np.inf, np.nan, np.pi, np.e, None, np.dtype
    cupy.finfo, cupy.iinfo = np.finfo, np.iinfo
    cupy.ndarray, cupy.ufunc = ndarray, ufunc
    if raw_kernels.COMPILER:
        cupy.RawModule = raw_kernels.RawModule
    cupy.asarray, cupy.array, cupy.from_dlpack = _asarray, _array, from_dlpack
    cupy.ascontiguousarray = lambda a, dtype=None: a if a._a.flags.c_contiguous and a.ndim else a.copy()
    cupy.asnumpy = lambda a, stream=None, order="C", out=None, blocking=True: (
        a.get(order=order, out=out) if isinstance(a, ndarray) else np.asarray(a)
    )
    cupy.get_array_module = lambda *xs: cupy if any(isinstance(x, ndarray) for x in xs) else np
    cupy.get_default_memory_pool = lambda: _Pool()
    linalg.LinAlgError = np.linalg.LinAlgError
    tricks.as_strided = lambda x, shape=None, strides=None: memory.view_of(
        np.lib.stride_tricks.as_strided(x._a, shape, strides), x
    )
    random.Generator, random.default_rng = Generator, Generator
    runtime.CUDARuntimeError = timeline.CUDARuntimeError
    runtime.getDeviceCount = lambda: state().devices
    runtime.getDevice = lambda: state().current_device()
    runtime.setDevice = lambda index: timeline.Device(index).use()
    runtime.runtimeGetVersion = lambda: 13000
    runtime.driverGetVersion = lambda: 13000
    runtime.getDeviceProperties = lambda index: {"name": b"stand-in", "major": 9, "minor": 0}
    runtime.deviceSynchronize = lambda: timeline.Device().synchronize()
    cuda.runtime, cuda.Device, cuda.Event, cuda.Stream = runtime, timeline.Device, timeline.Event, timeline.Stream
    cuda.get_current_stream, cuda.get_elapsed_time = timeline.get_current_stream, timeline.get_elapsed_time
    runtime.pointerGetAttributes, runtime.memoryTypeHost = pointer_attributes, 1
    cuda.Graph, cuda.MemoryPool, cuda.using_allocator = Graph, MemoryPool, using_allocator
    runtime.streamCaptureModeGlobal, runtime.streamCaptureModeThreadLocal, runtime.streamCaptureModeRelaxed = 0, 1, 2
    cuda.alloc_pinned_memory = PinnedMemoryPointer
    cuda.cublas, core = ModuleType("cupy.cuda.cublas"), ModuleType("cupy._core")
    cuda.cublas.setMathMode = lambda handle, mode: state().math_modes.__setitem__(handle, mode)
    core.set_compute_type = lambda dtype, number: state().compute_types.__setitem__(np.dtype(dtype).name, number)
    cuda.is_available, cuda.set_allocator = lambda: state().devices > 0, lambda allocator: None
    cupy.linalg, cupy.random, cupy.cuda, cupy.lib, lib.stride_tricks = linalg, random, cuda, lib, tricks
    # Like the real package, `cupy.cuda` has no attribute `nccl` before `cupy.cuda.nccl` was imported.
    found = {m.__name__: m for m in (cupy, linalg, random, cuda, runtime, lib, tricks, core)}
    found["cupy.cuda.nccl"] = nccl.module()
    for name in ("cupy", "cupy.cuda", "cupy.lib"):
        found[name].__path__ = []
    return found


@contextlib.contextmanager
def installed(devices: int = 1) -> Iterator[timeline.State]:
    """Have ``import cupy`` give the stand-in, with so many devices; at the end no rule may have been broken."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "cupy"}
    for name in before:
        del sys.modules[name]
    timeline.reset(devices)
    sys.modules.update(build())
    try:
        yield state()
        assert not state().violations, state().violations
    finally:
        kernels.address_table.cache_clear()
        kernels.compiled.cache_clear()
        for key in [key for key in _threads.by_device if key[0] == "cuda"]:
            del _threads.by_device[key]
        for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
            del sys.modules[name]
        sys.modules.update(before)
