"""Moves a group's operations on, in order; waits for them; and finds out why one will never end.

Nothing here blocks but ``Engine.finish``, and that looks at the deadline, at the peers' words, at their processes and
at the published failures all the while it waits. Once an operation has failed, the group has: everything in flight ends
with that error, and the peers read the reason in this rank's area.
"""

import contextvars
import os
import threading
import time
import weakref
from abc import abstractmethod
from collections import deque
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np

from ddpflow.comm.backend import Backend, rank_list
from ddpflow.comm.backends.shm_arena import Arena, PeerArenas
from ddpflow.comm.backends.shm_control import COMPLETED, FAILED, LEFT, Control, Failure
from ddpflow.comm.backends.shm_wait import Peers, Waiter
from ddpflow.comm.signature import Call, Signature, mismatch_text
from ddpflow.comm.work import Work, seconds
from ddpflow.errors import CommError, MismatchError, PeerError

__all__ = ["BLOCKED", "ENDED", "NEVER", "TRAILING", "Engine", "ShmWork"]

# What a step of an operation returns: later ones must wait as well; they may go on; it is over.
BLOCKED, TRAILING, ENDED = range(3)
NEVER = 1 << 62  # a value that no word reaches: what ``ShmWork.block`` says when there is no single word to look at

_EXAMINE_EVERY_S = 0.01
_ROOT_CAUSES = {"exception": 0, "mismatch": 1, "peer": 2, "timeout": 3}  # kinds of ``Failure``, the most telling first
# How long the reason of a death is waited for: who collects the process needs a moment to write it down.
_EXPLAIN_S = 0.5


