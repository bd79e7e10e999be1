"""Where arrays live: devices, the array module of an array, and the doors through which raw arrays pass.

CuPy is looked up among the modules already loaded and imported only when a user asks for a GPU.
"""

import os
import sys
import threading
from typing import Any

import numpy as np

from ddpflow.errors import DeviceError
from ddpflow.pinned import empty_pinned, from_gpu, into_pinned, is_pinned, to_gpu
from ddpflow.precision import choose_precision, follow_precision

__all__ = [
    "Device",
    "array_module",
    "as_device",
    "copy_to_pinned",
    "current_gpu",
    "device_of",
    "gpu_array",
    "lies_on_gpu",
    "lies_pinned",
    "mark_modified",
    "move",
    "pinned",
    "required_cupy",
    "unwrap",
    "usable_cupy",
    "use_gpu",
    "use_precision",
]


class Device:
    """A place for tensors: ``Device("cpu")``, ``Device("cuda:1")`` or ``Device("cuda", 1)``.

    Raises:
        DeviceError: When the type is neither ``cpu`` nor ``cuda``.
    """

    __slots__ = ("index", "type")

    def __init__(self, type: Any, index: int | None = None) -> None:
        if isinstance(type, Device):
            type, index = type.type, type.index if index is None else index
        elif isinstance(type, int):
            type, index = "cuda", type
        elif ":" in type:
            type, _, text = type.partition(":")
            if not text.isdigit():
                raise DeviceError(f"device index {text!r} is not a number; write it like 'cuda:0'")
            index = int(text)
        if type not in ("cpu", "cuda"):
            raise DeviceError(f"device type {type!r} does not exist here; use 'cpu' or 'cuda'")
        self.type: str = type
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


_CPU = Device("cpu")
_DLPACK_GPU = (2, 13)  # DLPack's kinds of devices: CUDA's memory, and CUDA's managed memory
# What launchers call a process's number on its host: torchrun and ddprun, Open MPI, Slurm, MPICH.
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")


def as_device(value: Any) -> Device:
    """A `Device` from a Device, a string, an index, or None (the CPU)."""
    if value is None:
        return _CPU
    return value if isinstance(value, Device) else Device(value)


def array_module(array: Any) -> Any:
    """The module whose functions take this array: NumPy, or CuPy for CuPy arrays. Never imports CuPy."""
    if type(array) is np.ndarray:
        return np
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return cupy
    return np


def lies_on_gpu(value: Any) -> bool:
    """Whether a value is an array on a GPU, of CuPy or of another library."""
    if hasattr(value, "__cuda_array_interface__"):
        return True
    place = getattr(value, "__dlpack_device__", None)
    return place is not None and place()[0] in _DLPACK_GPU


def gpu_array(value: Any) -> Any:
    """CuPy's array on the memory of an array on a GPU: itself, or one that shares another library's memory.

    By DLPack where the other library has it: then the current stream waits for what wrote the memory, and the host for
    nothing. By ``__cuda_array_interface__`` otherwise: the host waits for the stream that the interface names, if any.
    """
    cupy = required_cupy()
    if isinstance(value, cupy.ndarray):
        return value
    return cupy.from_dlpack(value) if hasattr(value, "__dlpack__") else cupy.asarray(value)


def device_of(array: Any) -> Device:
    """The device that holds the array."""
    if type(array) is np.ndarray or array_module(array) is np:
        return _CPU
    return Device("cuda", array.device.id)


def move(array: Any, device: Device, non_blocking: bool = False) -> Any:
    """The array on the given device: itself when it is there already, else a copy.

    Args:
        array: The array.
        device: Where to.
        non_blocking: Between a GPU and pinned memory, let the GPU copy while the host goes on; to the CPU the result
            is pinned. The caller must synchronise before the host changes the source or reads the result.

    Raises:
        DeviceError: When the device is a GPU and CuPy is not installed, sees no GPU, or none of that number.
    """
    if device_of(array).type == device.type and (device.type == "cpu" or device.index in (None, array.device.id)):
        return array
    if device.type == "cpu":
        with array.device:
            return from_gpu(array_module(array), array, non_blocking)
    cupy = required_cupy()
    with _place(cupy, device.index):
        return to_gpu(cupy, array, non_blocking) if isinstance(array, np.ndarray) else _from_other_gpu(cupy, array)


