"""ProcessGroup: one face for all transports; checks arguments once, numbers every collective, names ranks in errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpflow.comm.group_base import Timeout
from ddpflow.comm.group_copies import GroupCopies
from ddpflow.comm.layout import as_array, check_op, check_same, flat_input, flat_output, nothing
from ddpflow.comm.progress import COLLECTIVES
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Call, Kind
from ddpflow.comm.work import ChainedWork, Work, seconds
from ddpflow.device import mark_modified, unwrap
from ddpflow.errors import ShapeError

__all__ = ["ProcessGroup"]

_ndarray = np.ndarray
_SUM, _ALL_REDUCE = ReduceOp.SUM, Kind.ALL_REDUCE


class ProcessGroup(GroupCopies):
    """A set of ranks that communicate, as seen by one of them.

    Collectives take Tensors or raw arrays and must be called by all ranks of the group, in the same order. Ranks in
    arguments are *global* ranks. With ``async_op=True`` a call returns a Work at once, otherwise None when the result
    is there. ``timeout`` (seconds or a timedelta) replaces the group's deadline for one call; ``tag`` is text for error
    messages.

    Args:
        spec: What is known of the group.
        backend: The transport of the arrays of ``backend.devices``, CPU arrays as a rule.
        others: Device type -> name of the transport of other arrays, which is made by all ranks when first needed.
    """

    def all_reduce(
        self, x: Any, op: ReduceOp = _SUM, *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Replaces ``x`` on every rank by the element-wise reduction over all ranks, in place."""
        backend = self._backend
        if backend.failure is not None or self._closed:
            raise self._refusal("all_reduce")
        # The path of gradient buckets: a flat contiguous array of our own process, nothing to convert.
        array = x if type(x) is _ndarray else unwrap(x)
        if type(array) is _ndarray and array.ndim == 1 and array.flags.carray and array.strides[0]:
            check_op(array.dtype, op, "all_reduce")
            flat, finish = array, nothing
        else:
            flat, finish = self._in_place(x, "all_reduce", op)
            backend = self._transport(flat)
            if backend.failure is not None:
                raise self._refusal("all_reduce")
        limit = self.timeout_s if timeout is None else seconds(timeout, 1.0)
        with self._lock:
            self._seq = self._words[COLLECTIVES] = seq = self._seq + 1
            work = backend.all_reduce(flat, op, Call(_ALL_REDUCE, seq, tag, limit))
        if array is not x:
            mark_modified(x)
        if finish is not nothing:
            work = ChainedWork(work, finish)
        if async_op:
            return work
        work.wait()
        if backend.stalled:
            backend.resume()
        return None

    def reduce(
        self, x: Any, dst: int, op: ReduceOp = _SUM, *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Replaces ``x`` of rank ``dst`` by the reduction over all ranks; the other ranks' arrays stay as they are."""
        root = self._peer(dst, "reduce")
        flat, finish = self._in_place(x, "reduce", op)
        if root != self._rank:
            finish = nothing
        else:
            mark_modified(x)
        with self._lock:
            work = self._transport(flat).reduce(flat, op, self._call(Kind.REDUCE, tag, timeout, root))
        return self._return(work, finish, async_op)

    def reduce_scatter_tensor(
        self, out: Any, x: Any, op: ReduceOp = _SUM, *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Writes part r of the reduction of ``x`` into ``out`` of rank r.

        ``x`` has ``size * out.size`` elements: the parts one after the other, or stacked along a first axis.
        """
        source, target = as_array(x, "reduce_scatter"), as_array(out, "reduce_scatter")
        if source.size != target.size * self._size:
            raise ShapeError(
                f"reduce_scatter: the input has {source.size} elements, expected {self._size} x {target.size}"
            )
        return self._reduce_scatter(out, target, flat_input(source), op, async_op, timeout, tag)

    def reduce_scatter(
        self,
        out: Any,
        xs: Sequence[Any],
        op: ReduceOp = _SUM,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
        tag: str = "",
    ) -> Work | None:
        """Writes the reduction of ``xs[r]`` into ``out`` of rank r."""
        target = as_array(out, "reduce_scatter")
        sources = [as_array(x, "reduce_scatter") for x in xs]
        check_same(sources, target, self._size, "reduce_scatter")
        return self._reduce_scatter(out, target, self._join(sources), op, async_op, timeout, tag)

    def _reduce_scatter(
        self, out: Any, target: Any, source: Any, op: ReduceOp, async_op: bool, timeout: Timeout, tag: str
    ) -> Work | None:
        self._check_dtypes("reduce_scatter", target, source)
        check_op(source.dtype, op, "reduce_scatter")
        flat, finish = flat_output(target, "reduce_scatter")
        self._check_disjoint("reduce_scatter", flat, source)
        with self._lock:
            work = self._transport(flat).reduce_scatter(flat, source, op, self._call(Kind.REDUCE_SCATTER, tag, timeout))
        mark_modified(out)
        return self._return(work, finish, async_op)
