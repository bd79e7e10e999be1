"""The engine of the MPI transport: packets that say who has arrived, operations moved on by polling, and their waits.

Every collective begins with a small packet from each rank to each other one. It carries the call's signature, so that
different calls are found out before data moves, and, where it is small, the data itself. Who has sent a packet has
arrived: a deadline can name the others. Larger data then goes by non-blocking point-to-point messages, in pieces of
    limited size.
"""

import contextlib
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from mpi4py import MPI

from ddpflow.comm.backend import Backend
from ddpflow.comm.signature import Call, Kind, Signature
from ddpflow.comm.work import Work, seconds
from ddpflow.errors import CommError, MismatchError

__all__ = [
    "ABORTED",
    "COLLECTIVE",
    "GAVE_UP",
    "INLINE_BYTES",
    "LEFT",
    "MESSAGE",
    "PACKET_HEAD",
    "Engine",
    "MpiWork",
    "Phases",
    "ReceiveWork",
    "Transfer",
    "free_closed",
]

COLLECTIVE, MESSAGE, ABORTED, LEFT, GAVE_UP = range(1, 6)
INLINE_BYTES = 2048
PACKET_HEAD = struct.Struct("<q6q")
_PACKET_TAG = 0
_COLLECTIVE_TAGS, _MESSAGE_TAGS = 16_000, 16_000  # MPI guarantees tags up to 32767
_LOOK_S = 0.05
_SPINS = 300
# MPICH takes in one message per poll at times, so a single miss does not mean that nothing has come.
_CAREFUL_MISSES = 4
_LONGEST_SLEEP_S = 0.001

# What an operation does after all ranks' packets are there: a generator that yields lists of requests to wait for.
Phases = Callable[[dict[int, memoryview]], Iterator[list[Any]]]
# MPI may have been started for one thread at a time.
_mpi_lock = threading.RLock()
_closed: list["Engine"] = []  # engines of groups that this rank has left, whose communicators still exist


class Transfer:
    """Messages of a communicator in pieces of at most ``chunk_bytes``, as lists of requests."""

    def __init__(self, comm: Any, chunk_bytes: int) -> None:
        self.comm, self.chunk_bytes = comm, chunk_bytes

    def send(self, array: np.ndarray, peer: int, tag: int) -> list[Any]:
        """Starts to send ``array``; it must not change before the requests have ended."""
        return [self.comm.Isend([part, MPI.BYTE], peer, tag) for part in self._parts(array)]

    def receive(self, array: np.ndarray, peer: int, tag: int) -> list[Any]:
        """Starts to receive into ``array``."""
        return [self.comm.Irecv([part, MPI.BYTE], peer, tag) for part in self._parts(array)]

    def _parts(self, array: np.ndarray) -> list[np.ndarray]:
        data = array.view(np.uint8)
        return [data[at : at + self.chunk_bytes] for at in range(0, data.size, self.chunk_bytes)]


