"""Putting batches into pinned memory, so that a GPU can fetch them while the host goes on."""

from collections.abc import Mapping
from typing import Any

from ddpflow.autograd.tensor import Tensor

__all__ = ["pin_batch"]


def pin_batch(batch: Any) -> Any:
    """A batch with its tensors in pinned memory.

    Lists, tuples (named ones too) and mappings are gone through; an object of another kind is asked to pin itself when
    it has a method ``pin_memory``, as in PyTorch; everything else, and tensors on a GPU, stay as they are.
    """
    if isinstance(batch, Tensor):
        return batch.pin_memory() if batch.is_cpu else batch
    if isinstance(batch, Mapping):
        parts = {key: pin_batch(value) for key, value in batch.items()}
        return parts if type(batch) is dict else type(batch)(parts)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*[pin_batch(part) for part in batch])
    if isinstance(batch, (tuple, list)):
        return type(batch)([pin_batch(part) for part in batch])
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch
