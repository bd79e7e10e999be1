"""Making models equal across ranks, and proving that they are: fingerprints and flat broadcasts."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ddpflow.comm.objects import all_gather_object
from ddpflow.comm.reduce import ReduceOp
from ddpflow.device import array_module
from ddpflow.errors import MismatchError, ValueRangeError
from ddpflow.nn.parallel.managed import managed_buffers, managed_parameters

__all__ = ["broadcast_tensors", "compare_models", "describe", "sync_buffers", "weight_factor"]

CHUNK_BYTES = 1 << 20  # of a flat broadcast: large enough to be cheap, small beside any model that is large


def describe(module: Any) -> list[str]:
    """One line for each parameter and buffer that is not ignored: everything that must be equal on all ranks.

    A parameter under several names has a line for each, and names the first.
    """
    first: dict[int, str] = {}
    lines = []
    for name, p in managed_parameters(module, remove_duplicate=False):
        tied = f", the same as {first[id(p)]}" if id(p) in first else ""
        first.setdefault(id(p), name)
        lines.append(f"{name}: shape {tuple(p.shape)}, {p.dtype.name}, requires_grad={p.requires_grad}{tied}")
    lines.extend(f"buffer {name}: shape {tuple(b.shape)}, {b.dtype.name}" for name, b in managed_buffers(module))
    return lines


def compare_models(
    group: Any, lines: Sequence[str], problem: Exception | None = None, options: dict[str, Any] | None = None
) -> None:
    """Compare `describe`'s lines across the group before anything else is sent.

    Args:
        group: The process group.
        lines: This rank's.
        problem: What this rank alone finds wrong; the first rank's is raised on all of them, with the text of all.
        options: What else must be equal, by name.

    Raises:
        MismatchError: When options or lines differ; the text shows the first difference with both sides.
    """
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    found: list[Any] = [None] * group.size()
    told = None if problem is None else (type(problem), str(problem))
    all_gather_object(found, (told, digest, {k: str(v) for k, v in (options or {}).items()}), group)
    problems = [(group.ranks[i], *entry[0]) for i, entry in enumerate(found) if entry[0] is not None]
    if problems:
        raise problems[0][1]("; ".join(f"rank {rank}: {text}" for rank, _, text in problems))
    for name, own in found[0][2].items():
        other = next((i for i, entry in enumerate(found) if entry[2].get(name) != own), None)
        if other is not None:
            raise MismatchError(
                f"the option {name} differs between ranks: it is {own} on rank {group.ranks[0]}, "
                f"{found[other][2].get(name)} on rank {group.ranks[other]}; give all ranks the same"
            )
    if len({entry[1] for entry in found}) == 1:
        return
    everyone: list[Any] = [None] * group.size()
    all_gather_object(everyone, list(lines), group)
    other = next(i for i, theirs in enumerate(everyone) if theirs != everyone[0])
    ours, theirs = everyone[0], everyone[other]
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    here = ours[at] if at < len(ours) else f"nothing (it has {len(ours)} parameters and buffers)"
    there = theirs[at] if at < len(theirs) else f"nothing (it has {len(theirs)} parameters and buffers)"
    raise MismatchError(
        f"the models differ between ranks: entry {at} on rank {group.ranks[0]} is [{here}], "
        f"on rank {group.ranks[other]} [{there}]; build the same model on every rank, with the same parameters frozen"
    )


def broadcast_tensors(group: Any, tensors: Sequence[Any], what: str, src: int | None = None) -> None:
    """Copy the values of one rank, the group's first when None, into the others' tensors, in place.

    Small ones are coalesced; large ones take no memory beside their own.
    """
    source = group.ranks[0] if src is None else src
    for chunk in _chunks(tensors):
        if len(chunk) == 1 and chunk[0].array.flags.c_contiguous:
            group.broadcast(chunk[0], source, tag=what)
            continue
        values = _received(group, chunk, what, source)
        if values is not None:
            for tensor, value in zip(chunk, values, strict=True):
                tensor.array[...] = value
                tensor.bump_version()


def sync_buffers(group: Any, buffers: Sequence[Any], average: bool = False) -> None:
    """Give all ranks the first rank's buffers, or the mean of floating ones.

    The tensors get new arrays, so that a graph that still holds the old values stays valid.
    """
    for chunk in _chunks([b for b in buffers if average and b.is_floating_point()]):
        flat = array_module(chunk[0].array).concatenate([b.array.reshape(-1) for b in chunk])
        group.all_reduce(flat, ReduceOp.AVG, tag="buffers")
        for buffer, value in zip(chunk, _split(flat, chunk), strict=True):
            buffer.array = value
    for chunk in _chunks([b for b in buffers if not average or not b.is_floating_point()]):
        values = _received(group, chunk, "buffers", group.ranks[0])
        if values is not None:
            for buffer, value in zip(chunk, values, strict=True):
                buffer.array = value


def weight_factor(group: Any, weight: float) -> float:
    """What this rank's gradients are to be multiplied by, so that the plain mean over ranks is the weighted one.

    Raises:
        ValueRangeError: On all ranks, when the weights add up to nothing.
    """
    total = np.array([weight], np.float64)
    group.all_reduce(total, ReduceOp.SUM, tag="weights of the ranks")
    if not total[0] > 0:
        raise ValueRangeError(f"the weights of all ranks add up to {total[0]:g}; at least one must be positive")
    return float(weight * group.size() / total[0])


def _received(group: Any, chunk: Sequence[Any], what: str, src: int) -> list[Any] | None:
    """The source's values, one array for each tensor; None on the source itself."""
    xp = array_module(chunk[0].array)
    flat = xp.concatenate([t.array.reshape(-1) for t in chunk])
    group.broadcast(flat, src, tag=what)
    if group.ranks[group.rank()] == src:
        return None
    return _split(flat, chunk)


def _split(flat: Any, like: Sequence[Any]) -> list[Any]:
    """Views of a flat array in the tensors' shapes."""
    values, start = [], 0
    for t in like:
        values.append(flat[start : start + t.array.size].reshape(t.array.shape))
        start += t.array.size
    return values


def _chunks(tensors: Sequence[Any]) -> Iterator[list[Any]]:
    """The tensors in runs of one dtype and device, each of at most `CHUNK_BYTES` or one tensor."""
    by_kind: dict[Any, list[Any]] = {}
    for t in tensors:
        by_kind.setdefault((t.array.dtype, t.device), []).append(t)
    for same in by_kind.values():
        chunk: list[Any] = []
        size = 0
        for t in same:
            if chunk and size + t.array.nbytes > CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(t)
            size += t.array.nbytes
        yield chunk
