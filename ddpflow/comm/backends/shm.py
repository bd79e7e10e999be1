"""The transport for ranks of one host: shared memory, and the default for CPU arrays.

- shm_segment.py: nameless shared files
- shm_handshake.py: who gets their descriptor
- shm_control.py: what lies where, flags, memory order
- shm_arena.py: registered memory
- shm_moves.py: the copies and sums of each collective
- shm_operation.py: a collective in flight; shm_small.py: the short way of small all-reduces
- shm_mail.py: send and receive
- shm_engine.py: progress, waiting, failure
- shm_wait.py: back-off, and who is still alive
"""

import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ddpflow.comm.backend import Backend, GroupSpec, rank_list
from ddpflow.comm.backends.shm_control import ALIVE, Control, ControlLayout, Failure
from ddpflow.comm.backends.shm_engine import Engine
from ddpflow.comm.backends.shm_handshake import Hub, PeerHandle, host_identity, join
from ddpflow.comm.backends.shm_mail import Mail, Receive, Send
from ddpflow.comm.backends.shm_moves import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Gather,
    Move,
    Reduce,
    ReduceScatter,
    Scatter,
)
from ddpflow.comm.backends.shm_operation import Operation, Vacancy, pack_signature
from ddpflow.comm.backends.shm_segment import SharedFile, create_file
from ddpflow.comm.backends.shm_small import SmallReducer
from ddpflow.comm.backends.shm_wait import Peers
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Call, dtype_code
from ddpflow.comm.work import Work
from ddpflow.errors import BackendUnavailable, CollectiveTimeout, CommError

__all__ = ["ShmBackend"]


class ShmBackend(Backend):
    """Serves a group whose ranks are processes of one host.

    An all-reduce of registered memory (``empty``) copies nothing: each rank reduces its shard where the peers' arrays
    lie and writes the result to where they are used. Other arrays pass through fixed chunks. Elements are combined in
    rank order on whichever way, so all ranks get the same bits, from run to run and whatever the size of the array.
    """

    name: ClassVar[str] = "shm"
    layout_options: ClassVar[dict[str, int]] = {}  # for tests: smaller chunks, rings and arenas

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Says that this is for Linux only."""
        return None if sys.platform == "linux" else "it needs Linux; use backend 'mpi', or 'thread' for tests"

    def __init__(self, spec: GroupSpec, control: Control, handles: dict[int, PeerHandle]) -> None:
        super().__init__(spec)
        ranks_here = max(spec.size, spec.context.local_world_size)
        self._engine = Engine(self, control, Peers(handles), ranks_here)
        self._small = SmallReducer(self._engine)
        self._mail: Mail | None = None
        self._closed = False

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Meets the other ranks, and maps the group's shared file.

        Raises:
            BackendUnavailable: The ranks are on several hosts.
            CollectiveTimeout: Ranks did not arrive in time; they are named.
            PeerError: A rank failed meanwhile.
        """
        deadline = time.monotonic() + spec.timeout_s
        # Few ranks keep their pieces in the cache: two chunks would do so best, but next to other programs the ranks
        # then change hands twice as often. Many, that may share cores, change hands less often. Reading all of what
        # each rank has is cheaper than dividing the work as long as neither is much.
        few = {"inline_bytes": 64 << 10} if spec.size < 4 else {"n_chunks": 16}
        sizes = {**few, **cls.layout_options}
        layout = ControlLayout(spec.size, **sizes)
        check = _Check(spec, deadline)
        hub: Hub | None = None
        try:
            if spec.group_rank == 0:
                hub = Hub(spec.context.token, spec.name, spec.size)
                spec.store.set("shm/hub", hub.address)
            _refuse_several_hosts(spec, deadline)
            if hub is not None:
                file = _make_file(spec, layout)
                handles = hub.serve(file.fileno(), check)
            else:
                address = spec.store.get("shm/hub", max(0.001, deadline - time.monotonic())).decode()
                fd, handles = join(address, spec.context.token, spec.name, spec.group_rank, spec.size, check)
                file = SharedFile(fd)
                if file.size != layout.total_bytes:
                    raise CommError(
                        f"rank {spec.rank}: the ranks of group {spec.name} have different versions of ddpflow"
                    )
        finally:
            if hub is not None:
                hub.close()
        try:
            control = Control(file, layout, spec.group_rank)
        except OSError as error:
            raise CommError(f"rank {spec.rank}: no shared memory for group {spec.name}: {error}") from error
        control.set_state(ALIVE)
        return cls(spec, control, handles)

    # Collectives

    def _launch(self, call: Call, move: Move | None, dtype: int, count: int, op: int) -> Work:
        engine = self._engine
        work = Operation(engine, call, move, pack_signature(call, dtype, op), count)
        while not engine.slot_is_free():
            self._wait_for_slot(call)
        with engine.lock:
            work.launch()
            engine.advance()
        return work

    def _wait_for_slot(self, call: Call) -> None:
        """Waits until all ranks are done with the collective that used the slot before."""
        vacancy = Vacancy(self._engine, call)
        with self._engine.lock:
            self._engine.messages.append(vacancy)
        vacancy.wait()

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` by the reduction over all ranks."""
        work = self._small.all_reduce(array, op, call)
        if work is not None:
            return work
        spec = self.spec
        move = AllReduce(array, op, spec.size, spec.group_rank)
        return self._launch(call, move, dtype_code(array.dtype), array.size, op)

    def reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` of the root by the reduction."""
        move = Reduce(array, op, call.root, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(array.dtype), array.size, op)

    def broadcast(self, array: np.ndarray, call: Call) -> Work:
        """Copies the root's array to the others."""
        move = Broadcast(array, call.root, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(array.dtype), array.size, -1)

    def all_gather(self, out: np.ndarray, array: np.ndarray, call: Call) -> Work:
        """Puts all arrays into every ``out``."""
        move = AllGather(array, out, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(array.dtype), array.size, -1)

    def gather(self, out: np.ndarray | None, array: np.ndarray, call: Call) -> Work:
        """Puts all arrays into the root's ``out``."""
        move = Gather(array, out, call.root, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(array.dtype), array.size, -1)

    def scatter(self, out: np.ndarray, array: np.ndarray | None, call: Call) -> Work:
        """Puts the parts of the root's array into the ranks' ``out``."""
        move = Scatter(out if array is None else array, out, call.root, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(out.dtype), out.size, -1)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Puts part r of the reduction into ``out`` of rank r."""
        move = ReduceScatter(array, out, op, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(out.dtype), out.size, op)

    def all_to_all(
        self, out: np.ndarray, array: np.ndarray, out_counts: Sequence[int], counts: Sequence[int], call: Call
    ) -> Work:
        """Exchanges parts between all pairs of ranks."""
        move = AllToAll(array, out, counts, out_counts, self.spec.size, self.spec.group_rank)
        return self._launch(call, move, dtype_code(array.dtype), -1, -1)

    def barrier(self, call: Call) -> Work:
        """Ends once all ranks have called it."""
        return self._launch(call, None, 0, 0, -1)

    # Messages

    def send(self, array: np.ndarray, peer: int, message_tag: int, call: Call) -> Work:
        """Copies the message into the ring to the receiver, at once as far as there is room."""
        with self._engine.lock:
            return self._start(Send(self._post_office(), call, array, peer, message_tag))

    def recv(self, array: np.ndarray, peer: int | None, message_tag: int, call: Call) -> Work:
        """Takes the first message that fits, now or when it comes."""
        with self._engine.lock:
            return self._start(Receive(self._post_office(), call, array, peer, message_tag))

    def _start(self, work: Send | Receive) -> Work:
        self._engine.messages.append(work)
        self._engine.advance()
        return work

    def _post_office(self) -> Mail:
        if self._mail is None:
            self._mail = Mail(self._engine)
        return self._mail

    # Memory and life cycle

    def empty(self, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns memory in this rank's part of the shared file."""
        with self._engine.lock:
            return self._engine.arena.empty(n, dtype)

    def progress(self) -> None:
        """Moves operations in flight on."""
        self._engine.poll()

    def abort(self, reason: str) -> None:
        """Publishes ``reason``; every wait of the peers ends with it."""
        engine = self._engine
        own = self.failure or self.fail(CommError(f"rank {self.spec.rank}: the group was given up: {reason}"))
        engine.fail(own, Failure("exception", reason, (self.spec.rank,)))

    def close(self, timeout_s: float) -> None:
        """Finishes what is in flight as far as the peers are there, within the time, and leaves."""
        if self._closed:
            return
        self._closed = True
        engine, deadline = self._engine, time.monotonic() + timeout_s
        while self.failure is None and time.monotonic() < deadline:
            engine.poll()
            if not engine.flight and not engine.messages and (self._mail is None or self._mail.is_delivered()):
                break
            time.sleep(0.001)
        engine.leave()