def pinned(array: Any) -> Any:
    """A copy of a NumPy array in pinned memory; itself when it is there already, or no GPU can be used.

    Raises:
        DeviceError: When the array is on a GPU.
    """
    if device_of(array).type != "cpu":
        raise DeviceError("only main memory can be pinned; this array is on a GPU")
    cupy = usable_cupy()
    if cupy is None or is_pinned(cupy, array):
        return array
    copy = empty_pinned(cupy, array.shape, array.dtype)
    copy[...] = array
    return copy


def lies_pinned(array: Any) -> bool:
    """Whether an array is NumPy's and lies in pinned memory; never imports CuPy."""
    cupy = usable_cupy() if isinstance(array, np.ndarray) and "cupy" in sys.modules else None
    return cupy is not None and is_pinned(cupy, array)


def copy_to_pinned(source: Any, target: Any) -> bool:
    """Let a GPU copy an array of its own into pinned memory of the same shape and dtype, while the host goes on.

    Returns:
        False when the target is nothing of the kind; then nothing was done.
    """
    if device_of(source).type == "cpu" or device_of(target).type != "cpu":
        return False
    with source.device:
        return into_pinned(array_module(source), source, target)


def _from_other_gpu(cupy: Any, array: Any) -> Any:
    """A copy on the current GPU; the streams of both wait for each other, the host for none."""
    here, copied = cupy.cuda.get_current_stream(), cupy.cuda.Event(disable_timing=True)
    with cupy.cuda.Device(array.device.id):
        there = cupy.cuda.get_current_stream()
        ready = cupy.cuda.Event(disable_timing=True)
        ready.record(there)
    here.wait_event(ready)
    result = array.copy()
    copied.record(here)
    with cupy.cuda.Device(array.device.id):
        there.wait_event(copied)
    return result


class _Chosen(threading.local):
    """Whether this thread has chosen its GPU."""

    done = False


_chosen = _Chosen()


def current_gpu() -> int:
    """The number of this thread's current GPU: at first that of this process's LOCAL_RANK, round and round.

    Raises:
        DeviceError: When there is no usable GPU.
    """
    cupy = required_cupy()
    runtime = cupy.cuda.runtime
    if not _chosen.done:
        _chosen.done = True
        # Read here, not in comm/env.py: a model may be put on its GPU before anything of comm is loaded.
        local_rank = next((os.environ[name] for name in _LOCAL_RANKS if name in os.environ), "")
        if local_rank.isdigit() and not runtime.getDevice():  # another number was chosen through CuPy itself
            cupy.cuda.Device(int(local_rank) % runtime.getDeviceCount()).use()
    follow_precision(cupy)
    return int(runtime.getDevice())


def use_gpu(index: int) -> None:
    """Make a GPU this thread's current one.

    Raises:
        DeviceError: When there is no such GPU.
    """
    cupy = required_cupy()
    _place(cupy, index).use()
    _chosen.done = True
    follow_precision(cupy)


def use_precision(level: str) -> None:
    """Choose how exactly GPUs multiply float32 matrices; other threads follow when they next make a GPU tensor.

    Raises:
        ValueRangeError: When it is none of highest, high, medium.
    """
    choose_precision(level)
    cupy = usable_cupy() if _chosen.done else None
    if cupy is not None:
        follow_precision(cupy)


def _place(cupy: Any, index: int | None) -> Any:
    """CuPy's device of a number, or the current one."""
    count = int(cupy.cuda.runtime.getDeviceCount())
    if index is not None and not 0 <= index < count:
        raise DeviceError(f"there is no GPU {index}; this machine has {count}")
    return cupy.cuda.Device(current_gpu() if index is None else index)


def usable_cupy() -> Any:
    """CuPy when it is installed and sees a GPU, else None."""
    try:
        return required_cupy()
    except DeviceError:
        return None


def required_cupy() -> Any:
    """CuPy, imported now if need be.

    Raises:
        DeviceError: It is not installed, or sees no GPU; the text says what to do.
    """
    try:
        import cupy
    except ImportError:
        raise DeviceError("no CuPy here, so no GPU tensors: pip install 'ddpflow[cuda13]' (or cuda12)") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"CuPy is installed but CUDA answers: {error}; is there a GPU and a driver?") from None
    if count == 0:
        raise DeviceError("CuPy is installed but no GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES")
    return cupy


def unwrap(value: Any) -> Any:
    """The raw array inside a tensor (its attribute ``array``), or the value itself."""
    return value if type(value) is np.ndarray else getattr(value, "array", value)


def mark_modified(value: Any) -> None:
    """Tell a tensor that its array was written from outside, so that a stale graph is noticed."""
    bump = getattr(value, "bump_version", None)
    if bump is not None:
        bump()
