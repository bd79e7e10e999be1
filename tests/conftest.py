"""What every test gets: a fixed seed, a hang timer, a device, and a check that the session leaves nothing behind."""

import contextlib
import faulthandler
import importlib.util
import os
import random
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ddpflow.random import manual_seed
from ddpflow.testing.workers import end_idle_workers

TEST_LIMIT_S = 120
SLOW_TEST_LIMIT_S = 600
CLEANUP_GRACE_S = 5.0
# Every process that the suite starts, directly or not, inherits this variable and so can be found again.
SESSION_VARIABLE = "DDPFLOW_TEST_SESSION"
SEED = 20260801

_stderr_fd = pytest.StashKey[int]()
_shm_before = pytest.StashKey[set[str]]()
_mpich_before = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps a copy of the real standard error, which output capture is about to replace, for the hang timer."""
    config.stash[_stderr_fd] = os.dup(sys.stderr.fileno())
    config.stash[_shm_before] = shared_memory_files("ddpflow*")
    config.stash[_mpich_before] = shared_memory_files("mpich_shm_*")
    os.environ[SESSION_VARIABLE] = uuid.uuid4().hex


def pytest_unconfigure(config: pytest.Config) -> None:
    """Closes the copy of standard error."""
    os.close(config.stash[_stderr_fd])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends the run with every thread's stack when one test hangs; no test may outlive this timer."""
    limit_s = SLOW_TEST_LIMIT_S if item.get_closest_marker("slow") else TEST_LIMIT_S
    faulthandler.dump_traceback_later(limit_s, exit=True, file=item.config.stash[_stderr_fd])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what this machine cannot run, and says what is missing."""
    if item.get_closest_marker("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed here; `make parity` makes an environment that has it")
    if item.get_closest_marker("gpu") and (reason := why_no_cuda()):
        pytest.skip(reason)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the session when a process that it started still runs, or a shared-memory file of ours still exists."""
    end_idle_workers()
    deadline = time.monotonic() + CLEANUP_GRACE_S
    while True:
        left = stray_processes() + sorted(shared_memory_files("ddpflow*") - session.config.stash[_shm_before])
        if not left:
            remove_unused(shared_memory_files("mpich_shm_*") - session.config.stash[_mpich_before])
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.section("left behind by the tests", red=True)
        for line in left:
            reporter.line(line)
    session.exitstatus = pytest.ExitCode.TESTS_FAILED


def shared_memory_files(pattern: str) -> set[str]:
    """Returns the paths of the files in /dev/shm whose names match."""
    return {str(path) for path in Path("/dev/shm").glob(pattern)}


def remove_unused(paths: set[str]) -> None:
    """Removes those of our files that no process of ours maps: MPICH leaves its own behind when ranks are killed."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps") if paths else ():
        with contextlib.suppress(OSError):  # another user's process, or one that has just ended
            used.update(path for path in paths if path in maps.read_text())
    for path in paths - used:
        with contextlib.suppress(OSError):  # another user's file, or gone already
            os.unlink(path)


def stray_processes() -> list[str]:
    """Returns "pid: command line" for each living process that carries this session's variable, but this one."""
    mark = f"{SESSION_VARIABLE}={os.environ[SESSION_VARIABLE]}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # another user's process, or one that has just ended
            continue
        # Python's own helper of multiprocessing lives as long as the interpreter that started it.
        if command and "multiprocessing.resource_tracker" not in command:
            found.append(f"{folder.name}: {command}")
    return found


def why_no_cuda() -> str | None:
    """Returns why tests on a GPU cannot run here, or None if they can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    import cupy

    try:
        return None if cupy.cuda.runtime.getDeviceCount() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device: {error}"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Returns the name of a device; a test that takes it runs once for each."""
    return request.param


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Starts every test from the same random numbers, whatever ran before it."""
    random.seed(SEED)
    np.random.seed(SEED)
    manual_seed(SEED)
