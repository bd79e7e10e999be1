"""The transport between hosts: MPI through mpi4py, in a world that ``mpiexec`` or ``srun`` has started.

Sums are made here, in rank order, and MPI only moves bytes: so all dtypes work, half types are accumulated in float32,
and the bits are those of the other CPU transports.
"""

import contextlib
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from mpi4py import MPI

from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.backends.mpi_engine import (
    ABORTED,
    COLLECTIVE,
    INLINE_BYTES,
    LEFT,
    MESSAGE,
    Engine,
    MpiWork,
    Phases,
    ReceiveWork,
    free_closed,
)
from ddpflow.comm.backends.mpi_meeting import meet
from ddpflow.comm.env import CommSettings, ProcessContext
from ddpflow.comm.reduce import ReduceOp, reduce_in_rank_order
from ddpflow.comm.signature import Call, Signature, dtype_code
from ddpflow.comm.work import Work
from ddpflow.errors import BackendUnavailable, MismatchError

__all__ = ["MpiBackend"]

_REPORT_S = 1.0  # peers get this long to report the failure themselves before MPI_Abort ends them


class MpiBackend(Backend):
    """Serves a group with a communicator of its own; everything is non-blocking and moved on by ``progress``."""

    name: ClassVar[str] = "mpi"

    def __init__(self, spec: GroupSpec, comm: Any) -> None:
        super().__init__(spec)
        self._engine = Engine(comm, self, CommSettings.from_env().chunk_bytes)
        self._closed = False

    @classmethod
    def bootstrap(cls, context: ProcessContext) -> ProcessContext:
        """Returns the context with an address for the store, which mpiexec does not give; rank 0 opens it."""
        addr, port, fd, token = meet(MPI.COMM_WORLD, context)
        return replace(context, master_addr=addr, master_port=port, store_fd=fd, token=token)

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Makes the group's communicator; all its ranks do so at the same time, on their main thread.

        Raises:
            BackendUnavailable: MPI's world is not this job's: the script was not started by mpiexec.
        """
        world = MPI.COMM_WORLD
        if (world.Get_rank(), world.Get_size()) != (spec.context.rank, spec.context.world_size):
            raise BackendUnavailable(
                f"MPI sees rank {world.Get_rank()} of {world.Get_size()}, the job has rank {spec.context.rank} of "
                f"{spec.context.world_size}; start the script with `mpiexec -n N python script.py`"
            )
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise BackendUnavailable("this MPI was initialised without thread support; do not set mpi4py.rc.threads")
        free_closed()
        members = world.Get_group().Incl(list(spec.ranks))
        comm = world.Create_group(members, zlib.crc32(spec.name.encode()) % 30_000)
        members.Free()
        return cls(spec, comm)

    # Collectives

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Each rank sums its share of the elements for all, in pieces; small arrays come with the packets."""

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            if array.nbytes <= INLINE_BYTES:
                own = array.copy()
                reduce_in_rank_order(self._sources(packets, own), array, op)
                return
            step = max(self._engine.size, self._engine.transfer.chunk_bytes // array.itemsize)
            for start in range(0, array.size, step):
                part = array[start : start + step]
                yield from self._sum_shares(part, op, call)
                yield self._exchange_shares(part, call, self._engine.others, receive=True)

        return self._collective(call, self.signature(call, array, op), phases, array, array)

    def reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """As all_reduce, but the shares go to the root alone."""
        root = call.root

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            is_root = self._engine.rank == root
            work = array if is_root else array.copy()
            if array.nbytes <= INLINE_BYTES:
                if is_root:
                    reduce_in_rank_order(self._sources(packets, array.copy()), array, op)
                return
            step = max(self._engine.size, self._engine.transfer.chunk_bytes // array.itemsize)
            for start in range(0, array.size, step):
                part = work[start : start + step]
                yield from self._sum_shares(part, op, call)
                yield self._exchange_shares(part, call, [root], receive=is_root)

        return self._collective(call, self.signature(call, array, op), phases, array, array)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Every rank sends each other one its part, and sums what it gets."""
        engine, n = self._engine, out.size

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            tag = engine.collective_tag(call)
            step = max(1, engine.transfer.chunk_bytes // (out.itemsize * engine.size))
            for start in range(0, n, step):
                m = min(step, n - start)
                parts = [array[r * n + start : r * n + start + m] for r in range(engine.size)]
                sources = [parts[r] if r == engine.rank else np.empty(m, out.dtype) for r in range(engine.size)]
                requests = []
                for r in engine.others:
                    requests += engine.transfer.receive(sources[r], r, tag)
                for r in engine.others:
                    requests += engine.transfer.send(parts[r], r, tag)
                yield requests
                reduce_in_rank_order(sources, out[start : start + m], op)

        return self._collective(call, self.signature(call, out, op), phases, None, out)

    def broadcast(self, array: np.ndarray, call: Call) -> Work:
        """The root deals shares out, then all ranks exchange them; small arrays come with the root's packet."""
        engine, root = self._engine, call.root

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            tag = engine.collective_tag(call)
            if array.nbytes <= INLINE_BYTES:
                if engine.rank != root:
                    array.view(np.uint8)[:] = packets[root]
                return
            shares = self._shares(array)
            if engine.rank == root:
                sent = []
                for r in engine.others:
                    sent += engine.transfer.send(shares[r], r, tag)
                yield sent
            else:
                yield engine.transfer.receive(shares[engine.rank], root, tag)
            takers = [r for r in engine.others if r != root]
            yield self._exchange_shares(array, call, takers, receive=engine.rank != root)

        inline = array if engine.rank == root else None
        return self._collective(call, self.signature(call, array), phases, inline, array)

    def all_gather(self, out: np.ndarray, array: np.ndarray, call: Call) -> Work:
        """Every rank sends its array to each other one."""
        engine = self._engine

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            yield from self._gather(out, array, packets, call, engine.others)

        return self._collective(call, self.signature(call, array), phases, array, out)

    def gather(self, out: np.ndarray | None, array: np.ndarray, call: Call) -> Work:
        """Every rank sends its array to the root."""

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            yield from self._gather(out, array, packets, call, [call.root])

        return self._collective(call, self.signature(call, array), phases, array, out)

    def scatter(self, out: np.ndarray, array: np.ndarray | None, call: Call) -> Work:
        """The root sends each rank its part."""
        engine, root, n = self._engine, call.root, out.size

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            tag = engine.collective_tag(call)
            if array is None:
                yield engine.transfer.receive(out, root, tag)
                return
            requests = []
            for r in engine.others:
                requests += engine.transfer.send(array[r * n : (r + 1) * n], r, tag)
            out[:] = array[engine.rank * n : (engine.rank + 1) * n]
            yield requests

        return self._collective(call, self.signature(call, out), phases, None, out)

    def all_to_all(
        self, out: np.ndarray, array: np.ndarray, out_counts: Sequence[int], counts: Sequence[int], call: Call
    ) -> Work:
        """Every rank sends each other one its part; the packets say how much, before any data moves."""
        engine = self._engine
        mine = np.array(counts, np.int64)

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            tag = engine.collective_tag(call)
            ranks = self.spec.ranks
            for r, payload in [*packets.items(), (engine.rank, memoryview(mine.tobytes()))]:
                sent = int(np.frombuffer(payload, np.int64)[engine.rank])
                if sent != out_counts[r]:
                    text = f"rank {ranks[r]} sends {sent} elements, but {out_counts[r]} are expected"
                    raise MismatchError(f"rank {self.spec.rank}: {call}: {text}")
            ends, out_ends = np.cumsum(counts), np.cumsum(out_counts)
            requests = []
            for r in engine.others:
                requests += engine.transfer.receive(out[out_ends[r] - out_counts[r] : out_ends[r]], r, tag)
            for r in engine.others:
                requests += engine.transfer.send(array[ends[r] - counts[r] : ends[r]], r, tag)
            own = engine.rank
            out[out_ends[own] - out_counts[own] : out_ends[own]] = array[ends[own] - counts[own] : ends[own]]
            yield requests

        return self._collective(call, self.signature(call, array), phases, mine, out)

    def barrier(self, call: Call) -> Work:
        """The packets are all there is to it."""

        def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
            yield []

        return self._collective(call, self.signature(call), phases, None, None)

    # Messages

    def send(self, array: np.ndarray, peer: int, message_tag: int, call: Call) -> Work:
        """Sends a packet with the message's shape and, where it is small, the message."""
        engine = self._engine
        with engine.lock:
            engine.pump()
            if peer in engine.aborted:
                raise self.peer_error(call, engine.aborted[peer])
            if peer in engine.left:
                raise self.peer_error(call, self.left_text(peer, engine.left[peer], call))
            number = engine.next_number(peer)
            inline = array.tobytes() if array.nbytes <= INLINE_BYTES else b""
            engine.post([peer], MESSAGE, [message_tag, number, dtype_code(array.dtype), array.size], inline)

            def phases(packets: dict[int, memoryview]) -> Iterator[list[Any]]:
                yield [] if inline else engine.transfer.send(array, peer, engine.message_tag(number))

            return engine.launch(MpiWork(engine, call, None, phases, None))

    def recv(self, array: np.ndarray, peer: int | None, message_tag: int, call: Call) -> Work:
        """Waits for a packet with this tag, then for its data."""
        engine = self._engine
        work = ReceiveWork(engine, call, array, peer, message_tag)
        with engine.lock:
            engine.receives.append(work)
            return engine.launch(work)

    # Life cycle

    def progress(self) -> None:
        """Moves all operations on."""
        with self._engine.lock:
            self._engine.progress()

    def abort(self, reason: str) -> None:
        """Sends the reason to all peers."""
        engine = self._engine
        if engine.lock.acquire(timeout=1.0):
            try:
                if not MPI.Is_finalized():
                    engine.post(engine.others, ABORTED, [], reason.encode()[:4000])  # short: it must go out at once
                    engine.pump()
            finally:
                engine.lock.release()

    def crash(self) -> None:
        """Ends the job, as MPI's users expect, once the peers have had the time to say why they fail."""
        deadline = time.monotonic() + _REPORT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(MPI.Exception):
                self.progress()
            time.sleep(0.01)
        MPI.COMM_WORLD.Abort(1)

    def close(self, timeout_s: float) -> None:
        """Says goodbye, and lets messages under way arrive; the communicator goes once all ranks have said goodbye."""
        engine = self._engine
        if self._closed or MPI.Is_finalized():
            return
        self._closed = True
        with engine.lock:
            engine.post(engine.others, LEFT, [engine.last_seq])
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with engine.lock:
                engine.progress()
                if engine.is_idle and (not engine.works or self.failure is not None):
                    break
            time.sleep(0.0005)
        engine.free_when_left()

    # Helpers

    def _collective(
        self, call: Call, signature: Signature, phases: Phases, inline: np.ndarray | None, result: Any
    ) -> Work:
        """Sends this rank's packets, with ``inline`` where it is small, and adds the operation."""
        engine = self._engine
        payload = inline.tobytes() if inline is not None and inline.nbytes <= INLINE_BYTES else b""
        with engine.lock:
            engine.last_seq = call.seq
            engine.post(engine.others, COLLECTIVE, signature, payload)
            return engine.launch(MpiWork(engine, call, signature, phases, result))

    def _sources(self, packets: dict[int, memoryview], own: np.ndarray) -> list[np.ndarray]:
        """Returns the arrays of all ranks that came with the packets, in order."""
        return [
            own if r == self._engine.rank else np.frombuffer(packets[r], own.dtype) for r in range(self._engine.size)
        ]

    def _shares(self, array: np.ndarray) -> list[np.ndarray]:
        """Returns one share of the elements per rank, nearly equal."""
        size = self._engine.size
        edges = [r * array.size // size for r in range(size + 1)]
        return [array[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def _sum_shares(self, array: np.ndarray, op: ReduceOp, call: Call) -> Iterator[list[Any]]:
        """Leaves in this rank's share of ``array`` the reduction of all ranks' shares."""
        engine = self._engine
        tag, shares = engine.collective_tag(call), self._shares(array)
        mine = shares[engine.rank]
        sources = [mine if r == engine.rank else np.empty_like(mine) for r in range(engine.size)]
        requests = []
        for r in engine.others:
            requests += engine.transfer.receive(sources[r], r, tag)
        for r in engine.others:
            requests += engine.transfer.send(shares[r], r, tag)
        yield requests
        reduce_in_rank_order(sources, mine, op)

    def _exchange_shares(self, array: np.ndarray, call: Call, takers: Sequence[int], receive: bool) -> list[Any]:
        """Starts to send this rank's share to ``takers``, and to receive all others' where ``receive`` says so."""
        engine = self._engine
        tag, shares = engine.collective_tag(call), self._shares(array)
        requests = []
        for r in engine.others if receive else ():
            requests += engine.transfer.receive(shares[r], r, tag)
        for r in takers:
            if r != engine.rank:
                requests += engine.transfer.send(shares[engine.rank], r, tag)
        return requests

    def _gather(
        self,
        out: np.ndarray | None,
        array: np.ndarray,
        packets: dict[int, memoryview],
        call: Call,
        receivers: Sequence[int],
    ) -> Iterator[list[Any]]:
        engine, n = self._engine, array.size
        tag = engine.collective_tag(call)
        requests = []
        small = array.nbytes <= INLINE_BYTES
        if out is not None:
            out[engine.rank * n : (engine.rank + 1) * n] = array
            for r in engine.others:
                part = out[r * n : (r + 1) * n]
                if small:
                    part.view(np.uint8)[:] = packets[r]
                else:
                    requests += engine.transfer.receive(part, r, tag)
        if not small:
            for r in receivers:
                if r != engine.rank:
                    requests += engine.transfer.send(array, r, tag)
        yield requests