class Engine:
    """One rank's side of a group's communication; all methods are called with ``lock`` held.

    Args:
        comm: A communicator of this group alone.
        backend: The transport, for its error texts.
        chunk_bytes: Largest piece of a message.
    """

    def __init__(self, comm: Any, backend: Backend, chunk_bytes: int) -> None:
        self.comm, self.backend = comm, backend
        self.rank, self.size = backend.spec.group_rank, backend.spec.size
        self.others = [r for r in range(self.size) if r != self.rank]
        self.transfer = Transfer(comm, chunk_bytes)
        self.lock = _mpi_lock
        self.works: list[MpiWork] = []
        self.arrived: dict[int, dict[int, tuple[Signature, memoryview]]] = {}
        self.aborted: dict[int, str] = {}
        self.left: dict[int, int] = {}
        self.gave_up: dict[int, tuple[int, list[int]]] = {}
        self.mail: list[tuple[int, int, int, int, int, memoryview]] = []  # source, tag, number, dtype, length, data
        self.receives: list[ReceiveWork] = []
        self.last_seq = 0
        self._sending: list[tuple[Any, Any]] = []
        self._numbers = [0] * self.size

    # Packets

    def post(self, peers: Sequence[int], kind: int, fields: Sequence[int], payload: bytes = b"") -> None:
        """Sends a packet to each peer; the data is copied."""
        data = PACKET_HEAD.pack(kind, *fields, *([0] * (6 - len(fields)))) + payload
        for peer in peers:
            self._sending.append((self.comm.Isend([data, MPI.BYTE], peer, _PACKET_TAG), data))

    def next_number(self, peer: int) -> int:
        """Numbers the messages to a peer."""
        self._numbers[peer] += 1
        return self._numbers[peer]

    def collective_tag(self, call: Call) -> int:
        """Returns the MPI tag of a collective's data."""
        return 1 + call.seq % _COLLECTIVE_TAGS

    def message_tag(self, number: int) -> int:
        """Returns the MPI tag of a message's data."""
        return 1 + _COLLECTIVE_TAGS + number % _MESSAGE_TAGS

    def pump(self, misses: int = 1) -> None:
        """Takes in packets until so many polls have found none, and forgets those that have gone out."""
        if self.comm == MPI.COMM_NULL:
            return
        if self._sending:
            self._sending = [entry for entry in self._sending if not entry[0].Test()]
        status = MPI.Status()
        while misses:
            message = self.comm.Improbe(MPI.ANY_SOURCE, _PACKET_TAG, status)
            if message is None:
                misses -= 1
                continue
            data = bytearray(status.Get_count(MPI.BYTE))
            message.Recv([data, MPI.BYTE])
            self._take(status.Get_source(), memoryview(data))

    def _take(self, source: int, data: memoryview) -> None:
        kind, *fields = PACKET_HEAD.unpack_from(data)
        payload = data[PACKET_HEAD.size :]
        if kind == COLLECTIVE:
            signature = Signature(*fields)
            self.arrived.setdefault(signature.seq, {})[source] = (signature, payload)
        elif kind == MESSAGE:
            tag, number, dtype, length = fields[:4]
            self.mail.append((source, tag, number, dtype, length, payload))
        elif kind == ABORTED:
            self.aborted.setdefault(source, bytes(payload).decode(errors="replace"))
        elif kind == LEFT:
            self.left.setdefault(source, fields[0])
        else:
            self.gave_up.setdefault(source, (fields[0], np.frombuffer(payload, np.int32).tolist()))

    @property
    def is_idle(self) -> bool:
        """Whether all packets have gone out."""
        return not self._sending

    # Operations

    def launch(self, work: "MpiWork") -> "MpiWork":
        """Adds an operation and moves everything on once."""
        # A rank that comes late must see that its peers have given up, before it takes their data for a result.
        self.pump(_CAREFUL_MISSES)
        self.works.append(work)
        self.progress()
        return work

    def progress(self) -> None:
        """Moves all operations on without blocking."""
        try:
            self.pump()
            if self.receives:
                self._match()
            for work in self.works:
                work.advance()
        except MPI.Exception as error:
            failure = self.backend.failure or self.backend.peer_error(None, f"MPI reports: {error}")
            for work in self.works:
                work.end(failure)
        self.works = [work for work in self.works if not work.ended]

    def free_when_left(self) -> None:
        """Has the communicator freed once all ranks have left the group; to be called when this one has."""
        with self.lock:
            _closed.append(self)
        free_closed()

    def free(self) -> bool:
        """Frees the communicator once all ranks have left in good order; returns whether there is no more to be done.

        Nobody is waited for: MPI_Comm_free is collective, but made to be local (MPI 4.1, section 7.4.3). Where a rank
        has failed, or something is still under way, the communicator stays until MPI ends.
        """
        if self.backend.failure is not None or self.works:
            return True
        self.pump(_CAREFUL_MISSES)
        if self.aborted:
            return True
        if not self.is_idle or len(self.left) < len(self.others):
            return False
        self.comm.Free()
        self.others = []
        return True

    def _match(self) -> None:
        """Gives messages that have come to the receives that ask for them, both in order."""
        self.receives = [receive for receive in self.receives if not receive.ended]
        for receive in list(self.receives):
            for i, (source, tag, number, dtype, length, payload) in enumerate(self.mail):
                if receive.message_tag == tag and receive.peer in (None, source):
                    del self.mail[i]
                    self.receives.remove(receive)
                    receive.take(source, number, dtype, length, payload)
                    break


