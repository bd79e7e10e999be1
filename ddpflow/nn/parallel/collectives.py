"""Collectives with gradients: functions from tensors to tensors, for losses that span ranks.

Each rank computes its own loss; backward gives the gradient of the *sum* of all ranks' losses. All ranks must call the
same functions in the same order, and run backward through them.
"""

from collections.abc import Sequence
from typing import Any

from ddpflow.autograd.function import Function
from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.world import current_group
from ddpflow.device import array_module
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.nn.module import Module

__all__ = [
    "AllReduce",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "recv",
    "reduce_scatter",
    "send",
]


def all_reduce(x: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """The sum or mean of ``x`` over the ranks, as a new tensor; its gradient is the ranks' gradients' sum or mean.

    Raises:
        ValueRangeError: For another operation than SUM and AVG.
    """
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise ValueRangeError(
            f"all_reduce with gradients knows SUM and AVG, not {op.name}; use dist.all_reduce without"
        )
    return _apply(_AllReduce, x, op, _group(group))


def all_gather(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """The ``x`` of all ranks, stacked along a new first dimension; shapes must be equal."""
    return _apply(_AllGather, x, _group(group))


def reduce_scatter(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Row r of the sum of ``x`` over the ranks, on rank r; ``x`` has one row for each rank.

    Raises:
        ShapeError: When the first dimension is not the group's size.
    """
    pg = _group(group)
    if x.ndim == 0 or x.shape[0] != pg.size():
        raise ShapeError(f"reduce_scatter needs one row for each of the {pg.size()} ranks, not shape {tuple(x.shape)}")
    return _apply(_ReduceScatter, x, pg)


def broadcast(x: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """The ``x`` of rank ``src`` on all ranks; the gradient of all goes back to that rank, the others get zeros."""
    return _apply(_Broadcast, x, src, _group(group))


def all_to_all_single(
    x: Tensor,
    out_splits: Sequence[int] | None = None,
    splits: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Rows of ``x`` sent to each rank, and the rows received from each, in order of rank.

    Args:
        x: At least one dimension.
        out_splits: How many rows come from each rank; equal parts when None.
        splits: How many rows go to each rank; equal parts when None.
        group: The ranks.
    """
    return _apply(_AllToAll, x, out_splits, splits, _group(group))


def send(x: Tensor, dst: int, tag: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Send ``x`` to rank ``dst``. Backward through the returned scalar zero receives the gradient from there.

    Add it to the loss: ``loss = loss + send(x, 1)``.
    """
    return _apply(_Send, x, dst, tag, _group(group))


def recv(like: Tensor, src: int, tag: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Receive a tensor of the shape and dtype of ``like`` from rank ``src``; backward sends the gradient back there.

    ``like`` must require grad for that; its own gradient is zero.
    """
    return _apply(_Recv, like, src, tag, _group(group))


class AllReduce(Module):
    """`all_reduce` as a module.

    Args:
        op: SUM or AVG.
        group: The ranks; the current group of the call when None.
    """

    def __init__(self, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None) -> None:
        super().__init__()
        self.op = op
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """The reduced tensor."""
        return all_reduce(x, self.op, self.group)

    def extra_repr(self) -> str:
        """The operation."""
        return self.op.name


def _apply(function: type[Function], *args: Any) -> Tensor:
    out: Tensor = function.apply(*args)
    return out


def _group(group: ProcessGroup | None) -> ProcessGroup:
    return current_group() if group is None else group


def _empty(x: Tensor, shape: Sequence[int]) -> Tensor:
    return Tensor(array_module(x.array).empty(tuple(shape), x.array.dtype))


def _contiguous(x: Tensor) -> Tensor:
    return Tensor(array_module(x.array).ascontiguousarray(x.array))


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, op: ReduceOp, group: ProcessGroup) -> Tensor:
        ctx.op, ctx.group = op, group
        out: Tensor = x.clone()
        group.all_reduce(out, op, tag="all_reduce with gradients")
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return all_reduce(g, ctx.op, ctx.group), None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        out = _empty(x, (group.size(), *x.shape))
        group.all_gather_into_tensor(out, _contiguous(x), tag="all_gather with gradients")
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return reduce_scatter(g, ctx.group), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        out = _empty(x, x.shape[1:])
        group.reduce_scatter_tensor(out, _contiguous(x), tag="reduce_scatter with gradients")
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return all_gather(g, ctx.group), None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, src: int, group: ProcessGroup) -> Tensor:
        ctx.src, ctx.group = src, group
        out: Tensor = x.clone()
        group.broadcast(out, src, tag="broadcast with gradients")
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        total = all_reduce(g, ReduceOp.SUM, ctx.group)
        own = ctx.group.ranks[ctx.group.rank()] == ctx.src
        return total if own else total * 0.0, None, None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out_splits: Any, splits: Any, group: ProcessGroup) -> Tensor:
        ctx.out_splits, ctx.splits, ctx.group = out_splits, splits, group
        rows = x.shape[0] if out_splits is None else sum(out_splits)
        out = _empty(x, (rows, *x.shape[1:]))
        group.all_to_all_single(out, _contiguous(x), out_splits, splits, tag="all_to_all with gradients")
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return all_to_all_single(g, ctx.splits, ctx.out_splits, ctx.group), None, None, None


class _Send(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dst: int, tag: int, group: ProcessGroup) -> Tensor:
        ctx.dst, ctx.tag, ctx.group, ctx.like = dst, tag, group, x.detach()
        group.send(_contiguous(x), dst, tag)
        return Tensor(array_module(x.array).zeros((), x.array.dtype))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        back = _empty(ctx.like, ctx.like.shape)
        ctx.group.recv(back, ctx.dst, ctx.tag)
        return back, None, None, None


class _Recv(Function):
    @staticmethod
    def forward(ctx: Any, like: Tensor, src: int, tag: int, group: ProcessGroup) -> Tensor:
        ctx.src, ctx.tag, ctx.group = src, tag, group
        out = _empty(like, like.shape)
        group.recv(out, src, tag)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        ctx.group.send(_contiguous(g), ctx.src, ctx.tag)
        return g * 0.0, None, None, None
