"""The collectives of ProcessGroup that copy, and point-to-point messages."""

from collections.abc import Sequence
from typing import Any

from ddpflow.comm.group_base import GroupBase, Timeout
from ddpflow.comm.layout import check_same, flat_input, flat_output, nothing
from ddpflow.comm.signature import Kind
from ddpflow.comm.work import ChainedWork, Work
from ddpflow.device import array_module, mark_modified
from ddpflow.errors import ShapeError

__all__ = ["GroupCopies"]


class GroupCopies(GroupBase):
    """What ``ProcessGroup`` does without reducing; see there for arguments that all calls share."""

    def broadcast(
        self, x: Any, src: int, *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Copies ``x`` of rank ``src`` into ``x`` of all other ranks."""
        root = self._peer(src, "broadcast")
        array = self._array(x, "broadcast")
        if root == self._rank:
            flat, finish = flat_input(array), nothing
        else:
            flat, finish = flat_output(array, "broadcast")
            mark_modified(x)
        with self._lock:
            work = self._transport(flat).broadcast(flat, self._call(Kind.BROADCAST, tag, timeout, root))
        return self._return(work, finish, async_op)

    def all_gather(
        self, outs: Sequence[Any], x: Any, *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Writes ``x`` of rank r into ``outs[r]`` on every rank; ``outs`` may also be one array, stacked by rank."""
        if not isinstance(outs, list | tuple):
            return self.all_gather_into_tensor(outs, x, async_op=async_op, timeout=timeout, tag=tag)
        array = self._array(x, "all_gather")
        targets = [self._array(out, "all_gather") for out in outs]
        check_same(targets, array, self._size, "all_gather")
        flat, finish = self._split_later(targets, array)
        with self._lock:
            work = self._transport(flat).all_gather(flat, flat_input(array), self._call(Kind.ALL_GATHER, tag, timeout))
        for out in outs:
            mark_modified(out)
        return self._return(work, finish, async_op)

    def all_gather_into_tensor(
        self, out: Any, x: Any, *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Writes ``x`` of all ranks, one after the other, into ``out`` of ``size * x.size`` elements."""
        array, target = self._array(x, "all_gather"), self._array(out, "all_gather")
        self._check_dtypes("all_gather", target, array)
        if target.size != array.size * self._size:
            raise ShapeError(f"all_gather: the output has {target.size} elements, expected {self._size} x {array.size}")
        flat, finish = flat_output(target, "all_gather")
        source = flat_input(array)
        if array_module(flat).may_share_memory(flat, source):
            source = source.copy()  # PyTorch allows the input to be its own part of the output
        with self._lock:
            work = self._transport(flat).all_gather(flat, source, self._call(Kind.ALL_GATHER, tag, timeout))
        mark_modified(out)
        return self._return(work, finish, async_op)

    def gather(
        self,
        x: Any,
        outs: Sequence[Any] | None,
        dst: int,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
        tag: str = "",
    ) -> Work | None:
        """Writes ``x`` of rank r into ``outs[r]`` on rank ``dst``; ``outs`` is None on the others."""
        root = self._peer(dst, "gather")
        array = self._array(x, "gather")
        self._check_list(outs, root, "gather", "outputs")
        flat, finish = None, nothing
        if outs is not None:
            targets = [self._array(out, "gather") for out in outs]
            check_same(targets, array, self._size, "gather")
            flat, finish = self._split_later(targets, array)
        with self._lock:
            work = self._transport(array).gather(flat, flat_input(array), self._call(Kind.GATHER, tag, timeout, root))
        for out in outs or ():
            mark_modified(out)
        return self._return(work, finish, async_op)

    def scatter(
        self,
        out: Any,
        xs: Sequence[Any] | None,
        src: int,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
        tag: str = "",
    ) -> Work | None:
        """Writes ``xs[r]`` of rank ``src`` into ``out`` of rank r; ``xs`` is None on the others."""
        root = self._peer(src, "scatter")
        target = self._array(out, "scatter")
        self._check_list(xs, root, "scatter", "inputs")
        source = None
        if xs is not None:
            sources = [self._array(x, "scatter") for x in xs]
            check_same(sources, target, self._size, "scatter")
            source = self._join(sources)
        flat, finish = flat_output(target, "scatter")
        with self._lock:
            work = self._transport(flat).scatter(flat, source, self._call(Kind.SCATTER, tag, timeout, root))
        mark_modified(out)
        return self._return(work, finish, async_op)

    def all_to_all_single(
        self,
        out: Any,
        x: Any,
        out_splits: Sequence[int] | None = None,
        splits: Sequence[int] | None = None,
        *,
        async_op: bool = False,
        timeout: Timeout = None,
        tag: str = "",
    ) -> Work | None:
        """Sends part r of ``x`` to rank r and writes the part that rank r sent into part r of ``out``.

        Args:
            out: Array that receives.
            x: Array that is sent.
            out_splits: Rows (entries of the first axis) that come from each rank; equal parts for None.
            splits: Rows of ``x`` that go to each rank; equal parts for None.
            async_op: See the class.
            timeout: See the class.
            tag: See the class.
        """
        source, target = self._array(x, "all_to_all"), self._array(out, "all_to_all")
        self._check_dtypes("all_to_all", target, source)
        counts = self._counts(source, splits, "input")
        out_counts = self._counts(target, out_splits, "output")
        flat, finish = flat_output(target, "all_to_all")
        data = flat_input(source)
        self._check_disjoint("all_to_all", flat, data)
        with self._lock:
            work = self._transport(flat).all_to_all(
                flat, data, out_counts, counts, self._call(Kind.ALL_TO_ALL, tag, timeout)
            )
        mark_modified(out)
        return self._return(work, finish, async_op)

    def all_to_all(
        self, outs: Sequence[Any], xs: Sequence[Any], *, async_op: bool = False, timeout: Timeout = None, tag: str = ""
    ) -> Work | None:
        """Sends ``xs[r]`` to rank r and writes what rank r sent into ``outs[r]``; the shapes may differ."""
        sources = [self._array(x, "all_to_all") for x in xs]
        targets = [self._array(out, "all_to_all") for out in outs]
        for arrays in (sources, targets):
            if len(arrays) != self._size:
                raise ShapeError(f"all_to_all needs one array per rank, {self._size} in all, not {len(arrays)}")
            self._check_dtypes("all_to_all", sources[0], *arrays)
        data = self._join(sources)
        flat = array_module(data).empty(sum(t.size for t in targets), data.dtype)
        finish = self._split_step(targets, flat)
        counts, out_counts = [s.size for s in sources], [t.size for t in targets]
        with self._lock:
            work = self._transport(flat).all_to_all(
                flat, data, out_counts, counts, self._call(Kind.ALL_TO_ALL, tag, timeout)
            )
        for out in outs:
            mark_modified(out)
        return self._return(work, finish, async_op)

    def barrier(self, *, async_op: bool = False, timeout: Timeout = None, tag: str = "") -> Work | None:
        """Returns once every rank of the group has called it."""
        with self._lock:
            work = self._backend.barrier(self._call(Kind.BARRIER, tag, timeout))
        return self._return(work, nothing, async_op)

    # Point to point

    def send(self, x: Any, dst: int, tag: int = 0, *, async_op: bool = False, timeout: Timeout = None) -> Work | None:
        """Sends ``x`` to rank ``dst``; ``tag`` is a number that the receiver asks for."""
        peer, array = self._other(dst, "send"), self._array(x, "send")
        call = self._message_call(Kind.SEND, f"to rank {dst}", tag, timeout)
        with self._lock:
            work = self._transport(array).send(flat_input(array), peer, tag, call)
        return self._return(work, nothing, async_op)

    def recv(
        self, x: Any, src: int | None = None, tag: int = 0, *, async_op: bool = False, timeout: Timeout = None
    ) -> Work:
        """Receives into ``x`` from rank ``src`` (None: from any rank, named by the Work's ``source_rank()``)."""
        peer = None if src is None else self._other(src, "recv")
        flat, finish = flat_output(self._array(x, "recv"), "recv")
        sender = "from any rank" if src is None else f"from rank {src}"
        call = self._message_call(Kind.RECV, sender, tag, timeout)
        with self._lock:
            work = self._transport(flat).recv(flat, peer, tag, call)
        mark_modified(x)
        if finish is not nothing:
            work = ChainedWork(work, finish)
        if not async_op:
            work.wait()
        return work
