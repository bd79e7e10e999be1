"""The launcher's main line: one attempt after another, signals passed on, the report, and nothing left behind."""

import contextlib
import errno
import os
import signal
import time
from collections.abc import Mapping

from ddpflow.comm.failure import FailureRecord
from ddpflow.errors import LaunchError
from ddpflow.launch.environment import Placement
from ddpflow.launch.first_host import FirstHost
from ddpflow.launch.gang import Gang, Outcome
from ddpflow.launch.guardian import Guardian
from ddpflow.launch.loop import Loop
from ddpflow.launch.meeting import Alone, Finish, Hooks, Link, Start
from ddpflow.launch.nodes import rank_token
from ddpflow.launch.options import Options
from ddpflow.launch.other_host import OtherHost
from ddpflow.launch.output import Console
from ddpflow.launch.processes import become_subreaper, end_strays, reap_orphans
from ddpflow.launch.rank import Rank
from ddpflow.launch.report import exit_code, failure_report, write_json
from ddpflow.launch.rundir import RunDir, live_runs, runs_folder
from ddpflow.launch.starter import Starter

__all__ = ["Supervisor"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Signals after which ranks that end with 0 have done what they were asked to.
_ORDERLY = (signal.SIGTERM, signal.SIGHUP)
_STRAY_PATIENCE_S = 1.0


class _Interrupted(Exception):
    """A signal came while no rank was running."""


class Supervisor:
    """Runs this host's part of a job.

    Args:
        options: The command line.
        environ: The launcher's own environment.
        token: The secret of the hosts, or None on a single one.
    """

    def __init__(self, options: Options, environ: Mapping[str, str], token: bytes | None) -> None:
        self._options, self._environ, self._token = options, environ, token
        self._loop = Loop()
        self._gang: Gang | None = None
        self._guardian: Guardian | None = None
        self._stop_signal: int | None = None
        out = Console(self._loop, 1, self._on_output_closed)
        same = os.path.samestat(os.fstat(1), os.fstat(2))
        self._consoles = {1: out, 2: out if same else Console(self._loop, 2, self._on_output_closed)}
        self._starter = Starter(self._loop, options, self._consoles, environ)
        self._run_id = options.run_id or os.urandom(4).hex()
        self._link = self._make_link()

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
            code = self._run()
        except _Interrupted:
            code = self._stopped_code()
        finally:
            self._link.close()
            self._guardian.dismiss()
            self._starter.close()
            self._finish_output()
            self._loop.close()
        return code

    def _finish_output(self) -> None:
        """Waits until all output is written, however slow its reader is; a signal ends the wait."""
        for console in self._consoles.values():
            console.finish()
        with contextlib.suppress(_Interrupted):
            self._loop.run_until(lambda: all(console.is_idle for console in self._consoles.values()))

    def _run(self) -> int:
        start = self._link.meet()
        self._announce(start)
        while True:
            try:
                outcome = self._attempt(start)
            finally:
                if start.listener is not None:
                    start.listener.close()
            reported = outcome.root is not None
            if reported:
                self._report(outcome, start)
            decision = self._link.ended(outcome.root, self._stop_signal is not None)
            if isinstance(decision, Finish):
                break
            start = decision
            self._say(f"starting again, attempt {start.attempt + 1}")
        if decision.root is not None and not reported:
            # This host was done when another one failed.
            self._say(f"node {decision.root.node} failed later: {decision.root.summary()}")
        if self._stop_signal is not None and not (outcome.all_zero and self._stop_signal in _ORDERLY):
            return self._stopped_code()
        return 0 if decision.root is None else exit_code(decision.root)

    def _attempt(self, start: Start) -> Outcome:
        """Runs all ranks of this host once."""
        options = self._options
        run_dir = RunDir(runs_folder(self._environ), start.run_id)
        assert self._guardian is not None
        self._guardian.tell(start.run_id, run_dir.path)
        place = Placement(
            node_rank=options.node_rank or 0,
            n_nodes=options.nnodes,
            first_rank=start.first_rank,
            local_world_size=options.nproc,
            world_size=start.world_size,
            master_addr=options.master_addr or "127.0.0.1",
            master_port=start.master_port,
            token=rank_token(self._token, start.run_id),
            run_id=start.run_id,
            run_dir=run_dir.path,
            restart_count=start.attempt,
        )
        if log_dir := self._starter.attempt_folder(start.run_id, start.attempt):
            # An earlier run with the same name may have left one.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(os.path.join(log_dir, "error.json"))
        gang = self._gang = Gang(self._loop, place, options.grace_period_s, self._link.failed)
        started = time.time()
        try:
            for local_rank in range(options.nproc):
                store_fd = start.listener.fileno() if start.listener is not None and local_rank == 0 else None
                gang.add(self._start_rank(place, local_rank, store_fd))
            if start.listener is not None:
                # From here on the port is rank 0's: when that rank dies, it must not seem to be open.
                start.listener.close()
            run_dir.write_job(self._job(gang, place, started))
            self._loop.run_until(lambda: gang.is_over)
        except BaseException:
            gang.kill()
            self._loop.run_until(lambda: gang.is_over)
            raise
        finally:
            outcome = self._clean_up(gang, start.run_id)
            run_dir.remove()
            self._gang = None
        return outcome

    def _start_rank(self, place: Placement, local_rank: int, store_fd: int | None) -> Rank:
        try:
            return self._starter.start(place, local_rank, store_fd)
        except OSError as error:
            # Log files that cannot be written, too many open files.
            raise LaunchError(f"cannot start rank {place.first_rank + local_rank}: {error}") from None

    def _clean_up(self, gang: Gang, run_id: str) -> Outcome:
        """Collects the last output and ends what ranks have left running."""
        patience_s = _STRAY_PATIENCE_S if self._stop_signal is None else _STRAY_PATIENCE_S / 2
        if left := end_strays(run_id, self._known(gang), patience_s, self._loop.run_once):
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            self._say(f"ended what ranks had left running: {', '.join(left[:3])}{more}")
        for rank in gang.ranks:
            for stream in rank.streams.values():
                stream.drain()
        return gang.finish()

    def _report(self, outcome: Outcome, start: Start) -> None:
        """Says what went wrong, and writes it down where there are log files."""
        assert outcome.root is not None
        options = self._options
        local = range(start.first_rank, start.first_rank + options.nproc)
        log_dir = self._starter.attempt_folder(start.run_id, start.attempt)
        if log_dir:
            self._starter.append_tracebacks(log_dir, outcome.records, local)
        for path in (os.path.join(log_dir, "error.json") if log_dir else None, options.report):
            if path:
                try:
                    write_json(path, outcome, self._run_id)
                except OSError as error:
                    self._say(f"cannot write the report: {error}")
        with_details = start.world_size > 1 or bool(log_dir)
        self._consoles[2].write(failure_report(outcome, local, with_details, log_dir or None).encode())

    def _job(self, gang: Gang, place: Placement, started: float) -> dict[str, object]:
        """Returns what ``ddprun --status`` wants to know."""
        return {
            "run_id": place.run_id,
            "launcher_pid": os.getpid(),
            "started": started,
            "attempt": place.restart_count,
            "command": [self._options.target, *self._options.arguments],
            "node_rank": place.node_rank,
            "n_nodes": place.n_nodes,
            "world_size": place.world_size,
            "ranks": [{"rank": rank.rank, "local_rank": rank.local_rank, "pid": rank.pid} for rank in gang.ranks],
        }

    def _announce(self, start: Start) -> None:
        if start.world_size > 1:
            threads = self._starter.threads
            ranks = f"{start.world_size} ranks"
            if self._options.nnodes > 1:
                last = start.first_rank + self._options.nproc - 1
                ranks += f" on {self._options.nnodes} nodes, {start.first_rank}-{last} here"
            what = f"{threads} BLAS thread{'s' if threads > 1 else ''} each"
            if self._starter.user_sets_threads:
                what = "BLAS threads as set in the environment"
            self._say(f"run {start.run_id}: {ranks}, {what}")

    def _say(self, text: str) -> None:
        self._consoles[2].write(f"ddprun: {text}\n".encode())

    def _make_link(self) -> Link:
        if self._token is None:
            return Alone(self._options, self._run_id)
        hooks = Hooks(self._on_remote_failure, self._on_remote_stop, self._say)
        if self._options.node_rank == 0:
            return FirstHost(self._loop, self._options, self._token, self._run_id, hooks)
        return OtherHost(self._loop, self._options, self._token, hooks)

    def _known(self, gang: Gang | None) -> set[int]:
        """Returns our own children, as opposed to what ranks have left to us."""
        assert self._guardian is not None
        return {self._guardian.pid, *(rank.pid for rank in gang.ranks)} if gang else {self._guardian.pid}

    def _stopped_code(self) -> int:
        assert self._stop_signal is not None
        if self._stop_signal != signal.SIGPIPE:
            self._say(f"stopped by {signal.Signals(self._stop_signal).name}")
        return 128 + self._stop_signal

    def _on_remote_failure(self, record: FailureRecord) -> None:
        if self._gang is not None:
            self._gang.fail_from_elsewhere(record)

    def _on_remote_stop(self, number: int) -> None:
        if self._stop_signal is None:
            self._stop_signal = number
            if self._gang is not None:
                self._gang.stop(number)

    def _on_output_closed(self, error: OSError) -> None:
        """Ends the job, as any program whose output is lost, with a word where there is somebody to hear it."""
        if error.errno != errno.EPIPE:
            self._say(f"cannot write the output: {error.strerror}")
        if self._stop_signal is None:
            self._stop(signal.SIGPIPE, signal.SIGTERM)

    def _on_signal(self, number: int) -> None:
        gang = self._gang
        if number == signal.SIGCHLD:
            if gang is not None:
                gang.look_for_ends()
            reap_orphans(self._known(gang))
        elif number == signal.SIGTSTP:
            self._suspend(gang)
        elif number in _ENDING:
            self._stop(number, number)
        elif gang is not None:
            gang.send(number)

    def _stop(self, number: int, passed_on: int) -> None:
        """Ends the run: politely the first time, at once the second time, and at once where nothing runs."""
        again = self._stop_signal is not None
        if not again:
            self._stop_signal = number
            self._link.stop(passed_on)
        if self._gang is None:
            raise _Interrupted
        if again:
            self._gang.kill()
        else:
            self._gang.stop(passed_on)

    def _suspend(self, gang: Gang | None) -> None:
        """Ctrl-Z: the ranks, in sessions of their own, would run on."""
        if gang is not None:
            gang.suspend()
        os.kill(os.getpid(), signal.SIGSTOP)
        if gang is not None:
            gang.resume()
