"""The everyday functions of ``torch.distributed``, with PyTorch's names, arguments and meaning.

Each takes Tensors or raw arrays and a ``group`` (None: the current group). Ranks are global; ``group_src`` and
``group_dst`` give a rank as an index of the group instead. ``async_op=True`` returns a Work; otherwise the call returns
None once the result is there. ``timeout`` (seconds or a timedelta) replaces the group's deadline for this call. A rank
outside the group gets a warning, and nothing is done.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import OutputWork, Work
from ddpflow.comm.world import NonMember, get_global_rank, resolve
from ddpflow.errors import ValueRangeError

__all__ = [
    "P2POp",
    "all_gather",
    "all_gather_into_tensor",
    "all_ranks_agree",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "gather",
    "irecv",
    "isend",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "root_of",
    "scatter",
    "send",
]

Group = ProcessGroup | NonMember | None
Timeout = float | timedelta | None


def root_of(
    group: ProcessGroup, rank: int | None, group_rank: int | None, name: str, default: int | None = None
) -> int:
    """Returns the global rank that was given as either; both, or neither without a default, is an error."""
    if rank is not None and group_rank is not None:
        raise ValueRangeError(f"give {name} or group_{name}, not both")
    if group_rank is not None:
        return get_global_rank(group, group_rank)
    if rank is None:
        if default is None:
            raise ValueRangeError(f"{name} (a global rank) or group_{name} (an index in the group) is needed")
        return group.ranks[default]
    return rank


def all_reduce(
    tensor: Any,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
    tag: str = "",
) -> Work | None:
    """Replaces ``tensor`` on every rank by the element-wise reduction over all ranks."""
    pg = resolve(group, "all_reduce")
    if pg is None:
        return None
    work = pg.all_reduce(tensor, op, async_op=async_op, timeout=timeout, tag=tag)
    return work if work is None else OutputWork(work, [tensor])


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Replaces ``tensor`` of rank ``dst`` by the reduction over all ranks."""
    pg = resolve(group, "reduce")
    if pg is None:
        return None
    return pg.reduce(tensor, root_of(pg, dst, group_dst, "dst"), op, async_op=async_op, timeout=timeout)


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
    tag: str = "",
) -> Work | None:
    """Copies ``tensor`` of rank ``src`` into that of all other ranks."""
    pg = resolve(group, "broadcast")
    if pg is None:
        return None
    return pg.broadcast(tensor, root_of(pg, src, group_src, "src"), async_op=async_op, timeout=timeout, tag=tag)


def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: Group = None, async_op: bool = False, *, timeout: Timeout = None
) -> Work | None:
    """Writes ``tensor`` of each rank r into ``tensor_list[r]`` on every rank."""
    pg = resolve(group, "all_gather")
    return None if pg is None else pg.all_gather(tensor_list, tensor, async_op=async_op, timeout=timeout)


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Group = None, async_op: bool = False, *, timeout: Timeout = None
) -> Work | None:
    """Writes ``input_tensor`` of all ranks, concatenated or stacked, into ``output_tensor`` on every rank."""
    pg = resolve(group, "all_gather_into_tensor")
    if pg is None:
        return None
    return pg.all_gather_into_tensor(output_tensor, input_tensor, async_op=async_op, timeout=timeout)