class ShmWork(Work):
    """An operation in flight.

    Attributes:
        engine: what moves it on.
        call: the call it comes from.
        state: what its last step returned.
        error: the error it ended with, or None.
    """

    __slots__ = ("call", "engine", "error", "state")

    ordered = True  # whether it is one of the collectives, which end in order
    engine: "Engine"
    call: Call
    state: int
    error: CommError | None

    @abstractmethod
    def step(self) -> int:
        """Goes as far as it can without waiting; returns and stores BLOCKED, TRAILING or ENDED."""

    @abstractmethod
    def block(self) -> tuple[int, int]:
        """Returns a shared word and the value it must reach before another step makes sense."""

    @abstractmethod
    def behind(self) -> list[int]:
        """Returns the indices of the ranks that it waits for."""

    def missing(self) -> list[int]:
        """Returns the indices of the ranks to blame when the deadline passes."""
        return self.behind()

    def withdraw(self) -> None:
        """Keeps peers that come too late from taking part as if all were well."""
        return

    def check_calls(self) -> None:
        """Raises the recorded error if a peer has called something else."""
        return

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Moves this and earlier operations on until this one has ended; see ``Work.wait``."""
        if self.state != ENDED:
            self.engine.finish(self, self.call.timeout_s if timeout is None else seconds(timeout, 0.0))
        if self.error is not None:
            raise self.error
        return True

    def progress(self) -> bool:
        """Moves this and earlier operations on as far as they go now."""
        if self.state != ENDED:
            self.engine.poll()
        return self.state == ENDED

    def exception(self) -> BaseException | None:
        """Returns the error with which the operation ended, or None."""
        return self.error


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _disown_all() -> None:
    for engine in list(_engines):
        engine.disown()


# A forked child (a data loader's worker) shares the parent's memory and its place in the group, and may use neither.
os.register_at_fork(after_in_child=_disown_all)


class Engine:
    """The operations of one group on one rank.

    Attributes:
        words: the control segment as 8-byte words.
        flight: collectives in flight, oldest first.
        messages: sends and receives in flight.
        lock: held while anything moves; not while sleeping.
        launched: collectives launched so far.
        quietly: calls a function without NumPy's warnings: an overflow is for a loss scaler to see. With the lock held.
        others: indices of the other ranks.
    """

    def __init__(self, backend: Backend, control: Control, peers: Peers, ranks_here: int) -> None:
        layout, spec = control.layout, backend.spec
        self.backend, self.spec, self.control, self.peers = backend, spec, control, peers
        self.words, self.fence, self.layout = control.words, control.fence, layout
        self.size, self.index = spec.size, spec.group_rank
        self.ring, self.inline_bytes = layout.ring, layout.inline_bytes
        self.waiter = Waiter(self.words, ranks_here)
        self.arena = Arena(control.file, layout.arena(self.index), layout.arena_bytes)
        self.peer_arenas = PeerArenas(control.file, layout)
        self.flight: deque[ShmWork] = deque()
        self.messages: list[ShmWork] = []
        self.lock = threading.RLock()
        # Entering this context costs a tenth of np.errstate.
        self.quietly = contextvars.copy_context().run
        self.quietly(np.seterr, all="ignore")
        self.pid = os.getpid()
        _engines.add(self)
        self.launched = 0
        self.next_chunk = 0
        self.others = [r for r in range(self.size) if r != self.index]
        self.headers = [layout.header(r) for r in range(self.size)]
        self.slots = [layout.slots(r) for r in range(self.size)]
        self.other_headers = [self.headers[r] for r in self.others]
        self.own_header = self.headers[self.index]
        self.other_slots = [self.slots[r] for r in self.others]
        self.own_slots = self.slots[self.index]
        self._own_completed = self.own_header + COMPLETED
        self._completed = self._last_seq = 0
        self._slots_free_until = layout.ring
        self._next_look = 0.0
        self._buffers: dict[tuple[str, np.dtype[Any]], list[list[np.ndarray]]] = {}
        self._staging_reserved = False

    # Buffers

    def inline_buffers(self, dtype: np.dtype[Any]) -> list[list[np.ndarray]]:
        """Returns the inline buffers as arrays of ``dtype``: a list over slots of lists over ranks."""
        buffers = self._buffers.get(("inline", dtype))
        return buffers or self._view("inline", dtype, self.layout.inline_at, self.ring, self.inline_bytes)

    def chunks(self, dtype: np.dtype[Any]) -> list[list[np.ndarray]]:
        """Returns the staging chunks as arrays of ``dtype``: a list over chunks of lists over ranks."""
        layout = self.layout
        if not self._staging_reserved:
            start = self.index * layout.area_bytes + layout.staging_at
            self.control.file.reserve(start, start + layout.n_chunks * layout.chunk_bytes)
            self._staging_reserved = True
        buffers = self._buffers.get(("chunk", dtype))
        return buffers or self._view("chunk", dtype, layout.staging_at, layout.n_chunks, layout.chunk_bytes)

    def _view(self, kind: str, dtype: np.dtype[Any], at: int, n: int, n_bytes: int) -> list[list[np.ndarray]]:
        usable = n_bytes // dtype.itemsize * dtype.itemsize
        starts = [[r * self.layout.area_bytes + at + i * n_bytes for r in range(self.size)] for i in range(n)]
        buffers = [[self.control.bytes[s : s + usable].view(dtype) for s in row] for row in starts]
        self._buffers[kind, dtype] = buffers
        return buffers

    # Progress

    def slot_is_free(self) -> bool:
        """Whether the ring has room for another collective: all ranks are done with the one that was there before."""
        if self.launched < self._slots_free_until:
            return True
        words = self.words
        self._slots_free_until = self.ring + min(words[header + COMPLETED] for header in self.headers)
        return self.launched < self._slots_free_until

    def count_completed(self, seq: int) -> None:
        """Tells the peers that this rank is done with one more collective, ``seq`` of the group, and with its slot."""
        self._completed = completed = self._completed + 1
        self._last_seq = seq
        if self.fence is not None:
            self.fence()
        self.words[self._own_completed] = completed

    def advance(self, attentive: bool = False) -> None:
        """Moves everything on as far as it goes now; the caller holds the lock.

        Args:
            attentive: whether an answer that lacks is worth some microseconds: somebody waits for the result.
        """
        flight = self.flight
        try:
            while flight:
                first = flight[0]
                state = first.step()
                while attentive and state != ENDED and self.waiter.glance(*first.block()):
                    state = first.step()
                if state == ENDED:
                    self.count_completed(flight.popleft().call.seq)
                    continue
                if state == TRAILING:
                    for work in islice(flight, 1, None):
                        if work.step() == BLOCKED:
                            break
                        work.state = TRAILING  # it may be done, but ends only after those before it
                break
            if self.messages:
                self.messages = [work for work in self.messages if work.step() != ENDED]
        except Exception as error:
            if error is not self.backend.failure:
                self.fail_own(error)
        except BaseException as error:  # Ctrl-C in the middle of a step
            self.fail_own(error)
            raise

    def poll(self) -> None:
        """Moves everything on without waiting, and now and then looks whether it still can end."""
        with self.lock:
            self.advance()
            if (self.flight or self.messages) and time.monotonic() >= self._next_look:
                for work in [*islice(self.flight, 1), *self.messages]:
                    self._look_around(work)

    def finish(self, work: ShmWork, timeout_s: float) -> None:
        """Waits until ``work`` has ended, well or not.

        Args:
            work: the operation; earlier collectives end before it.
            timeout_s: seconds from now until the deadline.
        """
        started = quiet_since = time.monotonic()
        patient = warned = False
        while True:
            with self.lock:
                self.advance(attentive=not patient)
                if self.backend.failure is not None and work.error is None:  # another thread has called ``abort``
                    work.error, work.state = self.backend.failure, ENDED
                if work.state == ENDED:
                    return
                blocked = self.flight[0] if work.ordered and self.flight else work
                index, value = blocked.block()
                moved = self.words[index] >= value if patient else self.waiter.spin(index, value)
                now = time.monotonic()
                if now >= self._next_look:
                    self._look_around(blocked)
                if now - started >= timeout_s and work.state != ENDED:
                    self._give_up(blocked, timeout_s)
                if work.state == ENDED:
                    return
                if not warned and now - started >= self.spec.stall_warning_s:
                    warned = True
                    self.backend.warn_stall(blocked.call, now - started, blocked.missing())
            if moved:
                quiet_since = now
            else:
                self.waiter.sleep(now - quiet_since)
            patient = not moved

    # Failure

    def fail(self, error: CommError, failure: Failure) -> None:
        """Ends everything in flight with ``error``, and publishes ``failure`` for the peers."""
        self.backend.fail(error)
        self.arena.recycle = False
        if self.pid != os.getpid():  # a forked child must not speak for its parent
            return
        self.control.publish_failure(failure, self._last_seq)
        for work in [*self.flight, *self.messages]:
            work.withdraw()
            work.error, work.state = error, ENDED
        self.flight.clear()
        self.messages.clear()

    def disown(self) -> None:
        """Takes the group away from a forked child; the parent goes on with it."""
        self.lock = threading.RLock()  # the parent's may be held by a thread that the child does not have
        self.flight.clear()
        self.messages.clear()
        self.backend.fail(CommError(f"rank {self.spec.rank}: a forked child cannot use its parent's process group"))

    def leave(self) -> None:
        """Tells the peers that this rank has left, unless it has failed, and lets go of their memory."""
        if self.backend.failure is None:
            self.control.set_state(LEFT, self._last_seq)
        self.peer_arenas.clear()

    def fail_own(self, error: BaseException) -> None:
        """Fails because of an error of this rank's own, a full memory for instance."""
        what = f"{type(error).__name__}: {error}"
        own = error
        if not isinstance(own, CommError):
            own = CommError(f"rank {self.spec.rank}: a collective failed with {what}")
            own.__cause__ = error
        self.fail(own, Failure("exception", f"rank {self.spec.rank} raised {what}", (self.spec.rank,)))

    def _look_around(self, work: ShmWork) -> None:
        """Fails everything if ``work`` can never end; to be called a hundred times a second at most."""
        self._next_look = time.monotonic() + _EXAMINE_EVERY_S
        try:
            work.check_calls()
        except MismatchError:
            return
        failure, blamed = self._find_failure(work)
        if failure is None:
            return
        self.advance()  # the last thing a peer did before it went may have been all that was needed
        if work.state == ENDED or (blamed >= 0 and blamed not in work.behind()):
            return
        self._pass_on(failure, work)

    def _find_failure(self, work: ShmWork) -> tuple[Failure | None, int]:
        """Returns why ``work`` can never end, or None; and the rank whose part is lacking, or -1 for any."""
        ranks = self.spec.ranks
        failures = [self.control.failure_of(r) for r in self._in_state(FAILED)]
        if failures:
            return min(failures, key=lambda f: _ROOT_CAUSES.get(f.kind, 9)), -1
        for rank in work.behind():
            process = self.peers.processes[rank]
            is_alive = process.is_alive()  # looked at before the state: leaving comes before dying
            if self.control.state(rank) == LEFT:
                text = self.backend.left_text(rank, self.control.state_at(rank), work.call)
                return Failure("peer", text, (ranks[rank],)), rank
            if not is_alive and self.control.state(rank) != FAILED:
                what = f"(pid {process.pid}) is gone: its process has ended without leaving the group"
                text = self.spec.watch.explain(ranks[rank], what, _EXPLAIN_S)
                # Meanwhile another rank may have found out the same, and be all that there is a record of.
                failures = [self.control.failure_of(r) for r in self._in_state(FAILED)] or [Failure("peer", text)]
                return failures[0], rank
        try:
            self.spec.watch.check()
        except PeerError as error:
            return Failure("peer", str(error)), -1
        return None, -1

    def _pass_on(self, failure: Failure, work: ShmWork) -> None:
        """Fails because of what was found out about a peer."""
        spec, backend = self.spec, self.backend
        if failure.kind == "mismatch":
            error = backend.fail(MismatchError(f"rank {spec.rank}: {work.call}: {failure.text}"))
        elif failure.kind != "timeout":
            error = backend.peer_error(work.call, failure.text)
        elif spec.rank in failure.ranks:
            gone = rank_list(spec.ranks[r] for r in self._in_state(FAILED))
            error = backend.peer_error(
                work.call, f"{gone} had given up waiting for rank {spec.rank}, which came too late"
            )
        else:
            missing = [r for r in self.others if spec.ranks[r] in failure.ranks]
            error = backend.timeout_error(work.call, work.call.timeout_s, missing, self._in_state(FAILED))
        self.fail(error, failure)

    def _give_up(self, work: ShmWork, timeout_s: float) -> None:
        """Fails because the deadline has passed."""
        gave_up = self._in_state(FAILED)
        missing = [r for r in work.missing() if r not in gave_up]
        error = self.backend.timeout_error(work.call, timeout_s, missing, gave_up)
        stopped = [self.spec.ranks[r] for r in missing if self.peers.processes[r].is_stopped()]
        if stopped:
            error.args = (f"{error}; stopped by a signal or a debugger: {rank_list(stopped)}",)
        self.fail(error, Failure("timeout", str(error), tuple(self.spec.ranks[r] for r in missing)))

    def calls_differ(self, call: Call, own: Signature, rank: int, theirs: Signature) -> CommError:
        """Fails because rank ``rank`` has made another call, and returns the error to raise."""
        error = self.backend.mismatch_error(call, own, rank, theirs)
        ranks = self.spec.ranks
        self.fail(error, Failure("mismatch", mismatch_text(self.spec.rank, own, ranks[rank], theirs), (ranks[rank],)))
        return error

    def contents_differ(self, call: Call, text: str) -> CommError:
        """Fails because a peer has sent something else than is expected, and returns the error to raise."""
        error = self.backend.fail(MismatchError(f"rank {self.spec.rank}: {call} {text}"))
        self.fail(error, Failure("mismatch", f"rank {self.spec.rank}: {call} {text}"))
        return error

    def _in_state(self, state: int) -> list[int]:
        return [r for r in self.others if self.control.state(r) == state]
