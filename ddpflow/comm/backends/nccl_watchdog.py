"""The watchdog of an NCCL group: a thread that ends operations whose peers are late, gone or failed.

The host does not wait for the GPU, so nobody would notice an operation that never ends. This thread looks at the events
of what is in flight, at NCCL's background errors, at the failures that other ranks have published, and at the deadline.
When something is wrong it aborts the communicators, which lets the streams go on, and every Work and every later call
raises the error.

To say who is late the ranks tell each other, through the store, what they have launched last: each watchdog answers as
soon as it sees that one has trouble, even when its own rank is busy elsewhere.
"""

import contextlib
import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ddpflow.comm.backends.nccl_errors import error_code, error_text
from ddpflow.comm.signature import Signature, mismatch_text
from ddpflow.comm.store import PrefixStore, Store
from ddpflow.comm.tcp_store import TCPStore
from ddpflow.errors import CommError, MismatchError, PeerError

if TYPE_CHECKING:
    from ddpflow.comm.backends.nccl import NcclBackend
    from ddpflow.comm.backends.nccl_work import NcclWork

__all__ = ["Watchdog", "own_connection"]

_POLL_S = 0.05
_STORE_S = 0.5  # how often the store is asked whether another rank has trouble
_ANSWER_S = 3.0  # how long answers of the others' watchdogs are waited for
_REMEMBERED = 256


def own_connection(store: Store) -> tuple[Store, TCPStore | None]:
    """Returns the same store over a connection of its own, where calls of other threads do not block it.

    The second value is what must be closed in the end.
    """
    if isinstance(store, PrefixStore):
        inner, client = own_connection(store.store)
        return PrefixStore(store.prefix, inner), client
    if isinstance(store, TCPStore):
        client = store.clone(5.0)
        return client, client
    return store, None


