"""What is done with a full bucket: functions ``(state, bucket) -> result``, as in PyTorch.

``state`` is what was registered with the hook; for those here it is the process group. The result is a Work, a Future
whose value is the new gradient (or a list with it), or the new gradient itself. What a hook leaves is used as it is:
the division by the number of ranks is the hook's own.
"""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import COMPLETED, Future, Work
from ddpflow.errors import DtypeError

__all__ = [
    "allreduce_hook",
    "as_work",
    "noop_hook",
    "sum_hook",
]


def allreduce_hook(state: Any, bucket: Any) -> Work:
    """The mean over the group: the default."""
    work: Work = state.all_reduce(bucket.flat, ReduceOp.AVG, async_op=True, tag=bucket.tag)
    return work


def sum_hook(state: Any, bucket: Any) -> Work:
    """The sum over the group."""
    work: Work = state.all_reduce(bucket.flat, ReduceOp.SUM, async_op=True, tag=bucket.tag)
    return work


def noop_hook(state: Any, bucket: Any) -> Work:
    """Nothing: gradients stay local. Shows what communication costs; not for training."""
    return COMPLETED


def as_work(result: Any, bucket: Any) -> Work:
    """The work after which the bucket holds what a hook gave.

    Raises:
        DtypeError: When a hook gave something else than a Work, a Future, a tensor or an array.
    """
    if isinstance(result, Work):
        return result
    if isinstance(result, Future) or (hasattr(result, "wait") and hasattr(result, "value")):
        return _FutureWork(result, bucket)
    if isinstance(result, (TensorBase, np.ndarray)) or hasattr(result, "__cuda_array_interface__"):
        bucket.set_buffer(result)
        return COMPLETED
    raise DtypeError(
        f"a communication hook must give a Work, a Future, a tensor or an array, not {type(result).__name__}"
    )


class _FutureWork(Work):
    """A future as work: its steps, which may be collectives, run in ``wait`` and so in the same order on all ranks."""

    __slots__ = ("_bucket", "_done", "_future")

    def __init__(self, future: Any, bucket: Any) -> None:
        self._future, self._bucket, self._done = future, bucket, False

    def wait(self, timeout: Any = None) -> bool:
        """Waits for the future and puts its value into the bucket."""
        if not self._done:
            value = self._future.wait()
            if isinstance(value, (list, tuple)):
                value = value[0]
            if value is not None:
                self._bucket.set_buffer(value)
            self._done = True
        return True

    def progress(self) -> bool:
        """Moves the communication on, but runs no steps."""
        self._future.done()
        return self._done

    def exception(self) -> BaseException | None:
        """Returns None: errors are raised by ``wait``."""
        return None
