"""An NCCL operation in flight: an event on the communication stream, and what must stay alive until it is reached."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ddpflow.comm.signature import Call
from ddpflow.comm.work import Work, seconds
from ddpflow.errors import CommError

if TYPE_CHECKING:
    from ddpflow.comm.backends.nccl import NcclBackend

__all__ = ["NcclWork"]

_SPINS = 100
_LONGEST_NAP_S = 0.001


class NcclWork(Work):
    """An operation whose end is an event.

    ``wait()`` makes the current stream wait for it: the host goes on at once, and what it launches next finds the
    result. Once ``blocking`` is set, the host waits too: for operations whose end the host must know.

    Args:
        backend: The transport.
        call: What was called.
        device: Number of the GPU.
        done: The event.
        arrays: What the operation uses; kept until it has ended, or memory could be handed out again too early.
        result: The output array, or None.
        source: Global rank of the sender of a message.
    """

    __slots__ = (
        "__weakref__", "_arrays", "_backend", "_device", "_ended", "_result", "_source", "blocking", "call",
        "captured", "deadline", "done", "error", "launched", "limit_s",
    )  # fmt: skip

    def __init__(
        self,
        backend: "NcclBackend",
        call: Call,
        device: int,
        done: Any,
        arrays: tuple[Any, ...],
        result: Any = None,
        source: int = -1,
    ) -> None:
        self._backend, self.call, self._device, self.done, self._arrays = backend, call, device, done, arrays
        self._result, self._source, self.blocking = result, source, False
        self.launched = time.monotonic()
        self.limit_s = call.timeout_s
        self.deadline = self.launched + self.limit_s
        self.error: CommError | None = None
        self._ended = False
        self.captured = False  # then the event belongs to a CUDA graph and must not be asked

    def finished(self) -> bool:
        """Whether the GPU has come to the event; asked by the watchdog and by whoever waits."""
        if not self._ended and not self.captured:
            with self._backend.gpu(self._device):  # asked from another GPU, CUDA would make a context there
                if self.done.done:
                    self._ended = True
                    self._arrays = ()
        return self._ended

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Makes the current stream wait; the deadline counts from the launch, or from now if one is given."""
        if timeout is not None:
            self.limit_s = seconds(timeout, 1.0)
            self.deadline = time.monotonic() + self.limit_s
        if self.error is None:
            with self._backend.gpu(self._device):
                self._backend.current_stream().wait_event(self.done)
            if self.blocking:
                self._wait_on_host()
        if self.error is not None:
            raise self.error
        return True

    def _wait_on_host(self) -> None:
        spins, nap = 0, 1e-5
        while self.error is None and not self.finished():
            spins += 1
            if spins > _SPINS:
                time.sleep(nap)
                nap = min(nap * 2, _LONGEST_NAP_S)

    def progress(self) -> bool:
        """Returns whether it has ended; the GPU needs no help."""
        return self.error is not None or self.finished()

    def exception(self) -> BaseException | None:
        """Returns the error with which it ended."""
        return self.error

    def result(self) -> Any:
        """Returns the output array."""
        return self._result

    def source_rank(self) -> int:
        """Returns the sender's global rank."""
        return self._source