class Watchdog:
    """Looks after the operations of one rank in one group.

    Args:
        backend: The transport.
    """

    def __init__(self, backend: "NcclBackend") -> None:
        self._backend = backend
        self._spec = backend.spec
        self.in_flight: deque[NcclWork] = deque()
        self._launched: dict[int, Signature] = {}
        self._last = 0
        self._answered = 0
        self._warned: NcclWork | None = None
        self._left: dict[int, int] = {}
        self._next_store = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._store: Store = self._spec.store
        self._client: TCPStore | None = None

    def note(self, signature: Signature) -> None:
        """Remembers a collective that is about to be launched."""
        self._last = signature.seq
        self._launched[signature.seq] = signature
        self._launched.pop(signature.seq - _REMEMBERED, None)

    def add(self, work: "NcclWork") -> None:
        """Looks after an operation that was launched; what has ended meanwhile lets go of its arrays."""
        self._reap()
        self.in_flight.append(work)

    def start(self) -> None:
        """Starts the thread, once there is a communicator."""
        if self._thread is None and self._spec.size > 1:
            self._store, self._client = own_connection(self._spec.store)
            name = f"ddpflow-nccl-{self._spec.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def stop(self, left: bool) -> None:
        """Ends the thread; with ``left`` the peers are told that this rank will launch no more."""
        if self._thread is None:
            return
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(2.0)
        self._thread = None
        with contextlib.suppress(CommError, OSError):
            if left:
                self._store.set(f"left/{self._spec.group_rank}", str(self._last))
        if self._client is not None:
            self._client.close()

    def drain(self, timeout_s: float) -> bool:
        """Waits until nothing is in flight; returns whether that was so in time."""
        deadline = time.monotonic() + timeout_s
        while self._reap():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def announce(self, reason: str, late_at: int = 0) -> None:
        """Tells the peers that this rank gives the group up; they see it within a second.

        Args:
            reason: Why, as it will stand in their errors.
            late_at: The collective in which peers did not come in time, or 0.
        """
        with contextlib.suppress(CommError, OSError):
            self._store.compare_set("trouble", b"", json.dumps([self._spec.group_rank, reason, late_at]))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        # Or the first question about an event would make a CUDA context on GPU 0, for every rank of this host.
        self._backend.gpu().use()
        while not self._stop.wait(_POLL_S):
            try:
                self._look()
            except CommError as error:
                self._end(error)
                return

    def _reap(self) -> int:
        """Forgets what has ended; returns how many are left."""
        flight = self.in_flight
        with self._lock:
            while flight and flight[0].finished():
                flight.popleft()
        return len(flight)

    def _look(self) -> None:
        """Looks once; raises what is wrong."""
        self._reap()
        oldest = self.in_flight[0] if self.in_flight else None
        now = time.monotonic()
        if oldest is not None:
            self._check_nccl(oldest)
            try:
                self._spec.watch.check()
            except PeerError as error:
                raise self._backend.peer_error(oldest.call, str(error)) from None
            waited = now - oldest.launched
            if waited > self._spec.stall_warning_s and self._warned is not oldest:
                self._warned = oldest
                self._backend.warn_stall(oldest.call, waited, self._ask(oldest.call.seq))
            for work in list(self.in_flight):
                if now > work.deadline:
                    self._timed_out(oldest, work.limit_s)
        if self._backend.stalled and self._warned is not oldest:
            self._backend.resume()
        if now >= self._next_store:
            self._next_store = now + _STORE_S
            with contextlib.suppress(OSError):
                self._check_store(oldest)

    def _check_nccl(self, oldest: "NcclWork") -> None:
        for communicator in self._backend.communicators():
            try:
                communicator.check_async_error()
            except Exception as error:
                if error_code(error) == 7:  # in progress
                    continue
                raise self._backend.peer_error(oldest.call, f"NCCL says {error_text(error)}") from None

    def _check_store(self, oldest: "NcclWork | None") -> None:
        self._answer()
        trouble = self._store.try_get("trouble")
        if trouble is not None:
            rank, reason, late_at = json.loads(trouble)
            if late_at:
                self._ask(late_at)
            if rank != self._spec.group_rank:
                raise self._backend.peer_error(None if oldest is None else oldest.call, reason)
        if oldest is None:
            return
        for rank in range(self._spec.size):
            if rank != self._spec.group_rank and rank not in self._left:
                said = self._store.try_get(f"left/{rank}")
                if said is not None:
                    self._left[rank] = int(said)
            if self._left.get(rank, oldest.call.seq) < oldest.call.seq:
                text = self._backend.left_text(rank, self._left[rank], oldest.call)
                raise self._backend.peer_error(oldest.call, text)

    def _timed_out(self, oldest: "NcclWork", limit: float) -> None:
        """Raises the error of a deadline that has passed, after asking the others how far they are."""
        call = oldest.call
        self.announce(f"rank {self._spec.rank} gave up waiting in {call}", call.seq)
        raise self._backend.timeout_error(call, limit, self._ask(call.seq))

    def _answer(self) -> None:
        """Tells what this rank has launched, if another has asked since the last answer."""
        asked = int(self._store.try_get("asked") or 0)
        if asked != self._answered:
            self._answered = asked
            known = {number: list(signature) for number, signature in list(self._launched.items())}
            self._store.set(f"at/{self._spec.group_rank}", json.dumps([asked, self._last, known]))

    def _ask(self, seq: int) -> list[int]:
        """Asks the others what they have launched.

        Returns:
            The group ranks that have not launched collective ``seq``, or do not answer.

        Raises:
            MismatchError: One launched another operation under that number.
        """
        spec = self._spec
        number = self._store.add("asked", 1)
        waiting = [r for r in range(spec.size) if r != spec.group_rank]
        missing = list(waiting)
        end = time.monotonic() + _ANSWER_S
        while waiting and time.monotonic() < end:
            self._answer()
            for rank in list(waiting):
                said = self._store.try_get(f"at/{rank}")
                answered, last, theirs = (0, 0, {}) if said is None else json.loads(said)
                if answered < number:
                    continue
                waiting.remove(rank)
                if last >= seq:
                    missing.remove(rank)
                own, other = self._launched.get(seq), theirs.get(str(seq))
                if own is not None and other is not None and own != Signature(*other):
                    text = mismatch_text(spec.rank, own, spec.ranks[rank], Signature(*other))
                    raise self._backend.fail(MismatchError(f"rank {spec.rank}: {text}"))
            self._stop.wait(_POLL_S)
        return missing

    def _end(self, error: CommError) -> None:
        """Makes everything in flight end with the error, and lets the streams go on."""
        self._backend.fail(error)
        for work in list(self.in_flight):
            if not work.finished():
                work.error = error
        self.announce(str(error))
        self._backend.abort_communicators()
