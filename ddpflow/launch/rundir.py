"""The private directory of a run: where ranks publish failures and progress, and ``ddprun --status`` looks."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from typing import Any

from ddpflow.errors import LaunchError

__all__ = ["RunDir", "check_run_id", "live_runs", "read_job", "runs_folder"]

_LOCK_TRIES = 30


def check_run_id(run_id: str) -> str:
    """Returns ``run_id`` if it can name a directory.

    Raises:
        LaunchError: It cannot.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", run_id):
        raise LaunchError(f"run id {run_id!r} must be 1 to 64 letters, digits, '.', '_' or '-'")
    return run_id


def runs_folder(environ: Mapping[str, str]) -> str:
    """Returns the folder of this user's runs, which is short because sockets may lie below it."""
    return os.path.join(environ.get("TMPDIR") or "/tmp", f"ddprun-{os.getuid()}")


class RunDir:
    """A run's directory, readable by its user alone, and locked as long as its launcher lives.

    Args:
        folder: Folder of this user's runs; made if missing.
        run_id: Name of the run.

    Raises:
        LaunchError: The directory cannot be made, or belongs to a run that still lives.
    """

    def __init__(self, folder: str, run_id: str) -> None:
        self.path = os.path.join(folder, check_run_id(run_id))
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.stat(folder, follow_symlinks=False).st_uid != os.getuid():
                raise LaunchError(f"{folder} belongs to another user; set TMPDIR to a folder of your own")
            lock = _make_and_lock(self.path)
        except OSError as error:
            raise LaunchError(f"cannot make the run directory {self.path}: {error.strerror}; set TMPDIR") from None
        if lock is None:
            raise LaunchError(f"a run with the id {run_id!r} is alive on this host; choose another --run-id")
        self._lock = lock
        # What a dead launcher of the same name left must not be taken for news.
        for name in os.listdir(self.path):
            _remove(os.path.join(self.path, name))

    def write_job(self, job: Mapping[str, Any]) -> None:
        """Publishes what the run consists of, atomically."""
        temporary = os.path.join(self.path, ".job.json")
        with open(temporary, "w") as file:
            json.dump(job, file)
        os.replace(temporary, os.path.join(self.path, "job.json"))

    def remove(self) -> None:
        """Removes the directory and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def live_runs(folder: str) -> list[str]:
    """Returns the ids of the runs whose launcher lives, and removes the directories of those whose does not."""
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # Without job.json it may be about to begin.
                if not _try_lock(fd):
                    found.append(name)
                elif os.path.exists(os.path.join(path, "job.json")):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
    return found


def read_job(folder: str, run_id: str) -> dict[str, Any]:
    """Returns what ``RunDir.write_job`` published.

    Raises:
        LaunchError: There is no such run.
    """
    try:
        with open(os.path.join(folder, run_id, "job.json")) as file:
            job: dict[str, Any] = json.load(file)
            return job
    except (OSError, ValueError):
        raise LaunchError(f"there is no run {run_id!r} on this host") from None


def _make_and_lock(path: str) -> int | None:
    """Returns a descriptor of the locked directory, or None where another launcher has it."""
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        # Whoever lists the runs holds each lock for a moment, and may just have removed a dead run of this name.
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _try_lock(fd) and os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
            os.close(fd)
        time.sleep(0.01)
    return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
