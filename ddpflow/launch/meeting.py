"""What the launchers of a job's hosts agree on: when an attempt starts, how it ended, and whether there is another."""

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ddpflow.comm.failure import FailureRecord
from ddpflow.errors import LaunchError
from ddpflow.launch.options import Options

__all__ = ["Alone", "Attempts", "Finish", "Hooks", "Link", "Start", "listen", "lost_record"]


@dataclass(frozen=True)
class Start:
    """An attempt that now begins on every host.

    Attributes:
        attempt: 0 for the first.
        run_id: Name of the attempt.
        first_rank: Global rank of this host's local rank 0.
        world_size: Number of ranks of the job.
        listener: On the first host, the socket for rank 0's store; whoever gets it closes it.
        master_port: Port of that socket.
    """

    attempt: int
    run_id: str
    first_rank: int
    world_size: int
    listener: socket.socket | None
    master_port: int


@dataclass(frozen=True)
class Finish:
    """The job is over.

    Attributes:
        root: Root cause, or None where all went well.
    """

    root: FailureRecord | None


class Hooks:
    """What a link calls when it hears something.

    Args:
        on_failure: A rank of another host failed, or a host was lost.
        on_stop: Another launcher was told to end the run, by a signal.
        say: Prints a line for the user.
    """

    def __init__(
        self, on_failure: Callable[[FailureRecord], None], on_stop: Callable[[int], None], say: Callable[[str], None]
    ) -> None:
        self.on_failure, self.on_stop, self.say = on_failure, on_stop, say


class Attempts:
    """Counts the attempts of a job.

    Args:
        run_id: Name of the job.
        max_restarts: How often it may start again.
    """

    def __init__(self, run_id: str, max_restarts: int) -> None:
        self.number = -1
        self._run_id, self._last = run_id, max_restarts

    @property
    def are_left(self) -> bool:
        """Whether there may be another one."""
        return self.number < self._last

    def begin(self) -> str:
        """Counts one more, and returns its name."""
        self.number += 1
        return f"{self._run_id}.{self.number}" if self.number else self._run_id


class Link(Protocol):
    """What the supervisor knows of the other hosts."""

    def meet(self) -> Start:
        """Waits until all hosts are there.

        Raises:
            LaunchError: Somebody does not come, or wants something else.
        """

    def failed(self, record: FailureRecord) -> None:
        """Tells the other hosts of a failure on this one."""

    def stop(self, number: int) -> None:
        """Tells the other hosts that a signal ends the run."""

    def ended(self, root: FailureRecord | None, stopped: bool) -> Start | Finish:
        """Says how the attempt ended here, and waits for what all hosts do next; after a stop, nothing starts again."""

    def close(self) -> None:
        """Parts from the other hosts."""


class Alone:
    """The link of a job on one host.

    Args:
        options: The command line.
        run_id: Name of the job.
    """

    def __init__(self, options: Options, run_id: str) -> None:
        self._options = options
        self._attempts = Attempts(run_id, options.max_restarts)

    def meet(self) -> Start:
        """Starts at once."""
        options = self._options
        listener = listen(options.master_addr or "127.0.0.1", options.master_port)
        run_id = self._attempts.begin()
        return Start(self._attempts.number, run_id, 0, options.nproc, listener, listener.getsockname()[1])

    def failed(self, record: FailureRecord) -> None:
        """Nobody is to be told."""

    def stop(self, number: int) -> None:
        """Nobody is to be told."""

    def ended(self, root: FailureRecord | None, stopped: bool) -> Start | Finish:
        """Starts again after a failure, if it may."""
        return self.meet() if root is not None and not stopped and self._attempts.are_left else Finish(root)

    def close(self) -> None:
        """Parts from nobody."""


def lost_record(node: int, host: str, rank: int, reason: str) -> FailureRecord:
    """Returns the record of a host that was lost, in the name of its first rank."""
    return FailureRecord(rank, node, 0, "NodeLost", f"node {node} ({host}): {reason}", exitcode=1)


def listen(addr: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address of this host, and on no other; port 0 takes a free one.

    Raises:
        LaunchError: The address is not this host's, or the port is taken.
    """
    with contextlib.ExitStack() as on_error:
        try:
            info = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM)[0]
            listener = on_error.enter_context(socket.socket(*info[:3]))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(info[4])
            listener.listen(1024)
        except OSError as error:
            raise LaunchError(f"cannot listen on {addr}, port {port}: {error.strerror or error}") from None
        on_error.pop_all()
    return listener