def _make_file(spec: GroupSpec, layout: ControlLayout) -> SharedFile:
    try:
        return SharedFile(create_file(layout.total_bytes))
    except OSError as error:  # a limit on the size of files, for instance; the file is large but sparse
        raise CommError(f"rank {spec.rank}: cannot make the shared file of group {spec.name}: {error}") from error


class _Check:
    """Called while ranks join: raises when one has failed or the deadline has passed, warns once about a long wait."""

    def __init__(self, spec: GroupSpec, deadline: float) -> None:
        self._spec, self._deadline = spec, deadline
        self._warn_at = time.monotonic() + spec.stall_warning_s

    def __call__(self, missing: list[int]) -> None:
        spec, now = self._spec, time.monotonic()
        spec.watch.check()
        who = rank_list(spec.ranks[r] for r in missing)
        if now >= self._deadline:
            raise CollectiveTimeout(f"rank {spec.rank}: {who} did not join group {spec.name} in {spec.timeout_s:g} s")
        if now >= self._warn_at:
            self._warn_at = float("inf")
            sys.stderr.write(f"ddpflow: rank {spec.rank}: waits for {who} to join group {spec.name}\n")
            sys.stderr.flush()


def _refuse_several_hosts(spec: GroupSpec, deadline: float) -> None:
    """Compares all ranks' hosts through the store."""
    spec.store.set(f"shm/host/{spec.group_rank}", host_identity())
    hosts: dict[str, list[int]] = {}
    for index, rank in enumerate(spec.ranks):
        key = f"shm/host/{index}"
        try:
            host = spec.store.get(key, max(0.001, deadline - time.monotonic())).decode()
        except CollectiveTimeout:
            absent = [r for i, r in enumerate(spec.ranks) if spec.store.try_get(f"shm/host/{i}") is None]
            raise CollectiveTimeout(
                f"rank {spec.rank}: {rank_list(absent)} did not join group {spec.name} in {spec.timeout_s:g} s"
            ) from None
        hosts.setdefault(host, []).append(rank)
    if len(hosts) > 1:
        where = "; ".join(f"{rank_list(ranks)} on one" for ranks in hosts.values())
        raise BackendUnavailable(
            f"backend 'shm' needs all ranks of a group on one host and in one network namespace, but {where}: "
            "use backend 'mpi' between hosts"
        )
