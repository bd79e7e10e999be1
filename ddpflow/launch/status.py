"""``ddprun --status`` and ``ddprun --stacks``: a look at a running job from another shell."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ddpflow.comm.failure import read_all
from ddpflow.comm.progress import Snapshot, read_progress
from ddpflow.errors import LaunchError
from ddpflow.launch.rundir import live_runs, read_job, runs_folder

__all__ = ["RankView", "find_run", "look", "show_stacks", "show_status"]

_SAMPLE_S = 1.0
_STACKS_S = 3.0
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked in the kernel",
    "T": "stopped",
    "t": "traced by a debugger",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}


@dataclass(frozen=True)
class RankView:
    """What can be seen of a rank from outside.

    Attributes:
        rank: Global rank.
        pid: Process id.
        state: "running", "sleeping", "stopped", "ended", ...
        cpu_s: Processor time it has used.
        memory_mb: Resident memory in MiB.
        progress: What it has published, or None.
    """

    rank: int
    pid: int
    state: str
    cpu_s: float
    memory_mb: float
    progress: Snapshot | None


def find_run(name: str, environ: Mapping[str, str]) -> str:
    """Returns the id of the run that is meant: the one named, or the only one of this user on this host.

    Raises:
        LaunchError: There is none, or there are several.
    """
    runs = live_runs(runs_folder(environ))
    if name:
        # A restarted run has a number after its name.
        found = [run for run in runs if run == name or run.rpartition(".")[0] == name]
        if not found:
            raise LaunchError(f"there is no run {name!r} on this host; there {_listing(runs)}")
        return found[-1]
    if len(runs) != 1:
        raise LaunchError(f"which run? On this host there {_listing(runs)}")
    return runs[0]


def look(run_dir: str, rank: int, pid: int) -> RankView:
    """Returns what can be seen of a rank."""
    state, cpu_s, memory_mb = "ended", 0.0, 0.0
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        state = _STATES.get(fields[0], fields[0])
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        memory_mb = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        pass
    return RankView(rank, pid, state, cpu_s, memory_mb, read_progress(run_dir, rank))


def show_status(name: str, environ: Mapping[str, str]) -> str:
    """Returns a table with one line for each rank of a run; takes a second, to measure its pace.

    Raises:
        LaunchError: The run is not clear.
    """
    folder = runs_folder(environ)
    run = find_run(name, environ)
    job, run_dir = read_job(folder, run), os.path.join(folder, run)
    before, start = [look(run_dir, r["rank"], r["pid"]) for r in job["ranks"]], time.monotonic()
    time.sleep(_SAMPLE_S)
    after, elapsed = [look(run_dir, r["rank"], r["pid"]) for r in job["ranks"]], time.monotonic() - start
    lines = [_heading(job)]
    lines += [_rank_line(old, new, elapsed) for old, new in zip(before, after, strict=True)]
    lines += [f"failed: {record.summary()}" for record in read_all(run_dir)]
    return "\n".join(lines) + "\n"


def _heading(job: Mapping[str, Any]) -> str:
    minutes, seconds = divmod(int(time.time() - job["started"]), 60)
    nodes = f", node {job['node_rank']} of {job['n_nodes']}" if job["n_nodes"] > 1 else ""
    attempt = f", attempt {job['attempt'] + 1}" if job["attempt"] else ""
    command = " ".join(job["command"])
    return f"run {job['run_id']}: {command} ({job['world_size']} ranks{nodes}{attempt}, {minutes}:{seconds:02} min)"


def _rank_line(old: RankView, new: RankView, elapsed_s: float) -> str:
    cpu = max(0.0, new.cpu_s - old.cpu_s) / elapsed_s * 100
    text = f"rank {new.rank:<4} pid {new.pid:<8} {new.state:<10} {cpu:4.0f} % cpu {new.memory_mb:7.0f} MiB  "
    was, now = old.progress, new.progress
    if was is None or now is None:
        return text + "no collective yet"
    if now.steps:
        text += f"{(now.steps - was.steps) / elapsed_s:.1f} steps/s, step {now.steps}, "
    if now.waiting_for:
        return text + f"waiting for {now.waited_s:.1f} s in {now.waiting_for}"
    return text + f"{(now.collectives - was.collectives) / elapsed_s:.0f} collectives/s, last #{now.collectives}"


def show_stacks(name: str, environ: Mapping[str, str], write: Callable[[str], object]) -> int:
    """Prints the Python stacks of all threads of each rank, also of those that are stuck in native code.

    Args:
        name: The run, or "" for the only one.
        environ: Says where runs lie.
        write: Called with each piece of text.

    Returns:
        The exit code: 1 where a rank did not answer.

    Raises:
        LaunchError: The run is not clear.
    """
    folder = runs_folder(environ)
    run = find_run(name, environ)
    job, run_dir = read_job(folder, run), os.path.join(folder, run)
    missing = 0
    for entry in job["ranks"]:
        state = look(run_dir, entry["rank"], entry["pid"]).state
        write(f"--- rank {entry['rank']} (pid {entry['pid']}, {state}) ---\n")
        text = _stack(os.path.join(run_dir, f"stacks.{entry['rank']}"), entry["pid"], state)
        if text is None:
            missing += 1
            text = "no answer: a stopped or ended process, or no Python that ddprun started\n"
        write(text + ("" if text.endswith("\n") else "\n"))
    return 1 if missing else 0


def _stack(path: str, pid: int, state: str) -> str | None:
    """Asks one rank for its stacks; None without an answer."""
    try:
        size = os.path.getsize(path)
        if state in ("ended", "stopped"):
            return None
        os.kill(pid, signal.SIGURG)
        deadline = time.monotonic() + _STACKS_S
        settled = size
        while time.monotonic() < deadline:
            time.sleep(0.02)
            now = os.path.getsize(path)
            if now > size and now == settled:
                with open(path) as file:
                    file.seek(size)
                    return _tidy(file.read())
            settled = now
    except OSError:
        pass
    return None


def _tidy(text: str) -> str:
    """Leaves out the frames of the bootstrap."""
    return "".join(line for line in text.splitlines(keepends=True) if "/ddpflow/launch/child.py" not in line)


def _listing(runs: list[str]) -> str:
    if not runs:
        return "is no run of yours"
    return f"{'is' if len(runs) == 1 else 'are'} {', '.join(runs)}"