def free_closed() -> None:
    """Frees the communicators of groups that all their ranks have left."""
    with _mpi_lock:
        if not MPI.Is_finalized():
            with contextlib.suppress(MPI.Exception):  # a peer's process is gone: what is left ends with MPI
                _closed[:] = [engine for engine in _closed if not engine.free()]


class MpiWork(Work):
    """A collective, or a message being sent: ends when its phases have."""

    def __init__(self, engine: Engine, call: Call, signature: Signature | None, phases: Phases, result: Any) -> None:
        self.engine, self.call, self.signature = engine, call, signature
        self.ended = False
        self._phases = phases
        self._running: Iterator[list[Any]] | None = None
        self._requests: list[Any] = []
        self._error: CommError | None = None
        self._result = result

    def advance(self) -> None:
        """Moves this operation as far as it can go now."""
        if self.ended:
            return
        if self.engine.backend.failure is not None:
            self.end(self.engine.backend.failure)
            return
        if self._running is None and not self._start():
            return
        assert self._running is not None
        while MPI.Request.Testall(self._requests):
            try:
                self._requests = next(self._running)
            except StopIteration:
                self.end(None)
                return
            except CommError as error:
                self.end(self.engine.backend.fail(error))
                return

    def _start(self) -> bool:
        """Begins the phases once every rank has arrived with the same call."""
        if self.signature is None:
            self._running = self._phases({})
            return True
        if self._given_up():
            return False
        packets = self.engine.arrived.get(self.call.seq, {})
        for source, (signature, _) in packets.items():
            if signature != self.signature:
                self.end(self.engine.backend.mismatch_error(self.call, self.signature, source, signature))
                return False
        if len(packets) < self.engine.size - 1:
            return False
        self.engine.arrived.pop(self.call.seq, None)
        self._running = self._phases({source: payload for source, (_, payload) in packets.items()})
        return True

    def end(self, error: CommError | None) -> None:
        """Ends the operation."""
        self.ended, self._error = True, error

    def missing(self) -> list[int]:
        """Returns the group ranks that have not arrived."""
        if self.signature is None or self._running is not None:
            return []
        return [r for r in self.engine.others if r not in self.engine.arrived.get(self.call.seq, {})]

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Polls until the operation has ended; looks after peers and the deadline now and then."""
        limit = seconds(timeout, self.call.timeout_s)
        if not self.progress():
            start = time.monotonic()
            spins, pause, look, warned = 0, 0.0, start + _LOOK_S, False
            while not self.progress():
                spins += 1
                if spins > _SPINS:
                    time.sleep(pause)
                    pause = min(_LONGEST_SLEEP_S, pause * 1.3 + 1e-6)
                now = time.monotonic()
                if now >= look or now >= start + limit:
                    look = now + _LOOK_S
                    self._look(now - start, limit)
                    if not warned and now - start >= self.engine.backend.spec.stall_warning_s:
                        warned = True
                        self.engine.backend.warn_stall(self.call, now - start, self.missing())
        if self._error is not None:
            raise self._error
        return True

    def _look(self, waited_s: float, limit: float) -> None:
        """Ends the operation if it cannot end well any more."""
        engine, backend = self.engine, self.engine.backend
        with engine.lock:
            if self.ended:
                return
            try:
                backend.spec.watch.check()
            except CommError as error:
                self.end(backend.peer_error(self.call, str(error)))
                return
            for reason in engine.aborted.values():
                self.end(backend.peer_error(self.call, reason))
                return
            if self._given_up():
                return
            for rank in self.waits_for():
                if rank in engine.left:
                    self.end(backend.peer_error(self.call, backend.left_text(rank, engine.left[rank], self.call)))
                    return
            if waited_s >= limit:
                missing = self.missing()
                if self.signature is not None:
                    engine.post(engine.others, GAVE_UP, [self.call.seq], np.array(missing, np.int32).tobytes())
                self.end(backend.timeout_error(self.call, limit, missing))

    def _given_up(self) -> bool:
        """Ends the operation if a peer has given it up, even if all packets are there: half a result is none."""
        engine, backend = self.engine, self.engine.backend
        for rank, (seq, absent) in engine.gave_up.items():
            if seq == self.call.seq and engine.rank not in absent:
                self.end(backend.timeout_error(self.call, self.call.timeout_s, absent, [rank]))
            else:
                ranks = backend.spec.ranks
                late = f"rank {ranks[rank]} had given up waiting for rank {ranks[engine.rank]}, which came too late"
                self.end(backend.peer_error(self.call, late))
            return True
        return False

    def waits_for(self) -> list[int]:
        """Returns the group ranks whose leaving would end this wait."""
        return self.missing()

    def progress(self) -> bool:
        """Moves the group's operations on; returns whether this one has ended."""
        if not self.ended:
            with self.engine.lock:
                self.engine.progress()
        return self.ended

    def exception(self) -> BaseException | None:
        """Returns the error, if it has ended with one."""
        return self._error

    def result(self) -> Any:
        """Returns the output array."""
        return self._result