def gather(
    tensor: Any,
    gather_list: Sequence[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Writes ``tensor`` of each rank r into ``gather_list[r]`` on rank ``dst`` (default: the group's first)."""
    pg = resolve(group, "gather")
    if pg is None:
        return None
    return pg.gather(tensor, gather_list, root_of(pg, dst, group_dst, "dst", 0), async_op=async_op, timeout=timeout)


def scatter(
    tensor: Any,
    scatter_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Writes ``scatter_list[r]`` of rank ``src`` (default: the group's first) into ``tensor`` of each rank r."""
    pg = resolve(group, "scatter")
    if pg is None:
        return None
    return pg.scatter(tensor, scatter_list, root_of(pg, src, group_src, "src", 0), async_op=async_op, timeout=timeout)


def reduce_scatter(
    output: Any,
    input_list: Sequence[Any],
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Writes the reduction of all ranks' ``input_list[r]`` into ``output`` of rank r."""
    pg = resolve(group, "reduce_scatter")
    return None if pg is None else pg.reduce_scatter(output, input_list, op, async_op=async_op, timeout=timeout)


def reduce_scatter_tensor(
    output: Any,
    input: Any,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Writes part r of the reduction of ``input`` into ``output`` of rank r."""
    pg = resolve(group, "reduce_scatter_tensor")
    return None if pg is None else pg.reduce_scatter_tensor(output, input, op, async_op=async_op, timeout=timeout)


def all_to_all(
    output_tensor_list: Sequence[Any],
    input_tensor_list: Sequence[Any],
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Sends ``input_tensor_list[r]`` to each rank r and receives ``output_tensor_list[r]`` from it."""
    pg = resolve(group, "all_to_all")
    if pg is None:
        return None
    return pg.all_to_all(output_tensor_list, input_tensor_list, async_op=async_op, timeout=timeout)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Sends rows of ``input`` to each rank and receives rows of ``output``: equal parts, or the given numbers."""
    pg = resolve(group, "all_to_all_single")
    if pg is None:
        return None
    return pg.all_to_all_single(
        output, input, output_split_sizes, input_split_sizes, async_op=async_op, timeout=timeout
    )


def barrier(
    group: Group = None,
    async_op: bool = False,
    device_ids: Any = None,
    *,
    timeout: Timeout = None,
    tag: str = "",
) -> Work | None:
    """Returns once every rank of the group has called it; ``device_ids`` is accepted for PyTorch's sake."""
    pg = resolve(group, "barrier")
    return None if pg is None else pg.barrier(async_op=async_op, timeout=timeout, tag=tag)


def send(
    tensor: Any,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    timeout: Timeout = None,
) -> None:
    """Sends ``tensor`` to rank ``dst``; returns when it may be changed."""
    pg = resolve(group, "send")
    if pg is not None:
        pg.send(tensor, root_of(pg, dst, group_dst, "dst"), tag, timeout=timeout)


def recv(
    tensor: Any,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> int:
    """Receives into ``tensor`` from rank ``src``, or from any rank for None; returns the sender's global rank."""
    pg = resolve(group, "recv")
    if pg is None:
        return -1
    source = None if src is None and group_src is None else root_of(pg, src, group_src, "src")
    return pg.recv(tensor, source, tag, timeout=timeout).source_rank()


def isend(
    tensor: Any,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Starts to send ``tensor`` to rank ``dst``; it must not change before the Work has ended."""
    pg = resolve(group, "isend")
    if pg is None:
        return None
    return pg.send(tensor, root_of(pg, dst, group_dst, "dst"), tag, async_op=True, timeout=timeout)


def irecv(
    tensor: Any,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Starts to receive into ``tensor`` from rank ``src``, or from any rank for None."""
    pg = resolve(group, "irecv")
    if pg is None:
        return None
    source = None if src is None and group_src is None else root_of(pg, src, group_src, "src")
    return pg.recv(tensor, source, tag, async_op=True, timeout=timeout)


class P2POp(NamedTuple):
    """One operation of ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``."""

    op: Callable[..., Work | None]
    tensor: Any
    peer: int | None = None
    group: Group = None
    tag: int = 0
    group_peer: int | None = None


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Starts all the operations and returns their Works; the order in the list does not matter.

    Raises:
        ValueRangeError: The list is empty, or has something else than P2POp of isend or irecv.
    """
    if not p2p_op_list or not all(isinstance(p, P2POp) and p.op in (isend, irecv) for p in p2p_op_list):
        raise ValueRangeError("batch_isend_irecv takes a non-empty list of P2POp(isend or irecv, tensor, peer)")
    # Receives first: a transport with small mailboxes can then take every message at once.
    order = sorted(range(len(p2p_op_list)), key=lambda i: p2p_op_list[i].op is isend)
    works: list[Work | None] = [None] * len(p2p_op_list)
    for i in order:
        p = p2p_op_list[i]
        works[i] = p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer)
    return [work for work in works if work is not None]


def all_ranks_agree(flag: bool, op: str = "or", group: Group = None, *, timeout: Timeout = None) -> bool:
    """Returns one answer for all ranks: whether any ("or") or every ("and") rank passed a true ``flag``.

    The way to skip a bad batch: all ranks skip it, or none does, so their collectives stay in step.

    Example:
        >>> from ddpflow.comm import all_ranks_agree
        >>> all_ranks_agree(False)
        False

    Raises:
        ValueRangeError: ``op`` is something else.
    """
    if op not in ("or", "and"):
        raise ValueRangeError(f"all_ranks_agree takes op='or' or op='and', not {op!r}")
    pg = resolve(group, "all_ranks_agree")
    if pg is None:
        return bool(flag)
    answer = np.array([bool(flag)])
    pg.all_reduce(answer, ReduceOp.MAX if op == "or" else ReduceOp.MIN, timeout=timeout, tag="all_ranks_agree")
    return bool(answer[0])
