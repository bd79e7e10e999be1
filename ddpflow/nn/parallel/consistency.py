"""Proof that ranks still agree: digests of parameters, buffers and optimizer state; non-finite gradients by name."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.comm.objects import all_gather_object
from ddpflow.device import array_module
from ddpflow.errors import MismatchError, NonFiniteError
from ddpflow.nn.parallel.managed import managed_buffers, managed_parameters

__all__ = ["check_consistency", "check_finite"]


def check_consistency(group: Any, module: Any, optimizer: Any = None) -> None:
    """Compare every parameter, buffer and, with an optimizer, its state and options across the group, bit for bit.

    Args:
        group: The ranks; all of them must call it.
        module: The model.
        optimizer: Its optimizer.

    Raises:
        MismatchError: On every rank; names the first entry that differs, and which ranks agree on it.
    """
    names, digests = [], []
    for name, value in _entries(module, optimizer):
        names.append(name)
        digests.append(_digest(value))
    whole = hashlib.sha256("\n".join([*names, *digests]).encode()).hexdigest()
    found: list[Any] = [None] * group.size()
    all_gather_object(found, whole, group)
    if len(set(found)) == 1:
        return
    everyone: list[Any] = [None] * group.size()
    all_gather_object(everyone, dict(zip(names, digests, strict=True)), group)
    for name in dict.fromkeys(n for entries in everyone for n in entries):
        camps: dict[Any, list[int]] = {}
        for i, entries in enumerate(everyone):
            camps.setdefault(entries.get(name), []).append(group.ranks[i])
        if len(camps) > 1:
            sides = " and ".join(
                f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" + ("" if digest else " (absent)")
                for digest, ranks in camps.items()
            )
            raise MismatchError(f"{name} is not the same on all ranks: it differs between {sides}")


def _entries(module: Any, optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Everything that must agree, with the name an error calls it by."""
    names: dict[int, str] = {}
    for name, p in managed_parameters(module):
        names[id(p)] = name
        yield f"parameter {name}", p
    for name, b in managed_buffers(module):
        yield f"buffer {name}", b
    if optimizer is None:
        return
    for i, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key not in ("params", "param_names"):
                yield f"optimizer option {key} of group {i}", value
        for j, p in enumerate(group["params"]):
            name = names.get(id(p), f"parameter {j} of group {i}")
            for key, value in sorted(optimizer.state.get(p, {}).items()):
                yield f"optimizer state {key} of {name}", value


def _digest(value: Any) -> str:
    if isinstance(value, TensorBase):
        array = value.array
        host = array if isinstance(array, np.ndarray) else array_module(array).asnumpy(array)
        data = f"{host.dtype}{host.shape}".encode() + np.ascontiguousarray(host).tobytes()
    else:
        data = repr(value).encode()
    return hashlib.sha256(data).hexdigest()


def check_finite(bucket: Any, rank: int) -> None:
    """Refuse a bucket of local gradients with an infinity or NaN, before averaging spreads it.

    Raises:
        NonFiniteError: With the rank, the first such parameter, and how many of its elements are not finite.
    """
    xp = array_module(bucket.flat)
    if xp.isfinite(bucket.flat).all():
        return
    for name, view in zip(bucket.names, bucket.views, strict=True):
        bad = view.size - int(xp.isfinite(view).sum())
        if bad:
            kind = "NaN" if xp.isnan(view).any() else "infinity"
            raise NonFiniteError(
                f"rank {rank}: the local gradient of {name} has {kind} in {bad} of {view.size} elements; "
                "it was not averaged into the other ranks'"
            )
