"""Collectives of several arrays at once: one operation instead of one per array."""

from collections.abc import Callable, Sequence
from typing import Any

from ddpflow.comm.collectives import Group, Timeout, root_of
from ddpflow.comm.layout import as_array
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import ChainedWork, Work
from ddpflow.comm.world import resolve
from ddpflow.device import array_module, mark_modified
from ddpflow.errors import DtypeError, ValueRangeError

__all__ = ["all_gather_coalesced", "all_reduce_coalesced", "broadcast_coalesced"]


def _together(tensors: Sequence[Any], what: str, run: Callable[[Any], Work | None], async_op: bool) -> Work | None:
    """Runs one operation on the concatenation of ``tensors`` and brings the result back into them."""
    arrays = [as_array(t, what) for t in tensors]
    if not arrays:
        raise ValueRangeError(f"{what} needs at least one tensor")
    if len({a.dtype for a in arrays}) > 1:
        raise DtypeError(f"{what}: all tensors must have one dtype")
    flat = array_module(arrays[0]).concatenate([a.reshape(-1) for a in arrays])
    work = run(flat)
    assert work is not None

    def copy_back() -> None:
        at = 0
        for tensor, array in zip(tensors, arrays, strict=True):
            array[...] = flat[at : at + array.size].reshape(array.shape)
            at += array.size
            mark_modified(tensor)

    chained = ChainedWork(work, copy_back)
    if async_op:
        return chained
    chained.wait()
    return None


def all_reduce_coalesced(
    tensors: Sequence[Any],
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Reduces several tensors of one dtype in one operation, in place."""
    pg = resolve(group, "all_reduce_coalesced")
    if pg is None:
        return None
    member = pg
    return _together(
        tensors,
        "all_reduce_coalesced",
        lambda flat: member.all_reduce(flat, op, async_op=True, timeout=timeout),
        async_op,
    )


def broadcast_coalesced(
    tensors: Sequence[Any],
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Broadcasts several tensors of one dtype in one operation, in place."""
    pg = resolve(group, "broadcast_coalesced")
    if pg is None:
        return None
    member, root = pg, root_of(pg, src, group_src, "src")
    return _together(
        tensors,
        "broadcast_coalesced",
        lambda flat: member.broadcast(flat, root, async_op=True, timeout=timeout),
        async_op,
    )


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Any]],
    input_tensor_list: Sequence[Any],
    group: Group = None,
    async_op: bool = False,
    *,
    timeout: Timeout = None,
) -> Work | None:
    """Gathers several tensors of one dtype in one operation: ``output_tensor_lists[r][i]`` gets tensor i of rank r."""
    pg = resolve(group, "all_gather_coalesced")
    if pg is None:
        return None
    arrays = [as_array(t, "all_gather_coalesced") for t in input_tensor_list]
    if len(output_tensor_lists) != pg.size() or any(len(outs) != len(arrays) for outs in output_tensor_lists):
        raise ValueRangeError(f"all_gather_coalesced needs {pg.size()} lists of {len(arrays)} outputs")
    if not arrays or len({a.dtype for a in arrays}) > 1:
        raise DtypeError("all_gather_coalesced: there must be tensors, all of one dtype")
    flat = array_module(arrays[0]).concatenate([a.reshape(-1) for a in arrays])
    whole = array_module(flat).empty((pg.size(), flat.size), flat.dtype)
    work = pg.all_gather_into_tensor(whole, flat, async_op=True, timeout=timeout)
    assert work is not None

    def copy_out() -> None:
        for outs, row in zip(output_tensor_lists, whole, strict=True):
            at = 0
            for out in outs:
                target = as_array(out, "all_gather_coalesced")
                target[...] = row[at : at + target.size].reshape(target.shape)
                at += target.size
                mark_modified(out)

    chained = ChainedWork(work, copy_out)
    if async_op:
        return chained
    chained.wait()
    return None
