"""The transport of CuPy arrays: NCCL through CuPy, on a stream of its own.

Each operation is launched on the group's communication stream, which first waits for an event of the stream that
produced the data. The host goes on; ``Work.wait()`` makes the then current stream wait for the operation's own event.
So communication runs beside whatever the user launches next, and nothing waits that need not.

NumPy arrays go through the GPU: copied there and back, and ``wait()`` then blocks the host. That is for the few bytes
of barriers, object collectives and bookkeeping; gradients on the CPU belong to another transport.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ddpflow.capture import capturing
from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.backends.nccl_communicator import Communicator, load_nccl
from ddpflow.comm.backends.nccl_errors import error_code, error_text
from ddpflow.comm.backends.nccl_types import move_type, reduce_type
from ddpflow.comm.backends.nccl_watchdog import Watchdog
from ddpflow.comm.backends.nccl_work import NcclWork
from ddpflow.comm.env import CommSettings
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Call, Kind, Signature
from ddpflow.comm.work import ChainedWork, Work
from ddpflow.device import current_gpu, required_cupy
from ddpflow.errors import CommError, DeviceError, MismatchError, PeerError

__all__ = ["NcclBackend"]

_UFUNCS = {
    ReduceOp.SUM: "add",
    ReduceOp.AVG: "add",
    ReduceOp.PRODUCT: "multiply",
    ReduceOp.MIN: "minimum",
    ReduceOp.MAX: "maximum",
    ReduceOp.BAND: "bitwise_and",
    ReduceOp.BOR: "bitwise_or",
    ReduceOp.BXOR: "bitwise_xor",
}


class NcclBackend(Backend):
    """Serves groups whose arrays lie on GPUs; see the module's text."""

    name: ClassVar[str] = "nccl"
    devices: ClassVar[tuple[str, ...]] = ("cuda", "cpu")

    @classmethod
    def unavailable_reason(cls) -> str | None:
        """Returns what is missing: CuPy, a GPU, or NCCL."""
        try:
            required_cupy()
        except DeviceError as error:
            return str(error)
        return load_nccl()[1]

    def __init__(self, spec: GroupSpec) -> None:
        super().__init__(spec)
        self._cupy = required_cupy()
        self._nccl = load_nccl()[0]
        self._home = current_gpu()  # other threads may have another current GPU
        self._communicators: dict[int, Communicator] = {}
        self._watchdog = Watchdog(self)
        self._closing = threading.Lock()
        self._closed = False

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Returns the transport; communicators are made by the first operation on each device."""
        return cls(spec)

    # --- reductions ---------------------------------------------------------------------------------------------------

    def all_reduce(self, array: Any, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` by the reduction over all ranks; averages by NCCL's own op."""
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda x: self.all_reduce(x, op, call), [array], array)
        code = reduce_type(array.dtype, op)
        if code is None:
            return self._launch(call, (array,), array, lambda c: self._gather_and_combine(c, array, array, op), op)
        kind, each, how = code
        at = array.data.ptr
        return self._launch(
            call, (array,), array, lambda c: c.nccl.allReduce(at, at, array.size * each, kind, how, c.stream.ptr), op
        )

    def reduce(self, array: Any, op: ReduceOp, call: Call) -> Work:
        """Replaces ``array`` of the root by the reduction."""
        if isinstance(array, np.ndarray):
            out = array if self.spec.group_rank == call.root else None
            return self._through_gpu(lambda x: self.reduce(x, op, call), [array], out)
        code = reduce_type(array.dtype, op)
        own = self.spec.group_rank == call.root
        if code is None:
            target = array if own else None
            return self._launch(call, (array,), target, lambda c: self._gather_and_combine(c, array, target, op), op)
        kind, each, how = code
        at, n = array.data.ptr, array.size * each
        return self._launch(
            call,
            (array,),
            array,
            lambda c: c.nccl.reduce(at, at if own else 0, n, kind, how, call.root, c.stream.ptr),
            op,
        )

    def reduce_scatter(self, out: Any, array: Any, op: ReduceOp, call: Call) -> Work:
        """Puts part r of the reduction into ``out`` of rank r."""
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda o, x: self.reduce_scatter(o, x, op, call), [out, array], out)
        code = reduce_type(array.dtype, op)
        if code is None:
            return self._launch(call, (out, array), out, lambda c: self._exchange_and_combine(c, array, out, op), op)
        kind, each, how = code
        source, target, n = array.data.ptr, out.data.ptr, out.size * each
        return self._launch(
            call, (out, array), out, lambda c: c.nccl.reduceScatter(source, target, n, kind, how, c.stream.ptr), op
        )

    def _gather_and_combine(self, c: Communicator, array: Any, out: Any, op: ReduceOp) -> None:
        """A reduction that NCCL does not have: every rank gets all arrays and combines them in rank order."""
        n = array.size
        parts = self._cupy.empty(n * self.spec.size, array.dtype)
        kind, each = move_type(array.dtype)
        c.nccl.allGather(array.data.ptr, parts.data.ptr, n * each, kind, c.stream.ptr)
        if out is not None:
            self._combine(parts, out, op)

    def _exchange_and_combine(self, c: Communicator, array: Any, out: Any, op: ReduceOp) -> None:
        n, size = out.size, self.spec.size
        parts = self._cupy.empty(n * size, array.dtype)
        self._exchange(c, array, parts, [n] * size, [n] * size)
        self._combine(parts, out, op)

    def _combine(self, parts: Any, out: Any, op: ReduceOp) -> None:
        """Combines equal parts of a flat array on the communication stream."""
        n, size = out.size, self.spec.size
        ufunc = getattr(self._cupy, _UFUNCS[op])
        total = parts[:n]
        for r in range(1, size):
            total = ufunc(total, parts[r * n : (r + 1) * n])
        out[...] = total

    # --- copies -------------------------------------------------------------------------------------------------------

    def broadcast(self, array: Any, call: Call) -> Work:
        """Copies the root's array to the others."""
        if isinstance(array, np.ndarray):
            out = None if self.spec.group_rank == call.root else array
            return self._through_gpu(lambda x: self.broadcast(x, call), [array], out)
        kind, each = move_type(array.dtype)
        at, n = array.data.ptr, array.size * each
        return self._launch(call, (array,), array, lambda c: c.nccl.broadcast(at, at, n, kind, call.root, c.stream.ptr))

    def all_gather(self, out: Any, array: Any, call: Call) -> Work:
        """Puts all arrays into every ``out``."""
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda o, x: self.all_gather(o, x, call), [out, array], out)
        kind, each = move_type(array.dtype)
        source, target, n = array.data.ptr, out.data.ptr, array.size * each
        return self._launch(call, (out, array), out, lambda c: c.nccl.allGather(source, target, n, kind, c.stream.ptr))

    def gather(self, out: Any, array: Any, call: Call) -> Work:
        """Puts all arrays into the root's ``out``."""
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda o, x: self.gather(o, x, call), [out, array], out)
        n, size = array.size, self.spec.size
        root = call.root == self.spec.group_rank
        counts = [n if r == call.root else 0 for r in range(size)]
        return self._launch(
            call, (out, array), out, lambda c: self._exchange(c, array, out, counts, [n if root else 0] * size)
        )

    def scatter(self, out: Any, array: Any, call: Call) -> Work:
        """Puts the parts of the root's array into the ranks' ``out``."""
        if isinstance(out, np.ndarray):
            return self._through_gpu(lambda o, x: self.scatter(o, x, call), [out, array], out)
        n, size = out.size, self.spec.size
        root = call.root == self.spec.group_rank
        out_counts = [n if r == call.root else 0 for r in range(size)]
        return self._launch(
            call, (out, array), out, lambda c: self._exchange(c, array, out, [n if root else 0] * size, out_counts), n=n
        )

    def all_to_all(self, out: Any, array: Any, out_counts: Sequence[int], counts: Sequence[int], call: Call) -> Work:
        """Exchanges parts between all pairs of ranks, as one group of NCCL's messages."""
        own = self.spec.group_rank
        if counts[own] != out_counts[own]:
            raise MismatchError(
                f"rank {self.spec.rank}: {call}: sends {counts[own]} elements to itself but expects {out_counts[own]}"
            )
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda o, x: self.all_to_all(o, x, out_counts, counts, call), [out, array], out)
        return self._launch(call, (out, array), out, lambda c: self._exchange(c, array, out, counts, out_counts), n=-1)

    def _exchange(
        self, c: Communicator, array: Any, out: Any, counts: Sequence[int], out_counts: Sequence[int]
    ) -> None:
        """Sends ``counts[r]`` elements to each rank r and receives ``out_counts[r]``, grouped so that none waits."""
        like = out if array is None else array
        kind, each = move_type(like.dtype)
        step, own = like.dtype.itemsize, self.spec.group_rank
        if counts[own]:
            start, out_start = sum(counts[:own]), sum(out_counts[:own])
            out[out_start : out_start + counts[own]] = array[start : start + counts[own]]
        at, out_at = (0 if a is None else a.data.ptr for a in (array, out))
        self._nccl.groupStart()
        try:
            for r, (n, m) in enumerate(zip(counts, out_counts, strict=True)):
                if n and r != own:
                    c.nccl.send(at, n * each, kind, r, c.stream.ptr)
                if m and r != own:
                    c.nccl.recv(out_at, m * each, kind, r, c.stream.ptr)
                at, out_at = at + n * step, out_at + m * step
        finally:
            self._nccl.groupEnd()

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, array: Any, peer: int, message_tag: int, call: Call) -> Work:
        """Sends ``array``; it may be changed once the Work has ended."""
        self._check_tag(message_tag, call)
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda x: self.send(x, peer, message_tag, call), [array], None)
        kind, each = move_type(array.dtype)
        at, n = array.data.ptr, array.size * each
        return self._launch(call, (array,), None, lambda c: c.nccl.send(at, n, kind, peer, c.stream.ptr))

    def recv(self, array: Any, peer: int | None, message_tag: int, call: Call) -> Work:
        """Receives into ``array`` from one given rank; NCCL does not tell a message of another length."""
        self._check_tag(message_tag, call)
        if peer is None:
            raise CommError(f"rank {self.spec.rank}: {call}: NCCL cannot receive from any rank; name the sender")
        if isinstance(array, np.ndarray):
            return self._through_gpu(lambda x: self.recv(x, peer, message_tag, call), [array], array)
        kind, each = move_type(array.dtype)
        at, n, source = array.data.ptr, array.size * each, self.spec.ranks[peer]
        return self._launch(
            call, (array,), array, lambda c: c.nccl.recv(at, n, kind, peer, c.stream.ptr), source=source
        )

    def _check_tag(self, message_tag: int, call: Call) -> None:
        if message_tag > 0:
            raise CommError(f"rank {self.spec.rank}: {call}: NCCL's messages have no tags; leave the tag out")

    def barrier(self, call: Call) -> Work:
        """Ends once all ranks have called it; the host waits for it."""

        def meet(flag: Any) -> NcclWork:
            at = flag.data.ptr
            return self._launch(call, (flag,), None, lambda c: c.nccl.allReduce(at, at, 1, 7, 0, c.stream.ptr), n=0)

        return self._through_gpu(meet, [np.zeros(1, np.float32)], None)

    # --- launching ----------------------------------------------------------------------------------------------------

    def gpu(self, device: int | None = None) -> Any:
        """A GPU, the group's own when None, as a context: a new one for each use, as threads cannot share CuPy's."""
        return self._cupy.cuda.Device(self._home if device is None else device)

    def current_stream(self) -> Any:
        """The calling thread's current stream."""
        return self._cupy.cuda.get_current_stream()

    def communicators(self) -> list[Any]:
        """NCCL's communicators of this group, for the watchdog."""
        return [c.nccl for c in list(self._communicators.values())]

    def _launch(
        self,
        call: Call,
        arrays: tuple[Any, ...],
        out: Any,
        run: Callable[[Communicator], None],
        op: int = -1,
        *,
        n: int | None = None,
        source: int = -1,
    ) -> NcclWork:
        """Runs ``run`` on the communication stream, after all that the current stream was given so far."""
        used = next(a for a in arrays if a is not None)
        communicator = self._communicator(used.device.id, call)
        if call.seq:
            self._watchdog.note(self._note(call, arrays, n, op))
        event = self._cupy.cuda.Event
        with self.gpu(communicator.device):
            before = event(disable_timing=True)
            before.record(self.current_stream())
            communicator.stream.wait_event(before)
            with self._explained(call), communicator.stream:
                run(communicator)
            done = event(disable_timing=True)
            done.record(communicator.stream)
        return self._watched(NcclWork(self, call, communicator.device, done, arrays, out, source))

    def _watched(self, work: NcclWork) -> NcclWork:
        """Has the watchdog look after an operation; of captured ones, after each replay."""
        capture = capturing()
        if capture is None:
            self._watchdog.add(work)
        else:
            work.captured = True
            capture.keep(work, self)
        return work

    def before_replay(self) -> None:
        """Has a CUDA graph with collectives of this group run after those that were launched before."""
        if self.failure is not None:
            raise self.failure
        for communicator in self._communicators.values():
            if communicator.device == current_gpu():
                last = self._cupy.cuda.Event(disable_timing=True)
                last.record(communicator.stream)
                self.current_stream().wait_event(last)

    def after_replay(self) -> None:
        """Has the watchdog look after a replay, under a deadline as any collective."""
        done = self._cupy.cuda.Event(disable_timing=True)
        done.record(self.current_stream())
        call = Call(Kind.ALL_REDUCE, 0, "replay of a CUDA graph", self.spec.timeout_s)
        self._watchdog.add(NcclWork(self, call, current_gpu(), done, ()))

    def beside(self, array: Any, launch: Callable[[], Work], call: Call) -> Work:
        """Runs ``launch``, and what its Work does when waited for, on the communication stream of a GPU array."""
        if isinstance(array, np.ndarray):
            return launch()
        communicator = self._communicator(array.device.id, call)
        event = self._cupy.cuda.Event
        with self.gpu(communicator.device):
            before = event(disable_timing=True)
            before.record(self.current_stream())
            communicator.stream.wait_event(before)
            with communicator.stream:
                launch().wait()
            done = event(disable_timing=True)
            done.record(communicator.stream)
        return self._watched(NcclWork(self, call, communicator.device, done, (array,), array))

    def _note(self, call: Call, arrays: tuple[Any, ...], n: int | None, op: int) -> Signature:
        """What must be equal on all ranks; compared only once there is trouble: it would cost more than NCCL itself."""
        if n == 0:
            return self.signature(call)
        found = self.signature(call, arrays[-1] if arrays[-1] is not None else arrays[0], op)
        return found if n is None else found._replace(length=n)

    def _communicator(self, device: int, call: Call) -> Communicator:
        found = self._communicators.get(device)
        if found is None:
            if capturing() is not None:
                raise CommError(
                    f"rank {self.spec.rank}: {call} is the group's first on this GPU, where ranks meet, and cannot be "
                    "captured; run the step once before the capture"
                )
            shared_ok = CommSettings.from_env().shared_gpus
            number = len(self._communicators)
            with self._explained(call):
                found = Communicator.meet(self.spec, call, self._cupy, self._nccl, device, number, shared_ok)
            self._communicators[device] = found
            self._watchdog.start()
        return found

    @contextlib.contextmanager
    def _explained(self, call: Call) -> Iterator[None]:
        """Turns what CuPy raises for NCCL into an error with our own text, and breaks the group."""
        try:
            yield
        except CommError as error:
            raise self.fail(error) from None
        except Exception as error:
            code = error_code(error)
            if code is None:
                raise
            kind = PeerError if code == 6 else CommError
            raise self.fail(kind(f"rank {self.spec.rank}: {call}: NCCL says {error_text(error)}")) from error

    def _through_gpu(self, run: Callable[..., Work], arrays: list[Any], out: Any) -> Work:
        """Runs an operation of NumPy arrays on copies in GPU memory; ``out`` is the one to copy back."""
        if capturing() is not None:
            raise CommError(f"rank {self.spec.rank}: collectives of NumPy arrays make the host wait; capture none")
        with self.gpu():
            copies = [None if a is None else self._cupy.asarray(a) for a in arrays]
            work = run(*copies)
        if isinstance(work, NcclWork):
            work.blocking = True
        if out is None:
            return work
        place = next(i for i, a in enumerate(arrays) if a is out)

        def copy_back() -> Any:
            with self.gpu():
                out[...] = self._cupy.asnumpy(copies[place])
            return out

        return ChainedWork(work, copy_back)

    # --- the end ------------------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> None:
        """Tells the peers, and ends what is in flight here."""
        self._watchdog.announce(reason)
        self._watchdog.stop(left=False)
        self.abort_communicators()

    def abort_communicators(self) -> None:
        """Lets the streams go on without NCCL; may be called from any thread, again."""
        with self._closing:
            closed, self._closed = self._closed, True
            for communicator in () if closed else list(self._communicators.values()):
                with contextlib.suppress(Exception):
                    communicator.nccl.abort()

    def close(self, timeout_s: float) -> None:
        """Waits for what is in flight, then frees the communicators; aborts them where that takes too long."""
        drained = not self._closed and self.failure is None and self._watchdog.drain(timeout_s)
        self._watchdog.stop(left=True)
        if not drained:
            self.abort_communicators()
            return
        with self._closing:
            closed, self._closed = self._closed, True
            for communicator in () if closed else list(self._communicators.values()):
                with contextlib.suppress(Exception):
                    communicator.nccl.destroy()
