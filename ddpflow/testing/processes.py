"""A world whose ranks are processes, taken from a pool of fresh interpreters that is thrown away after a failure."""

import os
import pickle
import secrets
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from ddpflow.comm.failure import FailureRecord
from ddpflow.errors import LaunchError
from ddpflow.testing.faults import RankDied
from ddpflow.testing.outcome import Outcome
from ddpflow.testing.task import Report, Task
from ddpflow.testing.workers import IN_WORKER, MpiWorker, Worker, give_back, take

__all__ = ["run_processes"]

Workers = Sequence[Worker | MpiWorker]

_IDLE_S = 10.0


def _modules_of(fn: Any) -> list[tuple[str, str]]:
    """Returns name and file of the module that a function, or what a partial wraps, comes from."""
    while hasattr(fn, "func"):
        fn = fn.func
    module = sys.modules.get(getattr(fn, "__module__", "") or "")
    if module is not None and module.__name__ == "__main__":
        # What a rank process calls the script; its results may refer to classes of it.
        sys.modules.setdefault("__mp_main__", module)
    file = getattr(module, "__file__", None)
    return [(module.__name__, os.path.abspath(file))] if module is not None and file else []


def run_processes(
    fn: Callable[..., Any],
    n: int,
    backend: str,
    args: tuple[Any, ...],
    timeout_s: float,
    group_timeout_s: float,
    init: bool,
) -> list[Outcome]:
    """Runs ``fn(rank, *args)`` in ``n`` processes; see ``run_ranks``."""
    if IN_WORKER in os.environ:
        raise LaunchError(
            "a rank process loads your script: put the call of run_ranks under if __name__ == '__main__':"
        )
    try:
        payload = pickle.dumps((fn, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise LaunchError(
            f"ranks that are processes need a function at the top of a module, not {fn!r}: {error}"
        ) from error
    workers = take(n, backend)
    clean = False
    try:
        with tempfile.TemporaryDirectory(prefix="ddpflow-test-") as run_dir, socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(128)
            environ = {
                "WORLD_SIZE": str(n),
                "LOCAL_WORLD_SIZE": str(n),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(listener.getsockname()[1]),
                "DDPFLOW_JOB_TOKEN": secrets.token_hex(32),
                "DDPFLOW_RUN_ID": "test",
                "DDPFLOW_RUN_DIR": run_dir,
            }
            for rank, worker in enumerate(workers):
                # mpiexec has told its ranks who they are.
                own = {} if backend == "mpi" else {**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                task = Task(rank, own, _modules_of(fn), payload, backend, group_timeout_s, init)
                worker.channel.send(task, (listener.fileno(),) if own and rank == 0 else ())
            outcomes = _collect(workers, run_dir, timeout_s)
            clean = all(outcome.error is None for outcome in outcomes) and _release(workers)
    finally:
        if clean:
            give_back(workers)
        else:
            for worker in workers:
                worker.end()
    return outcomes


def _release(workers: Workers) -> bool:
    """Lets the workers end the world; returns whether all are ready for another."""
    try:
        for worker in workers:
            worker.channel.send("done")
        for worker in workers:
            worker.channel.receive(_IDLE_S)
    except (OSError, EOFError, TimeoutError):
        return False
    return True


def _collect(workers: Workers, run_dir: str, timeout_s: float) -> list[Outcome]:
    """Waits for all ranks; what a launcher would write about one that died is written here."""
    outcomes: dict[int, Outcome] = {}
    deadline = time.monotonic() + timeout_s
    waiting = {worker.channel.socket: rank for rank, worker in enumerate(workers)}
    while waiting:
        ready, _, _ = select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for end in ready:
            rank = waiting.pop(end)
            try:
                report, _ = workers[rank].channel.receive(5.0)
                outcomes[rank] = _outcome(rank, report)
            except (EOFError, TimeoutError):
                outcomes[rank] = _died(rank, workers[rank], run_dir)
    if waiting:
        late = sorted(waiting.values())
        for rank in late:
            os.kill(workers[rank].pid, signal.SIGUSR1)
        time.sleep(0.3)
        stacks = "\n".join(f"rank {rank}:\n{workers[rank].read_output()}" for rank in late)
        error = TimeoutError(f"ranks {late} of {len(workers)} did not end in {timeout_s:g} s\n{stacks}")
        outcomes.update({rank: Outcome(rank, error=error, time=0.0) for rank in late})
    return [outcomes[rank] for rank in range(len(workers))]


def _outcome(rank: int, report: Report) -> Outcome:
    if report.error is None:
        return Outcome(rank, pickle.loads(report.value or b""))
    error: BaseException = pickle.loads(report.error)
    error.add_note(f"raised by rank {rank}:\n{report.error_text}")
    return Outcome(rank, error=error)


def _died(rank: int, worker: Worker | MpiWorker, run_dir: str) -> Outcome:
    exitcode, number = worker.exit_status()
    FailureRecord(rank, pid=worker.pid, exitcode=exitcode, signal=number).write(run_dir)
    return Outcome(rank, error=RankDied(rank, exitcode, number, worker.read_output()))
