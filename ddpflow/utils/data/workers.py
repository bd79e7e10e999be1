"""Worker processes of the DataLoader: they prepare batches ahead of time and hand them over in shared memory.

A batch travels as a small pickled skeleton over a socket, with the descriptor of a memory file that holds its arrays:
the receiver maps it, nothing is copied, and nothing is named in the file system that could be left behind.
"""

import ctypes
import mmap
import multiprocessing
import os
import pickle
import random
import selectors
import signal
import socket
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.errors import WorkerError
from ddpflow.random import manual_seed
from ddpflow.utils.data.worker_info import WorkerInfo, set_worker_info

__all__ = ["Pool"]

_SMALL = 4096  # bytes: smaller arrays travel in the skeleton
_ALIGN = 64
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class _Slot:
    """The place of an array in the memory file of its batch."""

    offset: int
    shape: tuple[int, ...]
    dtype: Any
    tensor: bool


class _Finished:
    """A worker has no more items in this pass."""


@dataclass(frozen=True)
class _Failure:
    """What went wrong in a worker."""

    error: bytes | None
    kind: str
    text: str


# --- both sides: batches over a socket --------------------------------------------------------------------------------


def _send(channel: socket.socket, value: Any) -> None:
    arrays: list[tuple[int, Any]] = []
    size = 0

    def place(item: Any) -> Any:
        nonlocal size
        if isinstance(item, (TensorBase, np.ndarray)):
            array = item.array if isinstance(item, TensorBase) else item
            if array.nbytes < _SMALL or array.dtype.hasobject:
                return item
            slot = _Slot(size, array.shape, array.dtype, isinstance(item, TensorBase))
            arrays.append((size, array))
            size += -(-array.nbytes // _ALIGN) * _ALIGN
            return slot
        return _map(place, item)

    skeleton = place(value)
    body = pickle.dumps(skeleton, protocol=pickle.HIGHEST_PROTOCOL)
    descriptors = []
    if arrays:
        descriptors.append(os.memfd_create("ddpflow-batch", os.MFD_CLOEXEC))
        os.posix_fallocate(descriptors[0], 0, size)
        with mmap.mmap(descriptors[0], size) as memory:
            for offset, array in arrays:
                view = np.ndarray(array.shape, array.dtype, memory, offset)
                view[...] = array
                del view
    try:
        header = len(body).to_bytes(8, "little") + size.to_bytes(8, "little")
        socket.send_fds(channel, [header], descriptors)
        channel.sendall(body)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(channel: socket.socket) -> Any:
    header, descriptors, _, _ = socket.recv_fds(channel, 16, 1)
    while len(header) < 16:
        more = channel.recv(16 - len(header)) if header else b""
        if not more:
            raise EOFError
        header += more
    length, size = int.from_bytes(header[:8], "little"), int.from_bytes(header[8:], "little")
    memory = None
    if descriptors:
        memory = mmap.mmap(descriptors[0], size)
        os.close(descriptors[0])
    body = bytearray(length)
    view, got = memoryview(body), 0
    while got < length:
        n = channel.recv_into(view[got:])
        if not n:
            raise EOFError
        got += n

    def take(item: Any) -> Any:
        if isinstance(item, _Slot):
            array: Any = np.ndarray(item.shape, item.dtype, memory, item.offset)
            return wrap(array) if item.tensor else array
        return _map(take, item)

    return take(pickle.loads(body))


def _map(function: Callable[[Any], Any], item: Any) -> Any:
    """The item with the function applied to what its containers hold; containers of other kinds stay as they are."""
    kind = type(item)
    if kind in (list, tuple):
        return kind(function(v) for v in item)
    if kind is dict:
        return {k: function(v) for k, v in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return kind(*[function(v) for v in item])
    return item


# --- in the worker ----------------------------------------------------------------------------------------------------


def _work(
    channel: socket.socket,
    inherited: list[socket.socket],
    worker: int,
    count: int,
    dataset: Any,
    fetch: Callable[..., Any],
    init: Callable[[int], Any] | None,
) -> None:
    """A worker's life: fetch what is asked for until the channel is closed."""
    for other in inherited:  # the parent's ends, which a fork copied: while one is open, the channel is not closed
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then closes the channel
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    started = False
    iterator: Any = None
    while True:
        try:
            command, argument = _receive(channel)
        except (EOFError, OSError):
            return
        try:
            if command == "pass":
                set_worker_info(WorkerInfo(worker, count, argument, dataset))
                random.seed(argument)
                np.random.seed(argument % 2**32)
                manual_seed(argument)
                if init is not None and not started:
                    init(worker)
                started = True
                iterator = None
                continue
            if iterator is None:
                iterator = fetch(dataset)
            answer = iterator(argument)
        except StopIteration:
            answer = _Finished()
        except Exception as error:
            try:
                pickled = pickle.dumps(error)
            except Exception:
                pickled = None
            answer = _Failure(pickled, type(error).__name__, traceback.format_exc())
        try:
            _send(channel, answer)
        except OSError:
            return


# --- in the parent ----------------------------------------------------------------------------------------------------


class Pool:
    """Some worker processes, each with a channel; answers come back in the order of the requests.

    Args:
        dataset: Every worker gets a copy: by fork, or pickled.
        fetch: ``fetch(dataset)`` gives a function from a request to a batch; runs in the workers.
        count: How many.
        ahead: How many requests each may have waiting.
        init: Called in each worker with its number.
        timeout_s: How long to wait for a batch; 0 for as long as it takes.
        context: A way of multiprocessing to start processes, or its name; None forks on Linux.

    Raises:
        WorkerError: When a worker fails, ends, or is too slow.
    """

    def __init__(
        self,
        dataset: Any,
        fetch: Callable[..., Any],
        count: int,
        ahead: int,
        init: Callable[[int], Any] | None = None,
        timeout_s: float = 0.0,
        context: Any = None,
    ) -> None:
        if context is None:
            context = "fork" if sys.platform == "linux" else "spawn"
        if isinstance(context, str):
            context = multiprocessing.get_context(context)
        self.count = count
        self.ahead = ahead
        self.timeout_s = timeout_s
        self._channels: list[socket.socket] = []
        self._processes: list[Any] = []
        for worker in range(count):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            inherited = [*self._channels, ours] if context.get_start_method() == "fork" else []
            process = context.Process(
                target=_work, args=(theirs, inherited, worker, count, dataset, fetch, init), daemon=True
            )
            with warnings.catch_warnings():
                # Python warns of a fork beside threads. The workers touch nothing that this process's threads hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._channels.append(ours)
            self._processes.append(process)
        self._waiting: list[int] = []  # which worker the next answers come from, in order
        self._close = weakref.finalize(self, _shut_down, self._channels, self._processes)

    def close(self) -> None:
        """End the workers; may be called twice."""
        self._close()

    def run(self, requests: Iterator[Any], seeds: list[int]) -> Iterator[Any]:
        """The batches for some requests, in their order.

        Args:
            requests: What to ask for; taken as far ahead as the workers may work. They may be endless: a worker whose
                dataset has ended is asked no more.
            seeds: For each worker the seed of this pass.
        """
        while self._waiting:  # answers of a pass that was left early
            self._answer(self._waiting.pop(0))
        for worker, seed in enumerate(seeds):
            self._ask(worker, ("pass", seed))
        active = list(range(self.count))
        waiting = self._waiting
        turn = 0
        exhausted = False

        def refill() -> None:
            nonlocal turn, exhausted
            while not exhausted and active and len(waiting) < self.count * self.ahead:
                try:
                    request = next(requests)
                except StopIteration:
                    exhausted = True
                    return
                worker = active[turn % len(active)]
                turn += 1
                self._ask(worker, ("fetch", request))
                waiting.append(worker)

        refill()
        while waiting:
            worker = waiting.pop(0)
            answer = self._answer(worker)
            if isinstance(answer, _Finished) and worker in active:
                active.remove(worker)
            refill()
            if isinstance(answer, _Failure):
                _raise(worker, answer)
            if not isinstance(answer, _Finished):
                yield answer

    def _ask(self, worker: int, message: Any) -> None:
        try:
            _send(self._channels[worker], message)
        except OSError:
            raise self._gone(worker) from None

    def _answer(self, worker: int) -> Any:
        channel, process = self._channels[worker], self._processes[worker]
        deadline = monotonic() + self.timeout_s if self.timeout_s else None
        with selectors.DefaultSelector() as selector:
            selector.register(channel, selectors.EVENT_READ)
            while not selector.select(1.0 if deadline is None else max(0.0, min(1.0, deadline - monotonic()))):
                if not process.is_alive() and not selector.select(0):
                    raise self._gone(worker)
                if deadline is not None and monotonic() > deadline:
                    raise WorkerError(
                        f"DataLoader worker {worker} (pid {process.pid}) gave no batch in {self.timeout_s:g} s"
                    )
        try:
            return _receive(channel)
        except (EOFError, OSError):
            raise self._gone(worker) from None

    def _gone(self, worker: int) -> WorkerError:
        process = self._processes[worker]
        process.join(1.0)
        code = process.exitcode
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"exited with code {code}"
        )
        return WorkerError(f"DataLoader worker {worker} (pid {process.pid}) {how}")


def _raise(worker: int, failure: _Failure) -> None:
    """Raise a worker's exception here, with its traceback as a note."""
    note = f"in DataLoader worker {worker}:\n{failure.text}"
    error: BaseException | None = None
    if failure.error is not None:
        try:
            error = pickle.loads(failure.error)
        except Exception:
            error = None
    if error is None:
        error = WorkerError(f"DataLoader worker {worker} raised {failure.kind}")
    error.add_note(note)
    raise error


def _shut_down(channels: list[socket.socket], processes: list[Any]) -> None:
    for channel in channels:
        channel.close()
    for process in processes:
        process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()
