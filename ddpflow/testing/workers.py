"""The pool of rank processes: fresh interpreters that wait for tasks, alone or in a world that mpiexec has started."""

import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

from ddpflow.errors import LaunchError
from ddpflow.testing.channel import Channel

__all__ = ["IN_WORKER", "MpiWorker", "MpiWorld", "Worker", "end_idle_workers", "give_back", "take"]

# Set in rank processes.
IN_WORKER = "DDPFLOW_TEST_WORKER"
_START_S = 60.0
_END_S = 5.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LAUNCHER_VARIABLES = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "DDPFLOW_STORE_FD", "DDPFLOW_JOB_TOKEN", "DDPFLOW_RUN_ID", "DDPFLOW_RUN_DIR"),
}
# The worker sees the modules that the test sees, wherever it runs.
_PROGRAM = "import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); from ddpflow.testing import worker; worker."


def _environment() -> dict[str, str]:
    environ = {k: v for k, v in os.environ.items() if k not in _LAUNCHER_VARIABLES}
    for name in _THREADS:
        environ.setdefault(name, "1")
    return {**environ, IN_WORKER: "1"}


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 20_000))
    return output.read().decode(errors="replace")


class Worker:
    """One rank process.

    Attributes:
        channel: Where tasks go in and reports come out.
        pid: Its process id.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._output: IO[bytes] = tempfile.TemporaryFile()
        program = _PROGRAM + "main(int(sys.argv[2]), int(sys.argv[3]))"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, os.pathsep.join(sys.path), str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=_environment(),
        )
        theirs.close()
        self.channel = Channel(ours)
        self.pid = self._process.pid

    def read_output(self) -> str:
        """Returns the end of what the process has printed."""
        return _tail(self._output)

    def exit_status(self) -> tuple[int | None, int | None]:
        """Returns exit code and signal of a process whose channel has ended."""
        code = self._process.wait(_END_S)
        return (code, None) if code >= 0 else (None, -code)

    def end(self) -> None:
        """Kills the process and frees what belongs to it."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._output.close()


class MpiWorld:
    """All ranks of one mpiexec.

    Raises:
        LaunchError: There is no mpiexec, or its ranks did not start.
    """

    def __init__(self, n: int) -> None:
        beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
        mpiexec = beside if os.path.exists(beside) else shutil.which("mpiexec")
        if mpiexec is None:
            raise LaunchError("backend 'mpi' needs mpiexec: install the extra, `pip install 'ddpflow[mpi]'`")
        self._output: IO[bytes] = tempfile.TemporaryFile()
        self._last_output = ""
        with tempfile.TemporaryDirectory(prefix="ddpflow-test-") as folder, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(folder, "meet")
            listener.bind(path)
            listener.listen(n)
            program = _PROGRAM + "main_connecting(sys.argv[2])"
            command = [mpiexec, "-n", str(n), sys.executable, "-c", program, os.pathsep.join(sys.path), path]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
            found: dict[int, MpiWorker] = {}
            deadline = time.monotonic() + _START_S
            while len(found) < n:
                ready, _, _ = select.select([listener], [], [], 0.2)
                if ready:
                    channel = Channel(listener.accept()[0])
                    rank, pid = channel.receive(_START_S)[0]
                    found[rank] = MpiWorker(self, channel, pid)
                elif self._process.poll() is not None or time.monotonic() > deadline:
                    self.end()
                    raise LaunchError(f"mpiexec did not start {n} ranks: {self.read_output()}")
        self.workers = [found[rank] for rank in range(n)]

    def read_output(self) -> str:
        """Returns the end of what mpiexec and its ranks have printed."""
        return self._last_output if self._output.closed else _tail(self._output)

    def end(self) -> None:
        """Ends mpiexec and with it all its ranks; may be called twice."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if not self._output.closed:
            self._last_output = _tail(self._output)
            self._output.close()


class MpiWorker:
    """One rank of an ``MpiWorld``; has the methods of ``Worker``."""

    def __init__(self, world: MpiWorld, channel: Channel, pid: int) -> None:
        self.world, self.channel, self.pid = world, channel, pid

    def read_output(self) -> str:
        """Returns the end of what all ranks have printed."""
        return self.world.read_output()

    def exit_status(self) -> tuple[int | None, int | None]:
        """Nobody but mpiexec knows."""
        return None, None

    def end(self) -> None:
        """Ends the whole world: a rank cannot be replaced."""
        self.channel.close()
        self.world.end()


_idle: list[Worker] = []
_idle_worlds: dict[int, list[MpiWorld]] = {}


def take(n: int, backend: str) -> Sequence[Worker | MpiWorker]:
    """Returns ``n`` workers, idle ones first."""
    if backend != "mpi":
        return [_idle.pop() if _idle else Worker() for _ in range(n)]
    worlds = _idle_worlds.get(n)
    return (worlds.pop() if worlds else MpiWorld(n)).workers


def give_back(workers: Sequence[Worker | MpiWorker]) -> None:
    """Keeps workers that are idle again for the next test."""
    _idle.extend(worker for worker in workers if isinstance(worker, Worker))
    if isinstance(workers[0], MpiWorker):
        _idle_worlds.setdefault(len(workers), []).append(workers[0].world)


@atexit.register
def end_idle_workers() -> None:
    """Ends the pool's processes."""
    while _idle:
        _idle.pop().end()
    while _idle_worlds:
        for world in _idle_worlds.popitem()[1]:
            for worker in world.workers:
                worker.end()
