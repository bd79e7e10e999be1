"""Backend: what a transport must fill in, and the error texts that all transports share."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ddpflow.comm.env import ProcessContext
from ddpflow.comm.failure import FailureWatch
from ddpflow.comm.progress import Progress
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Call, Kind, Signature, dtype_code, mismatch_text
from ddpflow.comm.store import Store
from ddpflow.comm.work import ChainedWork, GroupedWork, Work
from ddpflow.errors import CollectiveTimeout, CommError, MismatchError, PeerError

__all__ = ["Backend", "GroupSpec", "rank_list"]


def rank_list(ranks: Iterable[int]) -> str:
    """Returns "rank 1" or "ranks 1, 3"."""
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) != 1 else ''} {', '.join(map(str, numbers))}"


@dataclass(frozen=True)
class GroupSpec:
    """Everything a transport needs to know of the group it serves.

    Attributes:
        name: Name of the group, equal on all its ranks and different from every other group of the job.
        ranks: Global ranks of the members, sorted.
        group_rank: Own index in ``ranks``.
        store: Store that only this group's members use, for the rendezvous.
        context: This process's place in the job.
        watch: Raises PeerError from ``check()`` when another rank has published a failure.
        timeout_s: Deadline for creating the transport, and of calls that set none.
        stall_warning_s: A wait this long prints one warning.
        progress: Where this rank tells ``ddprun --status`` what it is doing.
    """

    name: str
    ranks: tuple[int, ...]
    group_rank: int
    store: Store
    context: ProcessContext
    watch: FailureWatch
    timeout_s: float
    stall_warning_s: float
    progress: Progress = field(default_factory=lambda: Progress(None, 0))

    @property
    def rank(self) -> int:
        """Own global rank."""
        return self.ranks[self.group_rank]

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)


class Backend(ABC):
    """A transport: moves contiguous arrays between the ranks of one group, and has no opinions.

    **What the group guarantees.** Arrays are flat (1-d), C-contiguous, aligned, writable where written to, of a dtype
    that ``signature.is_supported``, possibly empty, and do not overlap each other; ``op`` is defined for the dtype. All
    ranks count collectives alike (``call.seq``, from 1). The launching methods are called by one thread at a time, in
    order; the methods of the returned Work from any thread. Roots and peers are *group* ranks (indices in
    ``spec.ranks``). No launching method is called after ``failure`` was set or after ``abort`` or ``close``.

    **What a transport guarantees.**

    - Launching methods do not block for ever: they start the operation, or carry it out, within the call's deadline. A
      Work launched later never overtakes an earlier one of the same group, and ``progress()`` of one moves on all
      earlier ones.
    - Inputs may be changed once the Work has ended, not before; outputs are valid then. ``all_reduce`` works in place.
    - CPU transports combine elements in rank order with ``reduce.reduce_in_rank_order``, so all ranks get equal bits.
    - Where the transport can compare ``Signature`` of the ranks (shared memory, threads) it does, on every collective,
      and raises MismatchError on all ranks. ``count`` is: all_reduce, broadcast, reduce, all_gather and gather:
      elements of the own input; reduce_scatter and scatter: elements of the own output; all_to_all: -1; barrier: 0
      (with dtype code 0).
    - **Deadline**: ``Work.wait()`` raises CollectiveTimeout (``timeout_error``) when ``call.timeout_s`` seconds, or
      those given to ``wait``, have passed, naming the ranks that have not arrived.
    - **Liveness**: every wait calls ``self.spec.watch.check()`` at least every 50 ms (it throttles itself) and looks
      after its peers by its own means; a peer that is gone, has called ``abort`` or has left the group by ``close``
      ends the wait with ``peer_error`` within a second.
    - A wait that takes ``spec.stall_warning_s`` prints one line through ``warn_stall``.
    - **Failures stay**: the first error goes through ``fail``, which sets ``failure``. Later Works end with that error,
      and the group refuses further calls by itself.

    All errors name global ranks.
    """

    name: ClassVar[str] = ""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    ranks_are_threads: ClassVar[bool] = False  # then each thread of the process has a world of its own

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Returns why this machine or installation cannot use the transport, and the remedy; None where it can."""
        return None

    @classmethod
    def bootstrap(cls, context: ProcessContext) -> ProcessContext:
        """Returns the context with an address for the store, for launchers that give none; all ranks call it.

        Transports that cannot find one by their own means leave the context as it is.
        """
        return context

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.failure: CommError | None = None
        self.stalled = False

    @classmethod
    @abstractmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Joins the other ranks of the group through ``spec.store`` and returns the ready transport.

        Every rank calls it at the same time, on its main thread where the transport needs that.

        Raises:
            BackendUnavailable: This transport cannot serve this group (ranks on several hosts, missing package); says
                the remedy.
            CollectiveTimeout: Ranks did not arrive within ``spec.timeout_s``; they are named.
            PeerError: A rank failed meanwhile.
        """

    @abstractmethod
    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` by the reduction over all ranks; the fast path of the library."""

    @abstractmethod
    def broadcast(self, array: np.ndarray, call: Call) -> Work:
        """Copies ``array`` of rank ``call.root`` into ``array`` of the others."""

    @abstractmethod
    def all_gather(self, out: np.ndarray, array: np.ndarray, call: Call) -> Work:
        """Puts ``array`` (n elements) of rank r at ``out[r * n : (r + 1) * n]``; ``out`` has size * n elements."""

    @abstractmethod
    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Puts the reduction of ``array[own * n : (own + 1) * n]`` into ``out`` (n elements)."""

    @abstractmethod
    def send(self, array: np.ndarray, peer: int, message_tag: int, call: Call) -> Work:
        """Sends ``array``; messages of one sender to one receiver with the same ``message_tag`` arrive in order.

        Negative tags are the library's own.
        """

    @abstractmethod
    def recv(self, array: np.ndarray, peer: int | None, message_tag: int, call: Call) -> Work:
        """Receives into ``array`` from group rank ``peer``, or from whichever sends first for None.

        A message of another length or dtype is a MismatchError on the receiver. ``source_rank()`` of the Work is
        global.
        """

    @abstractmethod
    def barrier(self, call: Call) -> Work:
        """Ends once all ranks have called it."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Tells the peers that this rank gives the group up, and why; never waits, may be called anywhere, again."""

    @abstractmethod
    def close(self, timeout_s: float) -> None:
        """Leaves in good order: lets sent messages arrive for up to ``timeout_s``, posts "left after #n", frees memory.

        Never raises for what its peers do; may be called twice, and after ``abort``.
        """

    def crash(self) -> None:
        """Ends the whole job, for runtimes that want it so (``MPI_Abort``); called after a failure was reported."""
        return

    def progress(self) -> None:
        """Moves operations in flight on without blocking; transports that the kernel or a device moves need nothing."""
        return

    def empty(self, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns ``n`` elements of memory that this transport communicates without a copy; its content is undefined.

        Not a collective: ranks may call it at different times, and it is freed with the last array that uses it.
        """
        return np.empty(n, dtype)

    def beside(self, array: Any, launch: Callable[[], Work], call: Call) -> Work:
        """Returns ``launch()``, run where collectives of the array run if that is beside the computation: on a stream.

        There the Work is waited for at once, by the stream, so that steps after the collective run beside it too.
        """
        return launch()

    def reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` of rank ``call.root`` by the reduction; the others' arrays stay as they are."""
        if self.spec.group_rank == call.root:
            return self.all_reduce(array, op, call)
        return self.all_reduce(array.copy(), op, call)

    def gather(self, out: np.ndarray | None, array: np.ndarray, call: Call) -> Work:
        """Puts the arrays of all ranks, in order, into ``out`` of rank ``call.root``; ``out`` is None elsewhere."""
        if out is None:
            out = np.empty(array.size * self.spec.size, array.dtype)
        return self.all_gather(out, array, call)

    def scatter(self, out: np.ndarray, array: np.ndarray | None, call: Call) -> Work:
        """Puts part r of ``array`` of rank ``call.root`` into ``out`` of rank r; ``array`` is None elsewhere."""
        n = out.size
        whole = np.empty(n * self.spec.size, out.dtype) if array is None else array.copy()
        start = self.spec.group_rank * n
        return ChainedWork(self.broadcast(whole, call), lambda: np.copyto(out, whole[start : start + n]))

    def all_to_all(
        self, out: np.ndarray, array: np.ndarray, out_counts: Sequence[int], counts: Sequence[int], call: Call
    ) -> Work:
        """Sends ``counts[r]`` elements of ``array`` to each rank r and receives ``out_counts[r]`` from it."""
        own, works, start, out_start = self.spec.group_rank, [], 0, 0
        message_tag = -1 - call.seq
        parts = []
        for peer, (n, m) in enumerate(zip(counts, out_counts, strict=True)):
            parts.append((peer, array[start : start + n], out[out_start : out_start + m]))
            start, out_start = start + n, out_start + m
        if counts[own] != out_counts[own]:
            raise MismatchError(
                f"rank {self.spec.rank}: {call}: sends {counts[own]} elements to itself but expects {out_counts[own]}"
            )
        for peer, _, target in parts:
            if peer != own:
                works.append(self.recv(target, peer, message_tag, call))
        for peer, source, target in parts:
            if peer == own:
                target[:] = source
            else:
                works.append(self.send(source, peer, message_tag, call))
        return GroupedWork(works)

    # Shared by all transports: signatures and error texts.

    def signature(self, call: Call, array: np.ndarray | None = None, op: int = -1) -> Signature:
        """Returns what must be equal on all ranks; ``array`` is the one whose length counts, None for barrier."""
        if array is None:
            return Signature(call.kind, call.seq, 0, 0, -1, -1)
        count = -1 if call.kind is Kind.ALL_TO_ALL else array.size
        return Signature(call.kind, call.seq, dtype_code(array.dtype), count, op, call.root)

    def fail(self, error: CommError) -> CommError:
        """Records the first error of the group and returns the error to raise."""
        if self.failure is None:
            self.failure = error
        return error

    def mismatch_error(self, call: Call, own: Signature, other_group_rank: int, other: Signature) -> CommError:
        """Returns the recorded MismatchError that shows both calls."""
        text = mismatch_text(self.spec.rank, own, self.spec.ranks[other_group_rank], other)
        return self.fail(MismatchError(f"rank {self.spec.rank}: {self._where(call)}: {text}"))

    def timeout_error(
        self, call: Call, timeout_s: float, missing: Collection[int], gave_up: Collection[int] = ()
    ) -> CommError:
        """Returns the recorded CollectiveTimeout; ``missing`` and ``gave_up`` (arrived, timed out) are group ranks."""
        ranks = self.spec.ranks
        text = (
            f"got no answer from {rank_list(ranks[r] for r in missing)}" if missing else "was not finished by its peers"
        )
        arrived = [ranks[r] for r in range(len(ranks)) if r not in missing and r != self.spec.group_rank]
        text += f" in {timeout_s:g} s"
        if arrived and missing:
            text += f"; {rank_list(arrived)} had arrived"
        if gave_up:
            text += f"; {rank_list(ranks[r] for r in gave_up)} arrived, then gave up"
        return self.fail(CollectiveTimeout(f"rank {self.spec.rank}: {self._where(call)} {text}"))

    def peer_error(self, call: Call | None, reason: str) -> CommError:
        """Returns the recorded PeerError; ``reason`` says which rank and why ("rank 1 raised ValueError: ...")."""
        return self.fail(PeerError(f"rank {self.spec.rank}: {self._where(call)} cannot finish: {reason}"))

    def left_text(self, group_rank: int, last_seq: int, call: Call | None) -> str:
        """Returns the reason for ``peer_error`` when a peer has closed the group in good order."""
        own = f" while rank {self.spec.rank} is at #{call.seq}" if call is not None and call.seq else ""
        return (
            f"rank {self.spec.ranks[group_rank]} has finished: it left the group after collective #{last_seq}{own}. "
            "If the ranks have different numbers of batches, train inside `with ddp.join():`"
        )

    def warn_stall(self, call: Call, waited_s: float, missing: Collection[int]) -> None:
        """Prints one line to stderr about a long wait, and shows it in ``ddprun --status`` until ``resume``."""
        who = rank_list(self.spec.ranks[r] for r in missing) if missing else "its peers"
        self.stalled = True
        self.spec.progress.waiting(f"{self._where(call)}, not yet joined by {who}", waited_s)
        line = f"ddpflow: rank {self.spec.rank}: {self._where(call)} has waited {waited_s:.0f} s for {who}\n"
        sys.stderr.write(line)
        sys.stderr.flush()

    def resume(self) -> None:
        """Takes back what ``warn_stall`` shows."""
        self.stalled = False
        self.spec.progress.resumed()

    def _where(self, call: Call | None) -> str:
        where = "communication" if call is None else str(call)
        return where if self.spec.name == "world" else f"{where} in group {self.spec.name}"
