"""The part of ProcessGroup that is no collective: identity, numbering, argument checks, memory and life cycle."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np

from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.layout import as_array, check_op, flat_input, flat_output, nothing
from ddpflow.comm.progress import COLLECTIVES, STEPS
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.registry import load_backend
from ddpflow.comm.signature import Call, Kind
from ddpflow.comm.store import PrefixStore
from ddpflow.comm.work import ChainedWork, Work, seconds
from ddpflow.device import array_module
from ddpflow.errors import CommError, DeviceError, DtypeError, ShapeError, ValueRangeError

__all__ = ["GroupBase", "Timeout"]

Timeout = float | timedelta | None


class GroupBase:
    """What ``ProcessGroup`` needs besides its collectives; see there."""

    def __init__(self, spec: GroupSpec, backend: Backend, others: Mapping[str, str] | None = None) -> None:
        self.spec = spec
        self.name = spec.name
        self.ranks = spec.ranks
        self.timeout_s = spec.timeout_s
        self._rank, self._size = spec.group_rank, spec.size
        self._backend = backend
        self._others = dict(others or {})
        self._made: dict[str, Backend] = {}
        self._index = {rank: i for i, rank in enumerate(spec.ranks)}
        self._lock = threading.Lock()
        self._seq = 0
        self._words = spec.progress.words
        self._closed = ""
        self._n_monitored = 0

    def rank(self) -> int:
        """Returns this process's index in the group."""
        return self._rank

    def size(self) -> int:
        """Returns the number of ranks."""
        return self._size

    @property
    def backend_name(self) -> str:
        """Name of the transport."""
        return self._backend.name

    @property
    def seq(self) -> int:
        """Number of the last collective."""
        return self._seq

    @property
    def failure(self) -> CommError | None:
        """The error that broke the group, or None."""
        return next((b.failure for b in self._transports() if b.failure is not None), None)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.name!r}, rank {self._rank} of {self._size}, backend {self._backend.name!r})"

    def __reduce__(self) -> Any:
        raise TypeError("a process group cannot be pickled or copied: it is bound to its process")

    # Memory and life cycle

    def empty(self, n: int, dtype: Any) -> np.ndarray:
        """Returns ``n`` uninitialised elements of communication memory, where collectives need no copy.

        Not a collective. ``dtype`` is anything that ``numpy.dtype`` takes.
        """
        return self._backend.empty(n, np.dtype(dtype))

    def beside(self, array: Any, launch: Callable[[], Work], tag: str = "") -> Work:
        """Returns the Work of ``launch()``, whose steps on a GPU array run on the group's communication stream.

        ``launch`` may compute before a collective, in the Work that it returns after it (compression), and launch
        several; called by all ranks in the same order. On other devices it is simply called.
        """
        return self._transport(array).beside(array, launch, Call(Kind.ALL_REDUCE, 0, tag, self.timeout_s))

    def progress(self) -> None:
        """Moves operations in flight on without blocking."""
        for backend in self._transports():
            backend.progress()

    def count_step(self) -> None:
        """Counts a finished backward pass, for ``ddprun --status``."""
        self._words[STEPS] += 1

    def abort(self, reason: str = "no reason given") -> None:
        """Gives the group up at once: every wait of its ranks ends with an error that shows ``reason``."""
        self._closed = self._closed or f"it was aborted: {reason}"
        for backend in self._transports():
            backend.abort(f"rank {self.spec.rank} aborted the group: {reason}")

    def abandon(self, cause: str) -> None:
        """Gives the group up because this process fails; ``cause`` is "rank 1 raised ValueError: ..."."""
        self._closed = self._closed or cause
        for backend in self._transports():
            backend.abort(cause)

    def disown(self) -> None:
        """Forbids the use of the group, without a word to the peers; for the child after a fork."""
        self._closed = self._closed or "it belongs to the process that this one was forked from"

    def next_monitored(self) -> int:
        """Numbers the calls of ``monitored_barrier``, which goes through the store and is no collective."""
        self._n_monitored += 1
        return self._n_monitored

    def crash(self) -> None:
        """Ends the job where the transport's runtime wants that (MPI); called after the failure was reported."""
        for backend in self._transports():
            backend.crash()

    def close(self, timeout_s: float = 2.0) -> None:
        """Leaves the group: peers that still wait for this rank are told so. May be called twice."""
        if not self._closed:
            self._closed = "it was destroyed"
        for backend in reversed(self._transports()):
            backend.close(timeout_s)

    # Helpers

    def _transports(self) -> list[Backend]:
        """Returns the transports made so far, the main one first."""
        return [self._backend, *self._made.values()]

    def _transport(self, array: Any) -> Backend:
        """Returns the transport for an array's device; one that is not the main one is made when first needed."""
        device = "cpu" if isinstance(array, np.ndarray) else "cuda"
        if device in self._backend.devices:
            return self._backend
        if device not in self._made:
            spec = replace(self.spec, store=PrefixStore(device, self.spec.store))
            self._made[device] = load_backend(self._others[device]).create(spec)
        return self._made[device]

    def _refusal(self, what: str) -> CommError:
        failure = self.failure
        start = f"rank {self.spec.rank}: {what} cannot run: group {self.name}"
        if failure is not None and self._closed != "it was destroyed":
            return type(failure)(f"{start} is broken by an earlier error: {failure}")
        return CommError(f"{start} cannot be used: {self._closed}")

    def _call(self, kind: Kind, tag: str, timeout: Timeout, root: int = -1) -> Call:
        """Numbers a collective; called with the lock held, right before the launch."""
        if self._closed or self.failure is not None:
            raise self._refusal(kind.label)
        limit = seconds(timeout, self.timeout_s)
        self._seq += 1
        self._words[COLLECTIVES] = self._seq
        return Call(kind, self._seq, tag, limit, root)

    def _message_call(self, kind: Kind, text: str, tag: int, timeout: Timeout) -> Call:
        if self._closed or self.failure is not None:
            raise self._refusal(kind.label)
        if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag < 1 << 30:
            raise ValueRangeError(f"{kind.label}: tag must be an integer from 0 to 2**30 - 1, not {tag!r}")
        return Call(kind, 0, f"{text}, tag {tag}" if tag else text, seconds(timeout, self.timeout_s))

    def _return(self, work: Work, finish: Any, async_op: bool) -> Work | None:
        if finish is not nothing:
            work = ChainedWork(work, finish)
        if async_op:
            return work
        work.wait()
        if self._backend.stalled:
            self._backend.resume()
        return None

    def _array(self, x: Any, what: str) -> Any:
        array = as_array(x, what)
        device = "cpu" if isinstance(array, np.ndarray) else "cuda"
        if device not in self._backend.devices and device not in self._others:
            carried = " and ".join((*self._backend.devices, *self._others))
            start = f"rank {self.spec.rank}: {what}: backend {self._backend.name!r}"
            raise DeviceError(f"{start} carries {carried} arrays, not {device} ones")
        return array

    def _in_place(self, x: Any, what: str, op: ReduceOp) -> tuple[Any, Any]:
        array = self._array(x, what)
        check_op(array.dtype, op, what)
        return flat_output(array, what, load=True)

    def _peer(self, rank: int, what: str) -> int:
        """Returns the index of a global rank in the group."""
        try:
            return self._index[rank]
        except (KeyError, TypeError):
            members = ", ".join(map(str, self.ranks))
            raise ValueRangeError(f"{what}: rank {rank!r} is not in group {self.name} (its ranks: {members})") from None

    def _other(self, rank: int, what: str) -> int:
        peer = self._peer(rank, what)
        if peer == self._rank:
            raise ValueRangeError(f"{what}: rank {rank} cannot exchange messages with itself")
        return peer

    def _check_list(self, arrays: Sequence[Any] | None, root: int, what: str, name: str) -> None:
        if arrays is None and root == self._rank:
            raise ValueRangeError(f"{what}: rank {self.ranks[root]} must give the list of {name}")
        if arrays is not None and root != self._rank:
            raise ValueRangeError(f"{what}: only rank {self.ranks[root]} may give the list of {name}")

    def _check_dtypes(self, what: str, *arrays: Any) -> None:
        names = {array.dtype.name for array in arrays}
        if len(names) > 1:
            raise DtypeError(f"{what}: input and output must have one dtype, not {' and '.join(sorted(names))}")

    def _check_disjoint(self, what: str, out: Any, array: Any) -> None:
        if out.size and array_module(out).may_share_memory(out, array):
            raise ValueRangeError(f"{what}: input and output share memory; make a copy of one")

    def _counts(self, array: Any, splits: Sequence[int] | None, name: str) -> list[int]:
        rows = array.shape[0] if array.ndim else 1
        if splits is None:
            if rows % self._size:
                raise ShapeError(
                    f"all_to_all: {rows} rows of the {name} cannot be shared equally by {self._size} ranks"
                )
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or any(n < 0 for n in splits) or sum(splits) != rows:
            raise ShapeError(
                f"all_to_all: the {name} splits {list(splits)} must be {self._size} numbers that add up to {rows} rows"
            )
        row = array.size // rows if rows else 0
        return [n * row for n in splits]

    def _join(self, arrays: Sequence[Any]) -> Any:
        return array_module(arrays[0]).concatenate([flat_input(array) for array in arrays])

    def _split_later(self, targets: Sequence[Any], like: Any) -> tuple[Any, Any]:
        flat = array_module(like).empty(like.size * self._size, like.dtype)
        return flat, self._split_step(targets, flat)

    def _split_step(self, targets: Sequence[Any], flat: Any) -> Any:
        for target in targets:
            flat_output(target, "the collective")

        def copy_out() -> None:
            at = 0
            for target in targets:
                target[...] = flat[at : at + target.size].reshape(target.shape)
                at += target.size

        return copy_out
