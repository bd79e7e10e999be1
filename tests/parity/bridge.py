"""Carries values from PyTorch to ddpflow and compares what comes back."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import ddpflow

__all__ = ["array_of", "difference", "find", "flatten", "grad_leaves", "holds_module", "to_ours"]


def find(name: str) -> Callable[..., Any] | None:
    """Returns ddpflow's function of PyTorch's name ("softmax", "nn.functional.gelu", "__add__"), or None."""
    place: Any = ddpflow
    for part in name.split("."):
        place = getattr(place, part, None)
    if place is None and hasattr(ddpflow.Tensor, name):
        return getattr(ddpflow.Tensor, name)
    return place if callable(place) else None


def to_ours(value: Any, leaves: list[Any]) -> Any:
    """Returns `value` with ddpflow tensors, dtypes and devices; appends those that require grad to `leaves`."""
    if isinstance(value, torch.Tensor):
        ours = ddpflow.from_numpy(np.array(value.detach().numpy()))
        if value.requires_grad:
            leaves.append(ours.requires_grad_())
        return ours
    if isinstance(value, torch.dtype):
        return getattr(ddpflow, str(value).removeprefix("torch."))
    if callable(value) and getattr(value, "__module__", None) in ("torch", "torch._C._nn", "torch.nn.functional"):
        return getattr(ddpflow.nn.functional, value.__name__)
    if isinstance(value, torch.device):
        return ddpflow.device(str(value))
    if isinstance(value, torch.Size):
        return tuple(value)
    if type(value) in (list, tuple):
        return type(value)(to_ours(part, leaves) for part in value)
    if isinstance(value, dict):
        return {key: to_ours(part, leaves) for key, part in value.items()}
    return value


def grad_leaves(value: Any) -> Iterator[torch.Tensor]:
    """Yields PyTorch's tensors in `value` that require grad, in the order in which `to_ours` appends."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from grad_leaves(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from grad_leaves(part)


def holds_module(value: Any) -> bool:
    """Returns whether `value` contains one of PyTorch's modules, which has no counterpart of ours with its weights."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(holds_module(part) for part in value)
    return isinstance(value, torch.nn.Module)


def flatten(value: Any) -> list[Any]:
    """Returns the parts of nested lists and tuples, in order."""
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in flatten(part)]
    return [value]


def array_of(value: Any) -> np.ndarray:
    """Returns the numbers of a tensor of either library."""
    if isinstance(value, torch.Tensor):
        return value.numpy(force=True)
    return np.asarray(value.detach().numpy() if isinstance(value, ddpflow.Tensor) else value)


def difference(ours: Any, theirs: Any, rtol: float, atol: float) -> str | None:
    """Returns how two results differ in shape, dtype or value, or None if they agree."""
    a, b = array_of(ours), array_of(theirs)
    if a.shape != b.shape:
        return f"shape {a.shape}, not {b.shape}"
    if a.dtype != b.dtype:
        return f"dtype {a.dtype}, not {b.dtype}"
    if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return f"values differ:\n{a}\nnot\n{b}"
    return None
