"""Collectives of Python objects, pickled into byte arrays.

Unpickling runs code that the sender chooses: use these among the processes of one job, where all ranks are yours.
"""

import pickle
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.world import NonMember, get_global_rank, resolve
from ddpflow.errors import ValueRangeError

__all__ = [
    "all_gather_object",
    "broadcast_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]

Group = ProcessGroup | NonMember | None
Timeout = float | timedelta | None


def _pack(value: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL), np.uint8)


def _unpack(data: np.ndarray) -> Any:
    return pickle.loads(data.data)


def _root(group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    if rank is not None and group_rank is not None:
        raise ValueRangeError("give the rank as a global rank or as an index in the group, not both")
    if group_rank is not None:
        return get_global_rank(group, group_rank)
    return group.ranks[0] if rank is None else rank


def _gather_bytes(group: ProcessGroup, value: Any, timeout: Timeout) -> list[np.ndarray]:
    """Returns the pickled objects of all ranks: their lengths first, then all of them padded to the longest."""
    data = _pack(value)
    lengths = np.empty(group.size(), np.int64)
    group.all_gather_into_tensor(lengths, np.array([data.size]), timeout=timeout, tag="lengths of objects")
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: data.size] = data
    whole = np.empty((group.size(), padded.size), np.uint8)
    group.all_gather_into_tensor(whole, padded, timeout=timeout, tag="objects")
    return [row[:n] for row, n in zip(whole, lengths, strict=True)]


def all_gather_object(object_list: list[Any], obj: Any, group: Group = None, *, timeout: Timeout = None) -> None:
    """Puts the objects of all ranks into ``object_list`` (one place per rank), on every rank."""
    pg = resolve(group, "all_gather_object")
    if pg is None:
        return
    _check_places(object_list, pg.size(), "all_gather_object")
    object_list[:] = [_unpack(data) for data in _gather_bytes(pg, obj, timeout)]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
    *,
    timeout: Timeout = None,
) -> None:
    """Puts the objects of all ranks into ``object_gather_list`` of rank ``dst``; the list is None elsewhere."""
    pg = resolve(group, "gather_object")
    if pg is None:
        return
    here = pg.spec.rank == _root(pg, dst, group_dst)
    if here != (object_gather_list is not None):
        raise ValueRangeError("gather_object: the destination, and only it, gives object_gather_list")
    if object_gather_list is not None:
        _check_places(object_gather_list, pg.size(), "gather_object")
    gathered = _gather_bytes(pg, obj, timeout)
    if object_gather_list is not None:
        object_gather_list[:] = [_unpack(data) for data in gathered]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> None:
    """Replaces the objects in ``object_list`` by those of rank ``src``; the lists must have one length."""
    pg = resolve(group, "broadcast_object_list")
    if pg is None:
        return
    root = _root(pg, src, group_src)
    here = pg.spec.rank == root
    received = _broadcast_bytes(pg, object_list if here else None, root, timeout)
    if not here:
        if len(received) != len(object_list):
            raise ValueRangeError(
                f"broadcast_object_list: rank {root} sent {len(received)} objects, this list has {len(object_list)}"
            )
        object_list[:] = received


def broadcast_object(obj: Any, src: int | None = None, group: Group = None, *, timeout: Timeout = None) -> Any:
    """Returns rank ``src``'s object on every rank."""
    pg = resolve(group, "broadcast_object")
    if pg is None:
        return obj
    return _broadcast_bytes(pg, obj, _root(pg, src, None), timeout)


def _broadcast_bytes(group: ProcessGroup, value: Any, root: int, timeout: Timeout) -> Any:
    here = group.spec.rank == root
    data = _pack(value) if here else np.empty(0, np.uint8)
    length = np.array([data.size])
    group.broadcast(length, root, timeout=timeout, tag="length of object")
    if not here:
        data = np.empty(int(length[0]), np.uint8)
    group.broadcast(data, root, timeout=timeout, tag="object")
    return value if here else _unpack(data)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> None:
    """Puts object r of rank ``src``'s list into ``scatter_object_output_list[0]`` of rank r."""
    pg = resolve(group, "scatter_object_list")
    if pg is None:
        return
    if not scatter_object_output_list:
        raise ValueRangeError("scatter_object_list: the output list needs one place")
    root = _root(pg, src, group_src)
    parts: list[np.ndarray] | None = None
    lengths = np.zeros(pg.size(), np.int64)
    if pg.spec.rank == root:
        if scatter_object_input_list is None:
            raise ValueRangeError(f"scatter_object_list: rank {root} must give the list of objects")
        _check_places(scatter_object_input_list, pg.size(), "scatter_object_list")
        parts = [_pack(value) for value in scatter_object_input_list]
        lengths[:] = [part.size for part in parts]
    pg.broadcast(lengths, root, timeout=timeout, tag="lengths of objects")
    longest = int(lengths.max())
    if parts is not None:
        parts = [np.pad(part, (0, longest - part.size)) for part in parts]
    own = np.empty(longest, np.uint8)
    pg.scatter(own, parts, root, timeout=timeout, tag="objects")
    scatter_object_output_list[0] = _unpack(own[: lengths[pg.rank()]])


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: Group = None,
    device: Any = None,
    group_dst: int | None = None,
    *,
    timeout: Timeout = None,
) -> None:
    """Sends a list of objects to rank ``dst``."""
    pg = resolve(group, "send_object_list")
    if pg is not None:
        root = _root(pg, dst, group_dst)
        data = _pack(list(object_list))
        pg.send(np.array([data.size]), root, timeout=timeout)
        pg.send(data, root, timeout=timeout)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: Any = None,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> int:
    """Receives a list of objects into ``object_list`` from rank ``src`` (None: any); returns the sender's rank."""
    pg = resolve(group, "recv_object_list")
    if pg is None:
        return -1
    source = None if src is None and group_src is None else _root(pg, src, group_src)
    length = np.empty(1, np.int64)
    sender = pg.recv(length, source, timeout=timeout).source_rank()
    data = np.empty(int(length[0]), np.uint8)
    pg.recv(data, sender, timeout=timeout)
    received = _unpack(data)
    if len(received) != len(object_list):
        raise ValueRangeError(f"recv_object_list: rank {sender} sent {len(received)} objects, not {len(object_list)}")
    object_list[:] = received
    return sender


def _check_places(places: Sequence[Any], size: int, what: str) -> None:
    if len(places) != size:
        raise ValueRangeError(f"{what} needs a list with one place per rank, {size} in all, not {len(places)}")
