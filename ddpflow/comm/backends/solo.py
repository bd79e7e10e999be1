"""The transport of a world of one: every collective is an identity."""

from typing import Any, ClassVar, Self

import numpy as np

from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Call
from ddpflow.comm.work import CompletedWork, Work
from ddpflow.errors import BackendUnavailable

__all__ = ["SoloBackend"]


class SoloBackend(Backend):
    """Serves groups of one rank, with NumPy and CuPy arrays alike."""

    name: ClassVar[str] = "solo"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Returns the transport.

        Raises:
            BackendUnavailable: The group has more than one rank.
        """
        if spec.size != 1:
            raise BackendUnavailable(
                f"backend 'solo' serves a world of one, not {spec.size} ranks; "
                "use 'shm' on one host, 'mpi' across hosts"
            )
        return cls(spec)

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Leaves the array as it is."""
        return CompletedWork(array)

    def broadcast(self, array: np.ndarray, call: Call) -> Work:
        """Leaves the array as it is."""
        return CompletedWork(array)

    def all_gather(self, out: np.ndarray, array: np.ndarray, call: Call) -> Work:
        """Copies ``array`` to ``out``."""
        out[:] = array
        return CompletedWork(out)

    def reduce_scatter(self, out: np.ndarray, array: np.ndarray, op: ReduceOp, call: Call) -> Work:
        """Copies ``array`` to ``out``."""
        out[:] = array
        return CompletedWork(out)

    def scatter(self, out: np.ndarray, array: np.ndarray | None, call: Call) -> Work:
        """Copies ``array`` to ``out``."""
        out[:] = array
        return CompletedWork(out)

    def send(self, array: np.ndarray, peer: int, message_tag: int, call: Call) -> Work:
        """Refuses: there is nobody else."""
        raise self.peer_error(call, "a world of one has no peer to send to")

    def recv(self, array: np.ndarray, peer: int | None, message_tag: int, call: Call) -> Work:
        """Refuses: there is nobody else."""
        raise self.peer_error(call, "a world of one has no peer to receive from")

    def barrier(self, call: Call) -> Work:
        """Returns at once."""
        return CompletedWork()

    def empty(self, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns ordinary memory."""
        return np.empty(n, dtype)

    def abort(self, reason: str) -> None:
        """Has nobody to tell."""

    def close(self, timeout_s: float) -> None:
        """Has nothing to free."""
