"""The transport whose ranks are threads of one process: for tests and debuggers, with every check of the real ones."""

import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self

import numpy as np

from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.reduce import ReduceOp, reduce_in_rank_order
from ddpflow.comm.signature import Call, Kind, Signature
from ddpflow.comm.work import CompletedWork, Work, seconds
from ddpflow.errors import BackendUnavailable, CommError, MismatchError

__all__ = ["ThreadBackend"]

_POLL_S = 0.05


class _Posted:
    """What one rank brought to a collective."""

    def __init__(self, signature: Signature, array: np.ndarray | None, out: np.ndarray | None, counts: Any) -> None:
        self.signature, self.array, self.out, self.counts = signature, array, out, counts


class _Slot:
    """One collective: what has been brought so far, and how it ended."""

    def __init__(self) -> None:
        self.posted: dict[int, _Posted] = {}
        self.done = False
        self.mismatched = False
        self.error = ""  # found while carrying it out; the same for all ranks
        self.collected = 0
        self.gave_up: list[int] = []
        self.missing: list[int] = []  # who had not arrived when the first rank gave up


class _Receive:
    """A posted recv."""

    def __init__(self, array: np.ndarray, peer: int | None, message_tag: int) -> None:
        self.array, self.peer, self.message_tag = array, peer, message_tag
        self.source = -1
        self.error = ""

    def accepts(self, source: int, message_tag: int) -> bool:
        return self.message_tag == message_tag and self.peer in (None, source)

    def take(self, source: int, data: np.ndarray) -> None:
        self.source = source
        if (data.dtype, data.size) == (self.array.dtype, self.array.size):
            self.array[:] = data
        else:
            own = f"{self.array.dtype.name}[{self.array.size}]"
            self.error = f"expects {own} but was sent {data.dtype.name}[{data.size}] by rank"


class _Room:
    """What the threads of one group share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.slots: dict[int, _Slot] = {}
        self.left: dict[int, int] = {}  # group rank -> last collective
        self.aborted: dict[int, str] = {}
        self.mail: dict[int, list[tuple[int, int, np.ndarray]]] = {r: [] for r in range(size)}
        self.receives: dict[int, list[_Receive]] = {r: [] for r in range(size)}


_rooms: "weakref.WeakValueDictionary[str, _Room]" = weakref.WeakValueDictionary()


class ThreadBackend(Backend):
    """Serves a group whose ranks are threads of this process; the last rank to arrive does the work for all."""

    name: ClassVar[str] = "thread"
    ranks_are_threads: ClassVar[bool] = True

    def __init__(self, spec: GroupSpec, room: _Room) -> None:
        super().__init__(spec)
        self._room = room
        self._rank = spec.group_rank
        self._last_seq = 0

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Meets the other threads.

        Raises:
            BackendUnavailable: The ranks are different processes.
        """
        if spec.group_rank == 0:
            room = _Room(spec.size)
            key = uuid.uuid4().hex
            _rooms[key] = room
            spec.store.set("room", key)
        else:
            found = _rooms.get(spec.store.get("room", spec.timeout_s).decode())
            if found is None:
                raise BackendUnavailable("backend 'thread' needs all ranks in one process; use 'shm' between processes")
            room = found
        backend = cls(spec, room)
        # Rank 0 holds the only reference to the room until every rank has found it.
        backend.barrier(Call(Kind.BARRIER, 0, "joining", spec.timeout_s)).wait()
        return backend

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` by the reduction over all ranks."""
        return self._post(Kind.ALL_REDUCE, call, self.signature(call, array, op), array, array)

    def reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` of the root by the reduction."""
        return self._post(Kind.REDUCE, call, self.signature(call, array, op), array, array)

    def broadcast(self, array: np.ndarray, call: Call) -> Work:
        """Copies the root's array to the others."""
        return self._post(Kind.BROADCAST, call, self.signature(call, array), array, array)

    def all_gather(self, out: np.ndarray, array: np.ndarray, call: Call) -> Work:
        """Puts all arrays into every ``out``."""
        return self._post(Kind.ALL_GATHER, call, self.signature(call, array), array, out)

    def gather(self, out: np.ndarray | None, array: np.ndarray, call: Call) -> Work:
        """Puts all arrays into the root's ``out``."""
        return self._post(Kind.GATHER, call, self.signature(call, array), array, out)

    def scatter(self, out: np.ndarray, array: np.ndarray | None, call: Call) -> Work:
        """Puts the parts of the root's array into the ranks' ``out``."""
        return self._post(Kind.SCATTER, call, self.signature(call, out), array, out)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Puts part r of the reduction into ``out`` of rank r."""
        return self._post(Kind.REDUCE_SCATTER, call, self.signature(call, out, op), array, out)

    def all_to_all(
        self, out: np.ndarray, array: np.ndarray, out_counts: Sequence[int], counts: Sequence[int], call: Call
    ) -> Work:
        """Exchanges parts between all pairs of ranks."""
        return self._post(
            Kind.ALL_TO_ALL, call, self.signature(call, array), array, out, (list(counts), list(out_counts))
        )

    def barrier(self, call: Call) -> Work:
        """Ends once all ranks have called it."""
        return self._post(Kind.BARRIER, call, self.signature(call), None, None)

    def send(self, array: np.ndarray, peer: int, message_tag: int, call: Call) -> Work:
        """Copies the message to the receiver's mailbox; it is over at once."""
        room = self._room
        with room.changed:
            if peer in room.aborted:
                raise self.peer_error(call, room.aborted[peer])
            if peer in room.left:
                raise self.peer_error(call, self.left_text(peer, room.left[peer], call))
            for receive in room.receives[peer]:
                if receive.accepts(self._rank, message_tag):
                    room.receives[peer].remove(receive)
                    receive.take(self._rank, array)
                    room.changed.notify_all()
                    return CompletedWork()
            room.mail[peer].append((self._rank, message_tag, array.copy()))
        return CompletedWork()

    def recv(self, array: np.ndarray, peer: int | None, message_tag: int, call: Call) -> Work:
        """Takes the first message that fits, now or when it comes."""
        receive = _Receive(array, peer, message_tag)
        with self._room.changed:
            mail = self._room.mail[self._rank]
            for i, (source, tag, data) in enumerate(mail):
                if receive.accepts(source, tag):
                    del mail[i]
                    receive.take(source, data)
                    break
            else:
                self._room.receives[self._rank].append(receive)
        return _ReceiveWork(self, call, receive)

    def abort(self, reason: str) -> None:
        """Makes every wait of the group end with ``reason``."""
        with self._room.changed:
            self._room.aborted.setdefault(self._rank, reason)
            self._room.changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Posts that this rank has left; what it has sent stays readable."""
        with self._room.changed:
            self._room.left.setdefault(self._rank, self._last_seq)
            self._room.changed.notify_all()

    def _post(
        self,
        kind: Kind,
        call: Call,
        signature: Signature,
        array: np.ndarray | None,
        out: np.ndarray | None,
        counts: Any = None,
    ) -> Work:
        """Brings this rank's part; ``kind`` is what to do, while ``call.kind`` is what the user called."""
        room = self._room
        with room.changed:
            self._last_seq = call.seq
            slot = room.slots.setdefault(call.seq, _Slot())
            slot.posted[self._rank] = _Posted(signature, array, out, counts)
            if any(p.signature != signature for p in slot.posted.values()):
                slot.mismatched = True
            elif len(slot.posted) == room.size and not slot.gave_up and not room.aborted:
                slot.error = _carry_out(kind, [slot.posted[r] for r in range(room.size)])
                slot.done = not slot.error
            if slot.done or slot.mismatched or slot.error:
                room.changed.notify_all()
        return _CollectiveWork(self, call, slot, out)