class ReceiveWork(MpiWork):
    """A posted recv."""

    def __init__(self, engine: Engine, call: Call, array: np.ndarray, peer: int | None, message_tag: int) -> None:
        super().__init__(engine, call, None, self._receive, array)
        self.peer, self.message_tag = peer, message_tag
        self._array = array
        self._source = -1
        self._payload = memoryview(b"")
        self._number = 0
        self._mismatch = ""

    def take(self, source: int, number: int, dtype: int, length: int, payload: memoryview) -> None:
        """Gets the message that this receive was waiting for."""
        own = self.engine.backend.signature(Call(Kind.RECV, 0, "", 1.0), self._array)
        if (own.dtype, own.length) != (dtype, length):
            sent = Signature(Kind.SEND, 0, dtype, length, -1, -1).describe().rpartition(" ")[2]
            sender = self.engine.backend.spec.ranks[source]
            self._mismatch = f"expects {own.describe().rpartition(' ')[2]} but was sent {sent} by rank {sender}"
        self._source, self._number, self._payload = source, number, payload

    def _receive(self, packets: dict[int, memoryview]) -> Iterator[list[Any]]:
        if self._mismatch:
            raise MismatchError(f"rank {self.engine.backend.spec.rank}: {self.call} {self._mismatch}")
        if len(self._payload) == self._array.nbytes:
            self._array.view(np.uint8)[:] = self._payload
        else:
            yield self.engine.transfer.receive(self._array, self._source, self.engine.message_tag(self._number))

    def _start(self) -> bool:
        return self._source >= 0 and super()._start()

    def waits_for(self) -> list[int]:
        """A receive from a given rank waits for that rank."""
        return [self.peer] if self.peer is not None and self._source < 0 else []

    def missing(self) -> list[int]:
        """Returns the ranks from which the message may come."""
        if self._source >= 0:
            return []
        return self.engine.others if self.peer is None else [self.peer]

    def source_rank(self) -> int:
        """Returns the sender's global rank."""
        return self.engine.backend.spec.ranks[self._source] if self._source >= 0 else -1
