"""Pinned main memory, and copies between it and GPUs that do not make the host wait.

A GPU copies from and to pinned memory by itself while the host goes on. Until such a copy has ended its memory must
not be handed out again, so it is kept here with an event that tells the end; values are the user's to order, as in
PyTorch: write to the source, or read the result, only after a synchronisation.
"""

import math
import threading
from collections import deque
from typing import Any

import numpy as np

from ddpflow.capture import capturing
from ddpflow.errors import DeviceError

__all__ = ["empty_pinned", "from_gpu", "into_pinned", "is_pinned", "to_gpu"]

_lock = threading.Lock()
_in_flight: dict[int, deque[tuple[Any, Any]]] = {}  # for each GPU: events, and the arrays that copies before them use


def empty_pinned(cupy: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An uninitialised NumPy array in pinned memory, from CuPy's pool of it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, buffer=cupy.cuda.alloc_pinned_memory(max(1, size)))


def is_pinned(cupy: Any, array: np.ndarray) -> bool:
    """Whether a NumPy array lies in pinned memory, whoever made it."""
    runtime = cupy.cuda.runtime
    address = array.__array_interface__["data"][0]
    return bool(runtime.pointerGetAttributes(address).type == runtime.memoryTypeHost)


def to_gpu(cupy: Any, array: np.ndarray, non_blocking: bool) -> Any:
    """A copy on the current GPU, made on the current stream.

    CuPy copies pageable memory through a pinned buffer of its own, so the host may change the array at once. From
    pinned memory it copies straight; then the host waits, unless the caller answers for the order.

    Raises:
        DeviceError: While a CUDA graph is captured: CuPy would ask and keep an event that belongs to the graph.
    """
    if capturing() is not None:
        raise DeviceError(
            "data from main memory cannot be part of a CUDA graph: have a tensor on the GPU that the graph uses, and "
            "copy_ into it before each replay"
        )
    pinned = is_pinned(cupy, array)
    result = cupy.asarray(array, blocking=pinned and not non_blocking)
    if pinned and non_blocking:
        _keep(cupy, array)
    return result


def from_gpu(cupy: Any, array: Any, non_blocking: bool) -> np.ndarray:
    """A copy in main memory; with ``non_blocking`` it is pinned, and filled once the current stream gets there."""
    if not non_blocking:
        return cupy.asnumpy(array)  # type: ignore[no-any-return]
    result = empty_pinned(cupy, array.shape, array.dtype)
    _fill(cupy, array, result)
    return result


def into_pinned(cupy: Any, source: Any, target: np.ndarray) -> bool:
    """Copies into pinned memory when the current stream gets there; returns False, having done nothing, elsewhere."""
    fits = source.shape == target.shape and source.dtype == target.dtype and target.flags.c_contiguous
    if not (fits and is_pinned(cupy, target)):
        return False
    _fill(cupy, source, target)
    return True


def _fill(cupy: Any, source: Any, target: np.ndarray) -> None:
    source.get(out=target, blocking=False)
    _keep(cupy, target)


def _keep(cupy: Any, array: np.ndarray) -> None:
    """Keeps an array until the current stream has come to here; lets go of those whose copies have ended."""
    capture = capturing()
    if capture is not None:  # each replay copies there again
        capture.keep(array)
        return
    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    with _lock:
        flight = _in_flight.setdefault(int(cupy.cuda.runtime.getDevice()), deque())
        while flight and flight[0][0].done:
            flight.popleft()
        flight.append((event, array))