class _ThreadWork(Work):
    """Common to collectives and recv: the wait loop, and ending once."""

    def __init__(self, backend: ThreadBackend, call: Call) -> None:
        self._backend, self._call = backend, call
        self._ended = False
        self._error: CommError | None = None

    def _check(self) -> None:
        """Sets ``_ended`` and perhaps ``_error``; called with the room's lock held."""
        raise NotImplementedError

    def _missing(self) -> list[int]:
        raise NotImplementedError

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Returns when the operation has ended well."""
        limit = seconds(timeout, self._call.timeout_s)
        backend, room = self._backend, self._backend._room
        start = time.monotonic()
        warn_at = start + backend.spec.stall_warning_s
        with room.changed:
            while not self._finish_if_possible():
                now = time.monotonic()
                if now >= start + limit:
                    self._give_up(limit)
                    break
                if now >= warn_at:
                    warn_at = float("inf")
                    backend.warn_stall(self._call, now - start, self._missing())
                try:
                    backend.spec.watch.check()
                except CommError as error:
                    self._end(backend.peer_error(self._call, str(error)))
                    break
                room.changed.wait(min(_POLL_S, start + limit - now))
        if self._error is not None:
            raise self._error
        return True

    def progress(self) -> bool:
        """Returns whether the operation has ended."""
        with self._backend._room.changed:
            return self._finish_if_possible()

    def exception(self) -> BaseException | None:
        """Returns the error, if it has ended with one."""
        return self._error

    def _end(self, error: CommError | None) -> None:
        self._ended, self._error = True, error

    def _finish_if_possible(self) -> bool:
        if not self._ended:
            self._check()
        return self._ended

    def _give_up(self, limit: float) -> None:
        self._end(self._backend.timeout_error(self._call, limit, self._missing()))

    def _check_peers(self, waiting_for: Sequence[int]) -> None:
        """Ends the operation if a rank has aborted, or one that is waited for has left."""
        room, backend = self._backend._room, self._backend
        if backend.failure is not None:
            self._end(backend.failure)
        for rank, reason in room.aborted.items():
            if rank != backend._rank and not self._ended:
                self._end(backend.peer_error(self._call, reason))
        for rank in waiting_for:
            if rank in room.left and not self._ended:
                self._end(backend.peer_error(self._call, backend.left_text(rank, room.left[rank], self._call)))


class _CollectiveWork(_ThreadWork):
    def __init__(self, backend: ThreadBackend, call: Call, slot: _Slot, out: np.ndarray | None) -> None:
        super().__init__(backend, call)
        self._slot: _Slot = slot
        self._out = out

    def result(self) -> Any:
        """Returns the output array."""
        return self._out

    def _missing(self) -> list[int]:
        return [r for r in range(self._backend._room.size) if r not in self._slot.posted]

    def _check(self) -> None:
        slot, room, backend = self._slot, self._backend._room, self._backend
        own = backend._rank
        if slot.done:
            self._end(None)
            slot.collected += 1
            if slot.collected == room.size:
                del room.slots[self._call.seq]
        elif slot.mismatched:
            mine = slot.posted[own].signature
            other = next(r for r in sorted(slot.posted) if slot.posted[r].signature != mine)
            self._end(backend.mismatch_error(self._call, mine, other, slot.posted[other].signature))
        elif slot.error:
            self._end(backend.fail(MismatchError(f"rank {backend.spec.rank}: {self._call}: {slot.error}")))
        elif slot.gave_up:
            first = slot.gave_up[0]
            if own in slot.missing:
                ranks = backend.spec.ranks
                reason = f"rank {ranks[first]} had given up waiting for rank {ranks[own]}, which came too late"
                self._end(backend.peer_error(self._call, reason))
            else:
                limit = self._call.timeout_s
                self._end(backend.timeout_error(self._call, limit, slot.missing, slot.gave_up))
        else:
            self._check_peers(self._missing())

    def _give_up(self, limit: float) -> None:
        slot = self._slot
        slot.missing = self._missing()
        slot.gave_up.append(self._backend._rank)
        self._backend._room.changed.notify_all()
        super()._give_up(limit)


class _ReceiveWork(_ThreadWork):
    def __init__(self, backend: ThreadBackend, call: Call, receive: _Receive) -> None:
        super().__init__(backend, call)
        self._receive = receive

    def result(self) -> Any:
        """Returns the array."""
        return self._receive.array

    def source_rank(self) -> int:
        """Returns the sender's global rank."""
        return self._backend.spec.ranks[self._receive.source] if self._receive.source >= 0 else -1

    def _missing(self) -> list[int]:
        peer = self._receive.peer
        own = self._backend._rank
        return [r for r in range(self._backend._room.size) if r != own] if peer is None else [peer]

    def _check(self) -> None:
        backend, receive = self._backend, self._receive
        if receive.source < 0:
            gone = self._missing() if receive.peer is not None else []
            self._check_peers(gone)
            return
        if receive.error:
            sender = backend.spec.ranks[receive.source]
            text = f"rank {backend.spec.rank}: {self._call} {receive.error} {sender}"
            self._end(backend.fail(MismatchError(text)))
        else:
            self._end(None)


