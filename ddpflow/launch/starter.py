"""Starts the ranks of one host: their environment, their cores, and where their output goes."""

import os
from collections.abc import Container, Iterable, Mapping
from typing import BinaryIO

from ddpflow.comm.failure import FailureRecord
from ddpflow.launch.environment import THREAD_VARIABLES, Placement, rank_environment
from ddpflow.launch.loop import Loop
from ddpflow.launch.options import Options
from ddpflow.launch.output import Console, Stream, rank_prefix
from ddpflow.launch.rank import Rank, bootstrap_command
from ddpflow.launch.resources import core_shares, usable_cores

__all__ = ["Starter"]

_STREAMS = ((1, "stdout"), (2, "stderr"))


class Starter:
    """Starts ranks.

    Args:
        loop: Event loop that reads their output.
        options: The command line.
        consoles: Where standard output (1) and standard error (2) are shown.
        environ: The launcher's own environment.
    """

    def __init__(
        self, loop: Loop, options: Options, consoles: Mapping[int, Console], environ: Mapping[str, str]
    ) -> None:
        self._loop, self._options, self._consoles, self._environ = loop, options, consoles, environ
        self._shares = core_shares(options.nproc, options.bind)
        self._devnull = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        shown = options.show_ranks
        # One rank's progress bar can live on the last line of the terminal: the lowest that is shown.
        self._live = min(shown) if shown else 0

    @property
    def threads(self) -> int:
        """BLAS threads of each rank, unless the user has set them in the environment."""
        if self._options.threads is not None:
            return self._options.threads
        cores = min(map(len, self._shares)) if self._shares else usable_cores() // self._options.nproc
        return max(1, cores)

    @property
    def user_sets_threads(self) -> bool:
        """Whether the user has set the number of threads in the environment, which then stands."""
        return self._options.threads is None and any(name in self._environ for name in THREAD_VARIABLES)

    def start(self, place: Placement, local_rank: int, store_fd: int | None) -> Rank:
        """Starts one rank.

        Args:
            place: What the host's ranks share.
            local_rank: Which one.
            store_fd: Listening socket that it inherits, or None.

        Raises:
            LaunchError: It cannot be started.
        """
        options = self._options
        folder = self.attempt_folder(place.run_id, place.restart_count)
        if folder:
            folder = os.path.join(folder, str(place.first_rank + local_rank))
            os.makedirs(folder, exist_ok=True)
        redirects = options.redirects.get(local_rank, options.redirects.get(-1, 0))
        tee = options.tee.get(local_rank, options.tee.get(-1, 0))
        files: dict[int, int] = {} if place.node_rank == 0 and local_rank == 0 else {0: self._devnull}
        pipes: dict[int, tuple[int, int]] = {}
        for fd, name in _STREAMS:
            if redirects & fd and not tee & fd:
                path = os.path.join(folder, f"{name}.log")
                files[fd] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
            elif place.world_size > 1 or tee & fd:
                pipes[fd] = os.pipe2(os.O_CLOEXEC)
                files[fd] = pipes[fd][1]
        threads = None if self.user_sets_threads else self.threads
        environment = rank_environment(
            {**self._environ, **self._terminal_size(place)}, place, local_rank, store_fd, threads, options.extra_env
        )
        cores = self._shares[local_rank] if self._shares else None
        # Where the launcher reports, the rank leaves its traceback to it; on a bare terminal it prints as usual.
        command = bootstrap_command(options.kind, options.target, options.arguments, cores, quiet=2 in files)
        try:
            if store_fd is not None:
                os.set_inheritable(store_fd, True)
            rank = Rank.start(place.first_rank + local_rank, local_rank, command, environment, files)
        finally:
            if store_fd is not None:
                os.set_inheritable(store_fd, False)
            for fd, ours in files.items():
                if fd:
                    os.close(ours)
        for fd, (reader, _) in pipes.items():
            self._connect(rank, fd, reader, folder if tee & fd else "")
        if 2 in files and 2 not in pipes:
            rank.stderr_path = os.path.join(folder, "stderr.log")
        return rank

    def attempt_folder(self, run_id: str, attempt: int) -> str:
        """Returns the folder of an attempt's log files; "" where none are wanted."""
        if not self._options.log_dir:
            return ""
        job = run_id if not attempt else run_id.rpartition(".")[0]
        return os.path.join(self._options.log_dir, job, f"attempt_{attempt}")

    def append_tracebacks(self, folder: str, records: Iterable[FailureRecord], local: Container[int]) -> None:
        """Adds to the log files the tracebacks that ranks have left to the report."""
        for record in records:
            path = os.path.join(folder, str(record.rank), "stderr.log")
            if record.rank in local and record.traceback and os.path.exists(path):
                with open(path, "a") as file:
                    file.write(record.traceback)

    def _terminal_size(self, place: Placement) -> dict[str, str]:
        """Returns the size of the terminal behind the pipes, less the room for the rank's mark, for progress bars."""
        console = self._consoles[2]
        if not console.is_terminal or "COLUMNS" in self._environ:
            return {}
        columns, lines = os.get_terminal_size(console.fd)
        return {"COLUMNS": str(max(20, columns - len(rank_prefix(place.world_size, False)))), "LINES": str(lines)}

    def close(self) -> None:
        """Closes what was opened for all ranks."""
        os.close(self._devnull)

    def _connect(self, rank: Rank, fd: int, reader: int, folder: str) -> None:
        options, name = self._options, dict(_STREAMS)[fd]
        file: BinaryIO | None = None
        if folder:
            file = open(os.path.join(folder, f"{name}.log"), "wb", buffering=0)
        shown = options.show_ranks is None or rank.local_rank in options.show_ranks
        console = self._consoles[fd] if shown else None
        colour = console is not None and console.is_terminal and not self._environ.get("NO_COLOR")
        single = options.nproc == 1 and options.nnodes == 1
        prefix = b"" if single else rank_prefix(rank.rank, colour)
        live = rank.local_rank == self._live
        rank.streams[name] = Stream(self._loop, reader, console, prefix, file, live)
