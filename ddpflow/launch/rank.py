"""One rank of the job as the launcher sees it: a process in a session of its own."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ddpflow.errors import LaunchError
from ddpflow.launch.loop import Loop
from ddpflow.launch.output import RECENT, Stream

__all__ = ["Rank", "bootstrap_command"]

_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
# Python ignores these for itself, and ranks would inherit that.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)


def bootstrap_command(
    kind: str, target: str, arguments: Sequence[str], cores: Sequence[int] | None, quiet: bool
) -> list[str]:
    """Returns the command line of a rank.

    Args:
        kind: "script", "module" or "command".
        target: Path of the script, name of the module, or the program.
        arguments: What it gets.
        cores: Cores to run on, or None for any.
        quiet: Whether the launcher, not the rank, shows the traceback of an uncaught exception.
    """
    options = ["--parent", str(os.getpid())]
    if cores is not None:
        options += ["--cores", ",".join(map(str, cores))]
    if quiet:
        options += ["--quiet", "1"]
    return [sys.executable, _BOOTSTRAP, *options, kind, target, *arguments]


@dataclass
class Rank:
    """A started rank.

    Attributes:
        rank: Global rank.
        local_rank: Rank on this host.
        pid: Process id, also the id of its process group and session.
        streams: Its standard output and error, as far as they go through the launcher.
        stderr_path: File that its standard error goes to directly, or None.
        exitcode: Exit code once it has ended by itself.
        signal: Number of the signal that ended it.
        ended: Time of its end, in seconds since the epoch.
    """

    rank: int
    local_rank: int
    pid: int
    streams: dict[str, Stream] = field(default_factory=dict)
    stderr_path: str | None = None
    exitcode: int | None = None
    signal: int | None = None
    ended: float | None = None
    _pidfd: int = -1
    _loop: Loop | None = None
    _on_end: Callable[["Rank"], None] | None = None

    @classmethod
    def start(
        cls,
        rank: int,
        local_rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        files: Mapping[int, int],
    ) -> "Rank":
        """Starts a process.

        Args:
            rank: Global rank.
            local_rank: Rank on this host.
            command: Program, by path, and arguments.
            environment: Its whole environment.
            files: For standard input, output and error (0, 1, 2): the descriptor of ours that it gets.

        Raises:
            LaunchError: The system cannot start it.
        """
        actions = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in files.items()]
        try:
            pid = os.posix_spawn(
                command[0],
                list(command),
                dict(environment),
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_RESET,
            )
        except OSError as error:
            raise LaunchError(f"cannot start rank {rank}: {error.strerror} ({command[0]})") from None
        return cls(rank, local_rank, pid)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.ended is None

    def watch(self, loop: Loop, on_end: Callable[["Rank"], None]) -> None:
        """Calls ``on_end`` when the process has ended. Until ``reap``, its id stays its own."""
        self._loop, self._on_end = loop, on_end
        # Without a descriptor (old kernels, EMFILE), SIGCHLD makes the supervisor call ``look``.
        with contextlib.suppress(OSError, AttributeError):
            self._pidfd = os.pidfd_open(self.pid)
            loop.add_reader(self._pidfd, self.look)

    def look(self) -> None:
        """Sees whether the process has ended, and then says so, once."""
        if self.is_running and self._collect():
            if self._pidfd >= 0 and self._loop is not None:
                self._loop.remove_reader(self._pidfd)
                os.close(self._pidfd)
            if self._on_end is not None:
                self._on_end(self)

    def send(self, number: int) -> None:
        """Sends a signal to the process, not to its children; a signal that ends it also wakes it if it is stopped."""
        if self.is_running:
            os.kill(self.pid, number)
            if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                self.send_group(signal.SIGCONT)

    def send_group(self, number: int) -> None:
        """Sends a signal to the process and everything in its process group. Allowed until ``reap``."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def recent_stderr(self) -> bytes:
        """Returns the last stretch of what the process wrote to standard error, as far as it is known."""
        if "stderr" in self.streams:
            return self.streams["stderr"].recent
        if self.stderr_path is None:
            return b""
        with open(self.stderr_path, "rb") as file:
            file.seek(max(0, os.path.getsize(self.stderr_path) - RECENT))
            return file.read()

    def reap(self) -> None:
        """Lets the system forget the process, which must have ended."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _collect(self) -> bool:
        """Reads how the process ended, if it has."""
        info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return False
        self.ended = time.time()
        if info.si_code == os.CLD_EXITED:
            self.exitcode = info.si_status
        else:
            self.signal = info.si_status
        return True