def _carry_out(kind: Kind, posted: Sequence[_Posted]) -> str:
    """Does a collective for all ranks at once; ``posted`` is in rank order and its signatures agree.

    Returns:
        What is wrong with the call, or "".
    """
    signature = posted[0].signature
    root = signature.root
    if kind is Kind.BARRIER:
        return ""
    if kind is Kind.ALL_TO_ALL:
        return _exchange(posted)
    if kind is Kind.SCATTER:
        whole = _given(posted[root].array)
        for r, p in enumerate(posted):
            out = _given(p.out)
            out[:] = whole[r * out.size : (r + 1) * out.size]
        return ""
    arrays = [_given(p.array) for p in posted]
    if kind is Kind.BROADCAST:
        _copy_to(arrays[root], arrays)
    elif kind in (Kind.ALL_REDUCE, Kind.REDUCE):
        total = np.empty_like(arrays[0])
        reduce_in_rank_order(arrays, total, ReduceOp(signature.op))
        _copy_to(total, arrays if kind is Kind.ALL_REDUCE else [arrays[root]])
    elif kind in (Kind.ALL_GATHER, Kind.GATHER):
        whole = np.concatenate(arrays)
        _copy_to(whole, [p.out for p in posted if p.out is not None])
    elif kind is Kind.REDUCE_SCATTER:
        for r, p in enumerate(posted):
            out = _given(p.out)
            reduce_in_rank_order([a[r * out.size : (r + 1) * out.size] for a in arrays], out, ReduceOp(signature.op))
    return ""


def _exchange(posted: Sequence[_Posted]) -> str:
    for receiver, p in enumerate(posted):
        out, (_, out_counts) = _given(p.out), p.counts
        at = 0
        for sender, q in enumerate(posted):
            counts = q.counts[0]
            start = sum(counts[:receiver])
            n = counts[receiver]
            if n != out_counts[sender]:
                expected = out_counts[sender]
                return f"group rank {sender} sends {n} elements to group rank {receiver}, which expects {expected}"
            out[at : at + n] = _given(q.array)[start : start + n]
            at += n
    return ""


def _given(array: np.ndarray | None) -> np.ndarray:
    assert array is not None
    return array


def _copy_to(source: np.ndarray, targets: Sequence[np.ndarray]) -> None:
    for target in targets:
        if target is not source:
            target[:] = source
