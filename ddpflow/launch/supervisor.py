"""The launcher's main line: one attempt after another, signals passed on, the report, and nothing left behind."""

import os
import signal
import socket
import time
from collections.abc import Mapping

from ddpflow.comm.failure import FailureRecord
from ddpflow.errors import LaunchError
from ddpflow.launch.environment import Placement
from ddpflow.launch.gang import Gang, Outcome
from ddpflow.launch.guardian import Guardian
from ddpflow.launch.loop import Loop
from ddpflow.launch.options import Options
from ddpflow.launch.output import Console
from ddpflow.launch.processes import become_subreaper, end_strays, reap_orphans
from ddpflow.launch.report import exit_code, failure_report, write_json
from ddpflow.launch.rundir import RunDir, live_runs, runs_folder
from ddpflow.launch.starter import Starter

__all__ = ["Supervisor"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_STRAY_PATIENCE_S = 1.0
_FLUSH_S = 5.0


class Supervisor:
    """Runs one job on this host.

    Args:
        options: The command line.
        environ: The launcher's own environment.
    """

    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self._options, self._environ = options, environ
        self._loop = Loop()
        self._gang: Gang | None = None
        self._stop_signal: int | None = None
        self._reader_gone = False
        self._run_id = options.run_id or os.urandom(4).hex()
        out = Console(self._loop, 1, self._on_reader_gone)
        same = os.path.samestat(os.fstat(1), os.fstat(2))
        self._consoles = {1: out, 2: out if same else Console(self._loop, 2, self._on_reader_gone)}
        self._starter = Starter(self._loop, options, self._consoles, environ)

    def run(self) -> int:
        """Runs the job, with restarts.

        Returns:
            The exit code: 0, the root cause's, or 128 + the signal that stopped the run.

        Raises:
            LaunchError: Nothing could be started.
        """
        become_subreaper()
        self._guardian = Guardian()
        signals = {*_ENDING, signal.SIGCHLD, signal.SIGTSTP, *self._options.forward_signals}
        self._loop.handle_signals(signals, self._on_signal)
        try:
            live_runs(runs_folder(self._environ))
            attempt = 0
            while True:
                code = self._attempt(attempt)
                if code == 0 or self._stop_signal is not None or attempt == self._options.max_restarts:
                    return code
                attempt += 1
                self._say(f"starting again, attempt {attempt + 1} of {self._options.max_restarts + 1}")
        finally:
            self._guardian.dismiss()
            for console in self._consoles.values():
                console.flush(_FLUSH_S)
            self._starter.close()
            self._loop.close()

    def _attempt(self, attempt: int) -> int:
        """Runs all ranks once; returns the exit code."""
        options = self._options
        listener = _listen("127.0.0.1" if options.master_addr is None else options.master_addr, options.master_port)
        run_id = f"{self._run_id}.{attempt}" if attempt else self._run_id
        run_dir = RunDir(runs_folder(self._environ), run_id)
        self._guardian.tell(run_id, run_dir.path)
        place = Placement(
            node_rank=0,
            n_nodes=1,
            first_rank=0,
            local_world_size=options.nproc,
            world_size=options.nproc,
            master_addr=listener.getsockname()[0],
            master_port=listener.getsockname()[1],
            token=os.urandom(16).hex(),
            run_id=run_id,
            run_dir=run_dir.path,
            restart_count=attempt,
        )
        if attempt == 0 and place.world_size > 1:
            self._announce(place)
        self._gang = Gang(self._loop, place, options.grace_period_s, self._on_failure)
        started = time.time()
        try:
            with listener:
                for local_rank in range(options.nproc):
                    fd = listener.fileno() if local_rank == 0 else None
                    self._gang.add(self._starter.start(place, local_rank, fd))
            run_dir.write_job(self._job(place, started))
            gang = self._gang
            self._loop.run_until(lambda: gang.is_over)
        except BaseException:
            self._gang.kill()
            raise
        finally:
            outcome = self._clean_up(self._gang, run_id)
            run_dir.remove()
        return self._conclude(outcome, place)

    def _clean_up(self, gang: Gang, run_id: str) -> Outcome:
        """Collects the last output and ends what ranks have left running."""
        known = {self._guardian.pid, *(rank.pid for rank in gang.ranks)}
        patience_s = _STRAY_PATIENCE_S if self._stop_signal is None else _STRAY_PATIENCE_S / 2
        if left := end_strays(run_id, known, patience_s, self._loop.run_once):
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            self._say(f"ended what ranks had left running: {', '.join(left[:3])}{more}")
        for rank in gang.ranks:
            for stream in rank.streams.values():
                stream.drain()
        outcome = gang.finish()
        return outcome

    def _conclude(self, outcome: Outcome, place: Placement) -> int:
        """Reports what went wrong, if anything did; returns the exit code."""
        if outcome.all_zero and self._stop_signal in (None, signal.SIGTERM, signal.SIGHUP):
            return 0
        self._gang = None
        local = range(place.first_rank, place.first_rank + place.local_world_size)
        code = exit_code(outcome.root) if outcome.root else 1
        if self._stop_signal is not None:
            code = 128 + self._stop_signal
            if not self._reader_gone:
                self._say(f"stopped by {signal.Signals(self._stop_signal).name}")
        log_dir = None
        if self._options.log_dir:
            log_dir = os.path.dirname(self._starter.log_folder(place, 0))
            write_json(os.path.join(log_dir, "error.json"), outcome, code, self._run_id)
        if outcome.root is not None:
            report = failure_report(outcome, local, place.world_size > 1 or log_dir is not None, log_dir)
            self._consoles[2].write(report.encode())
        return code

    def _job(self, place: Placement, started: float) -> dict[str, object]:
        """Returns what ``ddprun --status`` wants to know."""
        assert self._gang is not None
        return {
            "run_id": place.run_id,
            "launcher_pid": os.getpid(),
            "started": started,
            "attempt": place.restart_count,
            "command": [self._options.target, *self._options.arguments],
            "kind": self._options.kind,
            "node_rank": place.node_rank,
            "n_nodes": place.n_nodes,
            "world_size": place.world_size,
            "ranks": [{"rank": rank.rank, "local_rank": rank.local_rank, "pid": rank.pid} for rank in self._gang.ranks],
        }

    def _announce(self, place: Placement) -> None:
        threads = self._starter.threads
        self._say(
            f"run {place.run_id}: {place.world_size} ranks, {threads} BLAS thread{'s' if threads > 1 else ''} each "
            "(OMP_NUM_THREADS or --threads-per-rank changes it)"
        )

    def _say(self, text: str) -> None:
        self._consoles[2].write(f"ddprun: {text}\n".encode())

    def _on_failure(self, record: FailureRecord) -> None:
        """Called at the first failure; the report comes when the others have ended."""

    def _on_signal(self, number: int) -> None:
        gang = self._gang
        if number == signal.SIGCHLD:
            known = {self._guardian.pid, *(rank.pid for rank in gang.ranks)} if gang else {self._guardian.pid}
            reap_orphans(known)
        elif number == signal.SIGTSTP and gang:
            gang.suspend()
            os.kill(os.getpid(), signal.SIGSTOP)
            gang.resume()
        elif number in _ENDING:
            self._stop(number)
        elif gang:
            gang.send(number)

    def _stop(self, number: int) -> None:
        if self._stop_signal is not None:
            # Asked twice: no more patience.
            if self._gang:
                self._gang.kill()
            return
        self._stop_signal = number
        if self._gang:
            self._gang.stop(number)

    def _on_reader_gone(self) -> None:
        self._reader_gone = True
        if self._stop_signal is None:
            self._stop_signal = signal.SIGPIPE
            if self._gang:
                self._gang.stop(signal.SIGTERM)


def _listen(addr: str, port: int) -> socket.socket:
    """Returns a socket that listens on an address of this host; port 0 lets the system choose one."""
    try:
        info = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise LaunchError(f"--master-addr {addr!r} is no host that this one knows: {error.strerror}") from None
    listener = socket.socket(*info[:3])
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(info[4])
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise LaunchError(f"cannot listen on {addr}, port {port}: {error.strerror}; port 0 takes a free one") from None
    return listener
