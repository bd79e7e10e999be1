"""Names of transports, the classes behind them, and why one is not available."""

import importlib
from typing import Any

from ddpflow.comm.backend import Backend
from ddpflow.errors import BackendUnavailable, ConfigError

__all__ = ["backend_names", "is_backend_available", "load_backend", "parse_backend", "register_backend"]

_TARGETS = {
    "solo": "ddpflow.comm.backends.solo:SoloBackend",
    "thread": "ddpflow.comm.backends.thread:ThreadBackend",
    "shm": "ddpflow.comm.backends.shm:ShmBackend",
    "mpi": "ddpflow.comm.backends.mpi:MpiBackend",
    "nccl": "ddpflow.comm.backends.nccl:NcclBackend",
}
_USED_FOR = {
    "solo": "a world of one",
    "thread": "ranks that are threads, for tests",
    "shm": "CPU arrays on one host",
    "mpi": "CPU arrays across hosts",
    "nccl": "CuPy arrays",
}


def register_backend(name: str, target: str) -> None:
    """Makes a transport of your own known under ``name``.

    Args:
        name: The name to give to ``init_process_group``; lower-case letters, digits and underscores.
        target: Where the class is: ``"package.module:Class"``, a subclass of ``Backend``; imported when first used.

    Raises:
        ConfigError: The name is taken or malformed, or the target has another form.
    """
    if not name.isidentifier() or name != name.lower():
        raise ConfigError(f"a backend name is a lower-case identifier, not {name!r}")
    if target.count(":") != 1 or not all(target.split(":")):
        raise ConfigError(f"a backend target looks like 'package.module:Class', not {target!r}")
    if _TARGETS.get(name, target) != target:
        raise ConfigError(f"the backend name {name!r} already stands for {_TARGETS[name]}")
    _TARGETS[name] = target


def backend_names() -> list[str]:
    """Returns the known names."""
    return list(_TARGETS)


def load_backend(name: str) -> type[Backend]:
    """Returns the transport class of a name.

    Raises:
        ConfigError: The name is unknown; the text lists what exists.
        BackendUnavailable: Its module cannot be imported, or says that this machine lacks something.
    """
    if name not in _TARGETS:
        known = ", ".join(f"{n} ({_USED_FOR[n]})" if n in _USED_FOR else n for n in _TARGETS)
        raise ConfigError(f"there is no backend {name!r}; the backends are: {known}")
    module_name, class_name = _TARGETS[name].split(":")
    try:
        found: Any = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise BackendUnavailable(f"backend {name!r} ({_TARGETS[name]}) cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise BackendUnavailable(f"backend {name!r}: {_TARGETS[name]} is not a subclass of ddpflow.comm.Backend")
    reason = found.unavailable_reason()
    if reason is not None:
        raise BackendUnavailable(f"backend {name!r} is not available: {reason}")
    return found


def is_backend_available(backend: str) -> bool:
    """Whether the transport is known and can be used on this machine."""
    try:
        load_backend(backend)
    except (ConfigError, BackendUnavailable):
        return False
    return True


def parse_backend(text: str) -> dict[str, str]:
    """Returns device type -> transport name for "shm" or "cpu:shm,cuda:nccl".

    Raises:
        ConfigError: The text is malformed, or a transport does not carry the arrays of its device.
    """
    if ":" not in text:
        name = text.strip().lower()
        devices = load_backend(name).devices
        return dict.fromkeys(devices, name)
    result: dict[str, str] = {}
    for part in text.split(","):
        device, _, name = (piece.strip().lower() for piece in part.partition(":"))
        if device not in ("cpu", "cuda") or not name or device in result:
            raise ConfigError(f"a backend by device looks like 'cpu:shm,cuda:nccl', not {text!r}")
        if device not in load_backend(name).devices:
            raise ConfigError(f"backend {name!r} does not carry {device} arrays (in {text!r})")
        result[device] = name
    return result
