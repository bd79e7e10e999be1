"""Processes that outlive their rank: finding them and ending them, whatever they did to get away."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Container

__all__ = ["become_subreaper", "describe_process", "end_strays", "orphans", "processes_of_run", "reap_orphans"]

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Makes processes whose parent dies below this one our children, instead of init's. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def orphans(known: Container[int]) -> list[int]:
    """Returns the children of this process that it did not start itself: what ranks have left behind."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [pid for pid in map(int, file.read().split()) if pid not in known]
    except OSError:
        return []


def reap_orphans(known: Container[int]) -> list[int]:
    """Collects those that have ended; returns the living."""
    living = []
    for pid in orphans(known):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                living.append(pid)
    return living


def processes_of_run(run_id: str) -> list[int]:
    """Returns the processes, except this one, that carry a run's id in the environment they were started with."""
    mark = f"DDPFLOW_RUN_ID={run_id}".encode()
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(entry))
    return found


def end_strays(
    run_id: str, known: Container[int], patience_s: float, wait: Callable[[float], None] = time.sleep
) -> list[str]:
    """Ends what ranks have left running: waits, asks (SIGTERM), then kills.

    Args:
        run_id: Id of the run whose processes are meant.
        known: Children of this process that are none of them.
        patience_s: How long they get to end by themselves, and again to obey SIGTERM.
        wait: Called with the seconds between two looks.

    Returns:
        What had to be ended, as text.
    """
    ended: dict[int, str] = {}
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience_s
        signalled: set[int] = set()
        while reap_orphans(known):
            if number is not None:
                # Until there is no new one: a dying process may have started another.
                for pid in processes_of_run(run_id) or reap_orphans(known):
                    if pid not in signalled and pid not in known:
                        ended.setdefault(pid, describe_process(pid))
                        signalled.add(pid)
                        with contextlib.suppress(OSError):
                            os.kill(pid, number)
                            os.kill(pid, signal.SIGCONT)
            if time.monotonic() > deadline:
                break
            wait(0.02)
        else:
            break
    return list(ended.values())


def describe_process(pid: int) -> str:
    """Returns "pid 123 (sleep 60)"."""
    command = ""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        command = file.read(100).replace(b"\0", b" ").decode(errors="replace").strip()
    return f"pid {pid} ({command})" if command else f"pid {pid}"
