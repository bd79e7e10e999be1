"""Uneven work: ranks that are done answer the collectives of those that are not.

Inside a `Join` every collective of the group is announced first: which, of what dtype and length. A rank that has left
its loop answers each announcement with the same collective on neutral values (zeros in a sum), until no rank has work
left. So gradients, buffers, SyncBatchNorm and the user's own collectives on the current group are all covered alike.
"""

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Kind, dtype_code, dtype_from_code
from ddpflow.comm.work import ChainedWork, Work
from ddpflow.comm.world import current_group, group_scope
from ddpflow.device import Device, device_of, move, unwrap
from ddpflow.errors import CommError, EarlyTermination

__all__ = ["Join", "JoinGroup", "Joinable"]

_SKEW = 1000  # answered collectives after which a rank is told that the work is very unevenly shared


class Joinable(Protocol):
    """What can take part in a `Join`: DistributedDataParallel, and optimizers that communicate."""

    def join_group(self) -> ProcessGroup:
        """The group it communicates in."""

    def enter_join(self, group: "JoinGroup") -> None:
        """Communicate through this group from now on."""

    def leave_join(self, last: int | None) -> None:
        """Go back to the group itself; ``last`` is the global rank that worked longest, None after an exception."""


class JoinGroup(ProcessGroup):
    """A group whose collectives are announced, so that ranks without work can answer them."""

    __slots__ = ("_context", "_group")

    def __init__(self, group: ProcessGroup, context: "Join") -> None:
        self.__dict__ = group.__dict__  # the same group: numbering, transport, failure
        self._group = group
        self._context = context

    def all_reduce(self, x: Any, op: ReduceOp = ReduceOp.SUM, *, async_op: bool = False, **options: Any) -> Any:
        """As the group's; a mean is over the initial or the active ranks, as the context says."""
        array = unwrap(x)
        active = self._context.announce(Kind.ALL_REDUCE, array, int(op))
        work = self._group.all_reduce(x, op, async_op=True, **options)
        assert isinstance(work, Work)
        if op is ReduceOp.AVG and not self._context.divide_by_initial_world_size and active < self.size():
            factor = self.size() / active

            def rescale() -> None:
                array[...] *= factor

            work = ChainedWork(work, rescale)
        return work if async_op else _finished(work)

    def broadcast(self, x: Any, src: int, **options: Any) -> Any:
        """As the group's; from the first active rank when the source has no work left."""
        array = unwrap(x)
        self._context.announce(Kind.BROADCAST, array, src)
        return self._group.broadcast(x, self._context.source(src), **options)

    def all_gather_into_tensor(self, out: Any, x: Any, **options: Any) -> Any:
        """As the group's; ranks without work give zeros."""
        array = unwrap(x)
        self._context.announce(Kind.ALL_GATHER, array)
        return self._group.all_gather_into_tensor(out, x, **options)

    def reduce_scatter_tensor(self, out: Any, x: Any, op: ReduceOp = ReduceOp.SUM, **options: Any) -> Any:
        """As the group's."""
        array = unwrap(out)
        self._context.announce(Kind.REDUCE_SCATTER, array, int(op))
        return self._group.reduce_scatter_tensor(out, x, op, **options)

    def barrier(self, **options: Any) -> Any:
        """As the group's."""
        self._context.announce(Kind.BARRIER, np.empty(0, np.uint8))
        return self._group.barrier(**options)

    def _unanswered(self, name: str) -> CommError:
        return CommError(f"{name} cannot be answered by ranks without work: call it outside of Join")

    def all_to_all_single(self, *args: Any, **options: Any) -> Any:
        """Refused: nobody can answer for a rank."""
        raise self._unanswered("all_to_all_single")

    def all_to_all(self, *args: Any, **options: Any) -> Any:
        """Refused: nobody can answer for a rank."""
        raise self._unanswered("all_to_all")


def _finished(work: Work) -> None:
    work.wait()


