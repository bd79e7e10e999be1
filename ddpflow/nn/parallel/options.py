"""The arguments of DistributedDataParallel: what makes no sense, and PyTorch's that are not needed here."""

from typing import Any

from ddpflow.errors import DdpflowError, DtypeError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parallel.managed import managed_parameters
from ddpflow.nn.parallel.mixed_precision import MixedPrecision

__all__ = ["check_options"]


_WORDS = {"unused": (None, "zero", "none", "error"), "buffers": ("broadcast", "average")}
_INSTEAD = {
    "delay_all_reduce_named_params": "keep gradients local with no_sync() and average them with sync_gradients()",
    "param_to_hook_all_reduce": "it goes with delay_all_reduce_named_params",
    "device_mesh": "pass a process_group",
    "bucket_cap_mb_list": "use bucket_cap_mb and first_bucket_mb",
}


def check_options(
    module: Any,
    *,
    devices: dict[str, Any],
    caps: dict[str, Any],
    words: dict[str, Any],
    comm_hook: Any,
    mixed_precision: Any,
    foreign: dict[str, Any],
) -> DdpflowError | None:
    """What is wrong with the arguments; an error to be raised on all ranks, or None.

    Args:
        module: What is to be wrapped.
        devices: ``device_ids`` and ``output_device``.
        caps: Sizes in MiB, by name.
        words: Options that are one of some words, by name.
        comm_hook: The hook, or None.
        mixed_precision: The types, or None.
        foreign: PyTorch's arguments that would mean something and that do not exist here.
    """
    if not isinstance(module, Module):
        return DtypeError(f"DistributedDataParallel wraps an nn.Module, not {type(module).__name__}")
    for name, word in words.items():
        if word not in _WORDS[name]:
            known = [repr(w) for w in _WORDS[name] if w is not None]
            return ValueRangeError(f"{name}={word!r}: choose {', '.join(known[:-1])} or {known[-1]}")
    for name, value in caps.items():
        if value is not None and not value > 0:
            return ValueRangeError(f"{name} must be positive, not {value}")
    if comm_hook is not None and not callable(comm_hook):
        return DtypeError(f"comm_hook: a communication hook must be callable, not {type(comm_hook).__name__}")
    if mixed_precision is not None and not isinstance(mixed_precision, MixedPrecision):
        return DtypeError(f"mixed_precision takes a MixedPrecision, not {type(mixed_precision).__name__}")
    for name, value in foreign.items():
        if value is not None:
            return ValueRangeError(f"{name} is not supported: {_INSTEAD[name]}")
    return _check_devices(module, **devices)


def _check_devices(module: Module, device_ids: Any, output_device: Any) -> DdpflowError | None:
    """One process drives one device, and a model on a GPU must lie where ``device_ids`` says."""
    if device_ids is not None and len(device_ids) > 1:
        return ValueRangeError(f"device_ids {list(device_ids)}: one process drives one device; start one for each")
    given = [("device_ids", device) for device in device_ids or ()]
    if output_device is not None:
        given.append(("output_device", output_device))
    params = [p for _, p in managed_parameters(module)]
    if not given or not params or params[0].device.type == "cpu":  # on the CPU there is nothing to choose
        return None
    there = params[0].device
    for name, device in given:
        index = device if isinstance(device, int) else getattr(device, "index", None)
        if isinstance(device, str):
            index = int(device.partition(":")[2]) if ":" in device else None
        if index is not None and index != there.index:
            return ValueRangeError(f"{name} says {device}, but the model lies on {there}: move it there first")
    return None
