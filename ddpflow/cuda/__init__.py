"""GPUs under PyTorch's names. Asking whether there is one imports CuPy only where it is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpflow.cuda import amp
from ddpflow.device import as_device, usable_cupy
from ddpflow.errors import DeviceError
from ddpflow.random import default_generator
from ddpflow.random import manual_seed as _manual_seed

__all__ = [
    "amp",
    "current_device",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_rng_state",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
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


def _index(place: Any) -> int:
    """The number of a device given as a number, a name or a device; the current one for None."""
    if place is None:
        return current_device()
    found = as_device(place)
    if found.type != "cuda":
        raise DeviceError(f"{found} is no GPU")
    return current_device() if found.index is None else found.index


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
    return int(_cupy().cuda.runtime.getDevice())


def set_device(device: Any) -> None:
    """Make a GPU this thread's current one.

    Raises:
        DeviceError: When there is no such GPU.
    """
    index = _index(device)
    if not 0 <= index < device_count():
        raise DeviceError(f"there is no GPU {index}; this machine has {device_count()}")
    _cupy().cuda.Device(index).use()


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Make a GPU the current one inside a ``with`` block."""
    with _cupy().cuda.Device(_index(device)):
        yield


def synchronize(device: Any = None) -> None:
    """Wait until a GPU has finished all work."""
    _cupy().cuda.Device(_index(device)).synchronize()


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    name = _cupy().cuda.runtime.getDeviceProperties(_index(device))["name"]
    return str(name.decode() if isinstance(name, bytes) else name)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True when the GPU computes in bfloat16 (compute capability 8.0 and later)."""
    cupy = usable_cupy()
    return cupy is not None and int(cupy.cuda.Device().compute_capability) >= 80


def manual_seed(seed: int) -> None:
    """Start this thread's streams anew from a seed."""
    _manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Start this thread's streams, on every device, anew from a seed."""
    _manual_seed(seed)


def get_rng_state(device: Any = None) -> Any:
    """The state of a GPU's random stream.

    Raises:
        DeviceError: Always, for now: CuPy's generators do not tell their state.
    """
    return default_generator(f"cuda:{_index(device)}").get_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Put back the state of a GPU's random stream."""
    default_generator(f"cuda:{_index(device)}").set_state(new_state)


def empty_cache() -> None:
    """Give unused GPU memory back to the system."""
    cupy = usable_cupy()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()


def memory_allocated(device: Any = None) -> int:
    """Bytes of GPU memory in use."""
    cupy = usable_cupy()
    return 0 if cupy is None else int(cupy.get_default_memory_pool().used_bytes())


def memory_reserved(device: Any = None) -> int:
    """Bytes of GPU memory that the pool holds, in use or not."""
    cupy = usable_cupy()
    return 0 if cupy is None else int(cupy.get_default_memory_pool().total_bytes())


def max_memory_allocated(device: Any = None) -> int:
    """Bytes of GPU memory that the pool holds: an upper bound of the peak, which CuPy does not count."""
    return memory_reserved(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Give unused memory back, so that `max_memory_allocated` counts anew."""
    empty_cache()
