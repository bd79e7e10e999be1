"""Work: the handle of an operation in flight, the same for every transport."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ddpflow.errors import ValueRangeError

__all__ = ["COMPLETED", "ChainedWork", "CompletedWork", "Future", "GroupedWork", "OutputWork", "Work", "seconds"]


def seconds(timeout: float | timedelta | None, default: float) -> float:
    """Returns a time-out in seconds, ``default`` for None.

    Raises:
        ValueRangeError: The time-out is not a positive number.
    """
    if timeout is None:
        return default
    value = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueRangeError(f"timeout must be a positive number of seconds or a timedelta, not {timeout!r}")
    return float(value)


class Work(ABC):
    """An operation in flight: its arrays may be used after ``wait()`` has returned.

    All methods may be called from any thread, and again after the end.
    """

    __slots__ = ()

    @abstractmethod
    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Returns True when the result may be used.

        Args:
            timeout: Seconds from now, in place of the operation's own deadline.

        Raises:
            CollectiveTimeout: The deadline passed; the text says who did not arrive. The group is then broken.
            PeerError: Another rank failed or left.
            MismatchError: The ranks called different operations.
        """

    @abstractmethod
    def progress(self) -> bool:
        """Moves this and earlier operations of the group on without blocking; returns whether this one has ended.

        Never raises for a failed operation: that is ``wait``'s and ``exception``'s to tell.
        """

    @abstractmethod
    def exception(self) -> BaseException | None:
        """Returns the error with which the operation ended, or None while it runs or when it has succeeded."""

    def is_completed(self) -> bool:
        """Whether the operation has ended, well or not."""
        return self.progress()

    def is_success(self) -> bool:
        """Whether the operation has ended well."""
        return self.is_completed() and self.exception() is None

    def result(self) -> Any:
        """Returns the output array of an operation that has ended well, or None where it has none."""
        return None

    def source_rank(self) -> int:
        """Returns the global rank that a ``recv`` got its message from, or -1 for other operations."""
        return -1

    def get_future(self) -> "Future":
        """Returns the operation as a `Future`, to which further steps can be added (PyTorch's communication hooks)."""
        return Future(self)


class Future:
    """An operation in flight and steps that follow it; the steps run in the thread that calls ``wait`` or ``value``."""

    __slots__ = ("_before", "_done", "_step", "_value")

    def __init__(self, before: "Work | Future", step: "Callable[[Future], Any] | None" = None) -> None:
        self._before, self._step = before, step
        self._done = False
        self._value: Any = None

    def then(self, step: "Callable[[Future], Any]") -> "Future":
        """Returns the future of ``step(self)``, run once this one is done."""
        return Future(self, step)

    def done(self) -> bool:
        """Whether `wait` would return at once, up to the steps that are still to run."""
        return self._done or (self._before.done() if isinstance(self._before, Future) else self._before.progress())

    def wait(self) -> Any:
        """Waits, runs the steps, and returns the value: of an operation the list of its outputs, of a step its result.

        Raises:
            CommError: As ``Work.wait``.
        """
        if not self._done:
            self._before.wait()
            if self._step is not None:
                self._value = self._step(self._before)  # type: ignore[arg-type]
            else:
                result = self._before.result()  # type: ignore[union-attr]
                self._value = result if isinstance(result, list) else [result]
            self._done = True
        return self._value

    def value(self) -> Any:
        """Returns the value, waiting for it if need be."""
        return self.wait()


class OutputWork(Work):
    """An operation whose ``result()`` is the list of what the caller passed for its outputs, such as tensors."""

    __slots__ = ("_outputs", "_work")

    def __init__(self, work: Work, outputs: list[Any]) -> None:
        self._work, self._outputs = work, outputs

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits for the operation."""
        return self._work.wait(timeout)

    def progress(self) -> bool:
        """Moves the operation on."""
        return self._work.progress()

    def exception(self) -> BaseException | None:
        """Returns the operation's error."""
        return self._work.exception()

    def result(self) -> Any:
        """Returns the outputs."""
        return self._outputs


class CompletedWork(Work):
    """An operation that was over when it was called."""

    __slots__ = ("_result", "_source")

    def __init__(self, result: Any = None, source: int = -1) -> None:
        self._result, self._source = result, source

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Returns True at once."""
        if timeout is not None:
            seconds(timeout, 1.0)
        return True

    def progress(self) -> bool:
        """Returns True."""
        return True

    def exception(self) -> BaseException | None:
        """Returns None."""
        return None

    def result(self) -> Any:
        """Returns the output array."""
        return self._result

    def source_rank(self) -> int:
        """Returns the sender's global rank, or -1."""
        return self._source


COMPLETED = CompletedWork()


class GroupedWork(Work):
    """Several operations as one: over when all are, failed when one is."""

    __slots__ = ("_works",)

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = tuple(works)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits for each operation in turn, each with ``timeout``."""
        for work in self._works:
            work.wait(timeout)
        return True

    def progress(self) -> bool:
        """Moves every operation on."""
        ended = [work.progress() for work in self._works]  # each one, not just up to the first that has not ended
        return all(ended)

    def exception(self) -> BaseException | None:
        """Returns the first error among the operations."""
        return next((e for e in (work.exception() for work in self._works) if e is not None), None)

    def result(self) -> Any:
        """Returns the results in order."""
        return [work.result() for work in self._works]


class ChainedWork(Work):
    """An operation with a last step of our own, such as copying a result into a strided array.

    The step runs once, in the thread that first sees the operation end well.
    """

    __slots__ = ("_error", "_finish", "_lock", "_result", "_work")

    def __init__(self, work: Work, finish: Callable[[], Any]) -> None:
        self._work, self._result = work, None
        self._finish: Callable[[], Any] | None = finish
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def _run_finish(self) -> None:
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                try:
                    self._result = finish()
                except Exception as error:
                    self._error = error

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Waits for the operation and runs the last step."""
        self._work.wait(timeout)
        self._run_finish()
        if self._error is not None:
            raise self._error
        return True

    def progress(self) -> bool:
        """Moves the operation on; runs the last step when it has ended well."""
        if not self._work.progress():
            return False
        if self._work.exception() is None:
            self._run_finish()
        return True

    def exception(self) -> BaseException | None:
        """Returns the error of the operation or of the last step."""
        return self._work.exception() or self._error

    def result(self) -> Any:
        """Returns what the last step returned."""
        return self._result

    def source_rank(self) -> int:
        """Returns the source rank of the operation."""
        return self._work.source_rank()
