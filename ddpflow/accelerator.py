"""The accelerator of this machine, whatever its kind: here, a CUDA GPU."""

from typing import Any

from ddpflow import cuda
from ddpflow.device import Device

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "is_available",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """True when there is an accelerator."""
    return cuda.is_available()


def device_count() -> int:
    """The number of accelerators."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The kind of accelerator here, as a device without a number; None when there is none."""
    return Device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The number of this thread's current accelerator."""
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """Make an accelerator this thread's current one."""
    cuda.set_device(device)


def set_device_idx(device: Any) -> None:
    """Make an accelerator this thread's current one: `set_device_index` under its older name."""
    cuda.set_device(device)


def synchronize(device: Any = None) -> None:
    """Wait until an accelerator has finished all work."""
    cuda.synchronize(device)