class Join:
    """Lets ranks with different numbers of batches train together.

        with Join([ddp]):
            for x, y in loader:      # may end earlier on some ranks
                ...

    A rank that leaves the block in good order answers the others' collectives until all have left. At the end the model
    of the rank that worked longest is copied to all.

    Args:
        joinables: What communicates inside: DistributedDataParallel modules and optimizers, all of one group.
        enable: False makes it do nothing.
        throw_on_early_termination: Raise on all ranks as soon as one has no work left.
        divide_by_initial_world_size: Means divide by the number of all ranks; else by that of ranks with work.

    Raises:
        EarlyTermination: With ``throw_on_early_termination``, on every rank.
        CommError: When joinables belong to different groups.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        *,
        divide_by_initial_world_size: bool = True,
    ) -> None:
        self.joinables = list(joinables)
        self.throw_on_early_termination = throw_on_early_termination
        self.divide_by_initial_world_size = divide_by_initial_world_size
        groups = {id(j.join_group()): j.join_group() for j in self.joinables} or {0: current_group()}
        if len(groups) > 1:
            raise CommError("all joinables of a Join must communicate in one group")
        (self._group,) = groups.values()
        self._enabled = enable and self._group.size() > 1
        self._active = list(range(self._group.size()))  # group ranks that announced the latest collective
        self._scope = contextlib.ExitStack()

    def __enter__(self) -> "Join":
        if self._enabled:
            proxy = JoinGroup(self._group, self)
            self._scope.enter_context(group_scope(proxy))
            entered: list[Joinable] = []
            try:
                for joinable in self.joinables:
                    joinable.enter_join(proxy)
                    entered.append(joinable)
            except BaseException:
                self._leave(entered, None)
                raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self._enabled:
            return
        last: int | None = None
        try:
            if kind is None:
                last = self._answer()
        finally:
            self._leave(self.joinables, last)

    def _leave(self, joinables: Sequence[Joinable], last: int | None) -> None:
        self._scope.close()
        for joinable in joinables:
            joinable.leave_join(last)

    def announce(self, kind: Kind, array: Any, detail: int = 0) -> int:
        """Tell the ranks without work what comes; returns how many ranks take part with values of their own.

        Args:
            kind: The collective.
            array: An array of its dtype, length and kind of device.
            detail: Its reduce op or source.

        Raises:
            EarlyTermination: When a rank has no work left and that is to be an error.
        """
        on_gpu = device_of(array).type == "cuda"  # then another transport carries it
        self._exchange([-int(kind) if on_gpu else int(kind), dtype_code(array.dtype), array.size, detail])
        if len(self._active) < self._group.size():
            self._check_early()
        return len(self._active)

    def source(self, src: int) -> int:
        """The rank to broadcast from: the one asked for, or the first with work when that one has none."""
        ranks = [self._group.ranks[i] for i in self._active]
        return src if src in ranks else ranks[0]

    def _exchange(self, own: list[int]) -> Any:
        """Every rank's announcement; zeros from ranks without work."""
        everyone = np.zeros((self._group.size(), 4), np.int64)
        self._group.all_gather_into_tensor(everyone, np.array(own, np.int64), tag="who has work left")
        active = [i for i, row in enumerate(everyone) if row[0]]
        if active:
            self._active = active
        return everyone[active[0]] if active else None

    def _check_early(self) -> None:
        if self.throw_on_early_termination:
            done = sorted(set(range(self._group.size())) - set(self._active))
            names = ", ".join(str(self._group.ranks[i]) for i in done)
            raise EarlyTermination(f"rank {names} has no work left, others have; all ranks end here")

    def _answer(self) -> int:
        """Answer announcements until there are none; returns the first of the ranks that worked longest."""
        answered = 0
        while (call := self._exchange([0, 0, 0, 0])) is not None:
            self._check_early()
            kind, code, count, detail = (int(v) for v in call)
            answered += 1
            if answered == _SKEW:
                warnings.warn(
                    f"this rank has answered {_SKEW} collectives without work of its own: the work is very unevenly "
                    "shared among the ranks",
                    stacklevel=4,
                )
            device = Device("cuda" if kind < 0 else "cpu")
            self._answer_one(Kind(abs(kind)), dtype_from_code(code), count, detail, device)
        return self._group.ranks[self._active[0]]

    def _answer_one(self, kind: Kind, dtype: Any, count: int, detail: int, device: Device) -> None:
        group, tag = self._group, "no work left"
        if kind is Kind.ALL_REDUCE:
            group.all_reduce(move(_neutral(ReduceOp(detail), count, dtype), device), ReduceOp(detail), tag=tag)
        elif kind is Kind.BROADCAST:
            group.broadcast(move(np.empty(count, dtype), device), self.source(detail), tag=tag)
        elif kind is Kind.ALL_GATHER:
            out = move(np.empty(count * group.size(), dtype), device)
            group.all_gather_into_tensor(out, move(np.zeros(count, dtype), device), tag=tag)
        elif kind is Kind.REDUCE_SCATTER:
            whole = move(_neutral(ReduceOp(detail), count * group.size(), dtype), device)
            group.reduce_scatter_tensor(move(np.empty(count, dtype), device), whole, ReduceOp(detail), tag=tag)
        else:
            group.barrier(tag=tag)


def _neutral(op: ReduceOp, count: int, dtype: Any) -> Any:
    """Values that change no reduction."""
    if op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.BOR, ReduceOp.BXOR):
        return np.zeros(count, dtype)
    if op is ReduceOp.PRODUCT:
        return np.ones(count, dtype)
    if op is ReduceOp.BAND:
        return ~np.zeros(count, dtype)
    low = op is ReduceOp.MAX
    if dtype.kind == "b":
        return np.full(count, not low, dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.full(count, limits.min if low else limits.max, dtype)
    return np.full(count, -np.inf if low else np.inf, dtype)
