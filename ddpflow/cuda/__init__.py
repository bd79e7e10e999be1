"""GPUs under PyTorch's names. Asking whether there is one imports CuPy only where it is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpflow.cuda import amp
from ddpflow.cuda.graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from ddpflow.cuda.streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    gpu_number,
    set_stream,
    stream,
)
from ddpflow.device import current_gpu, usable_cupy, use_gpu
from ddpflow.errors import DeviceError
from ddpflow.random import default_generator
from ddpflow.random import manual_seed as _manual_seed

__all__ = [
    "CUDAGraph",
    "Event",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "graph",
    "graph_pool_handle",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
]


def _cupy() -> Any:
    """CuPy; for functions that make no sense without a GPU."""
    cupy = usable_cupy()
    if cupy is None:
        raise DeviceError(
            "there is no GPU here that CuPy can use: see nvidia-smi, and pip install 'ddpflow[cuda13]' (or cuda12)"
        )
    return cupy


def is_available() -> bool:
    """True when CuPy is installed and sees a GPU."""
    return usable_cupy() is not None


def is_initialized() -> bool:
    """True when a GPU can be used; there is nothing to initialise."""
    return is_available()


def device_count() -> int:
    """The number of GPUs that can be used."""
    cupy = usable_cupy()
    return 0 if cupy is None else int(cupy.cuda.runtime.getDeviceCount())


def current_device() -> int:
    """The number of this thread's current GPU."""
    _cupy()
    return current_gpu()


def set_device(device: Any) -> None:
    """Make a GPU this thread's current one.

    Raises:
        DeviceError: When there is no such GPU.
    """
    index = gpu_number(device)
    if not 0 <= index < device_count():
        raise DeviceError(f"there is no GPU {index}; this machine has {device_count()}")
    use_gpu(index)


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Make a GPU the current one inside a ``with`` block."""
    with _cupy().cuda.Device(gpu_number(device)):
        current_gpu()  # its cuBLAS handle learns of the precision that was chosen
        yield


def synchronize(device: Any = None) -> None:
    """Wait until a GPU has finished all work."""
    _cupy().cuda.Device(gpu_number(device)).synchronize()


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    name = _cupy().cuda.runtime.getDeviceProperties(gpu_number(device))["name"]
    return str(name.decode() if isinstance(name, bytes) else name)


def get_device_properties(device: Any = None) -> dict[str, Any]:
    """What CUDA tells of a GPU, by CUDA's names."""
    return dict(_cupy().cuda.runtime.getDeviceProperties(gpu_number(device)))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU, such as ``(9, 0)``."""
    found = get_device_properties(device)
    return int(found["major"]), int(found["minor"])


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True when the GPU computes in bfloat16 (compute capability 8.0 and later)."""
    return is_available() and get_device_capability() >= (8, 0)


def manual_seed(seed: int) -> None:
    """Start this thread's streams anew from a seed."""
    _manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Start this thread's streams, on every device, anew from a seed."""
    _manual_seed(seed)


def get_rng_state(device: Any = None) -> Any:
    """The state of a GPU's random stream.

    Raises:
        DeviceError: Always: CuPy's generators do not tell their state; repeat a stream with `manual_seed`.
    """
    return default_generator(f"cuda:{gpu_number(device)}").get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Put back the state of a GPU's random stream."""
    default_generator(f"cuda:{gpu_number(device)}").set_state(new_state)


def empty_cache() -> None:
    """Give unused GPU memory back to the system."""
    cupy = usable_cupy()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""
    free, total = _cupy().cuda.Device(gpu_number(device)).mem_info
    return int(free), int(total)


def memory_allocated(device: Any = None) -> int:
    """Bytes of GPU memory in use."""
    return _of_pool("used_bytes", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes of GPU memory that the pool holds, in use or not."""
    return _of_pool("total_bytes", device)


def _of_pool(question: str, device: Any) -> int:
    cupy = usable_cupy()
    if cupy is None:
        return 0
    with cupy.cuda.Device(gpu_number(device)):  # CuPy answers for the current device
        return int(getattr(cupy.get_default_memory_pool(), question)())


def max_memory_allocated(device: Any = None) -> int:
    """Bytes of GPU memory that the pool holds: an upper bound of the peak, which CuPy does not count."""
    return memory_reserved(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Give unused memory back, so that `max_memory_allocated` counts anew."""
    empty_cache()
