"""The report on a failed run: the root cause first, the rest in a line, nothing about the launcher itself."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict

from ddpflow.comm.failure import FailureRecord, describe_exit
from ddpflow.launch.gang import Outcome

__all__ = ["exit_code", "failure_report", "rank_list", "write_json"]

_STDERR_LINES = 20
_HINTS = {
    signal.SIGKILL: "out of memory, perhaps: `dmesg` or the cgroup's memory.events would say so",
    signal.SIGBUS: "a full /dev/shm or disk behind a mapped file, perhaps",
    signal.SIGSEGV: "a crash in native code: its Python stack is on the rank's stderr",
    signal.SIGABRT: "native code gave up: its message is on the rank's stderr",
    signal.SIGTERM: "somebody outside this run ended it: a batch system, perhaps",
    signal.SIGILL: "native code built for another processor, perhaps",
    signal.SIGFPE: "an integer division by zero in native code",
    signal.SIGXCPU: "the CPU time limit (ulimit -t)",
    signal.SIGPIPE: "it wrote to a pipe that nobody reads",
}


def exit_code(record: FailureRecord) -> int:
    """Returns the launcher's exit code for a root cause: the rank's own, or 128 + the signal's number."""
    if record.signal:
        return 128 + record.signal
    return (record.exitcode or 1) & 0xFF or 1


def failure_report(
    outcome: Outcome, local: Iterable[int], with_details: bool = True, log_dir: str | None = None
) -> str:
    """Returns the report, a few lines.

    Args:
        outcome: What happened.
        local: The ranks of this host; a root cause elsewhere is reported in full there.
        with_details: Whether to add the traceback and the last lines of stderr.
        log_dir: Folder with the full output, if there is one.
    """
    root = outcome.root
    if root is None:
        return ""
    lines = [_headline(root)]
    if root.rank in set(local) and with_details:
        if root.traceback:
            lines += ["  " + line for line in root.traceback.rstrip("\n").split("\n")]
        if recent := _last_lines(_without_traceback(outcome.recent.get(root.rank, b""), root.traceback)):
            lines.append(f"  last lines of rank {root.rank}'s stderr:")
            lines += ["    " + line for line in recent]
    lines += ["  " + line for line in _others(outcome, root)]
    if outcome.stuck:
        lines.append(f"  cannot be killed, stuck in the kernel: pid {', '.join(map(str, outcome.stuck))}")
    if log_dir:
        lines.append(f"  full output: {log_dir}")
    return "".join(f"ddprun: {line}\n" if i == 0 else f"{line}\n" for i, line in enumerate(lines))


def _without_traceback(stderr: bytes, traceback: str) -> bytes:
    """The stderr of a rank without the traceback at its end, which the report shows already."""
    shown = traceback.strip().encode()
    stripped = stderr.rstrip()
    return stripped[: -len(shown)] if shown and stripped.endswith(shown) else stderr


def _headline(root: FailureRecord) -> str:
    where = f"node {root.node}, pid {root.pid}, {time.strftime('%H:%M:%S', time.localtime(root.time))}"
    if root.type:
        return f"rank {root.rank} failed first ({where}): {root.type}: {_one_line(root.message)}"
    hint = _HINTS.get(signal.Signals(root.signal)) if root.signal in set(signal.Signals) else None
    end = describe_exit(root.exitcode, root.signal) + (f" ({hint})" if hint else "")
    return f"rank {root.rank} failed first ({where}): it {end}"


def _others(outcome: Outcome, root: FailureRecord) -> list[str]:
    """Folds the other failures: one line for each kind, then one for the ranks that were ended."""
    kinds: dict[str, list[int]] = {}
    for record in outcome.records:
        if record.rank != root.rank:
            what = (
                f"raised {record.type}: {_one_line(record.message)}"
                if record.type
                else describe_exit(record.exitcode, record.signal)
            )
            # Texts that differ only in the name of their own rank say the same.
            kinds.setdefault(what.replace(f": rank {record.rank}: ", ": ", 1), []).append(record.rank)
    lines = [f"then {_agree(ranks, what)}" for what, ranks in kinds.items()]
    if outcome.ended:
        lines.append(f"then {_agree(outcome.ended, 'was ended by ddprun')}")
    return lines


def _agree(ranks: list[int], what: str) -> str:
    """Returns "rank 3 was killed" or "ranks 3, 5 were killed"."""
    return f"{rank_list(ranks)} {'were' + what[3:] if len(ranks) > 1 and what.startswith('was ') else what}"


def rank_list(ranks: Iterable[int]) -> str:
    """Returns "rank 3" or "ranks 0, 2-5"."""
    ordered = sorted(ranks)
    parts: list[list[int]] = []
    for rank in ordered:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    text = ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
    return f"rank{'s' if len(ordered) > 1 else ''} {text}"


def write_json(path: str, outcome: Outcome, run_id: str) -> None:
    """Writes the report for programs to read."""
    root = outcome.root
    content = {
        "run_id": run_id,
        "host": socket.gethostname(),
        "exit_code": 0 if root is None else exit_code(root),
        "root_cause": None
        if root is None
        else {**asdict(root), "stderr": _last_lines(outcome.recent.get(root.rank, b"")), "summary": root.summary()},
        "others": [asdict(record) for record in outcome.records if root is None or record.rank != root.rank],
        "ended_by_ddprun": outcome.ended,
    }
    temporary = path + ".tmp"
    with open(temporary, "w") as file:
        json.dump(content, file, indent=1)
    os.replace(temporary, path)


def _last_lines(data: bytes) -> list[str]:
    lines = data.decode(errors="replace").rstrip("\n").split("\n")
    # Of a progress bar, only its last state.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines[-_STDERR_LINES:]]
    return [] if lines == [""] else lines


def _one_line(text: str) -> str:
    first, newline, _ = text.partition("\n")
    return first + (" ..." if newline else "")
