"""`spawn`: a function on several ranks."""

import importlib.util
import os
import subprocess
import sys
import time

import pytest

from ddpflow.errors import LaunchError, RankFailed
from ddpflow.launch import spawn, spawning
from tests.launch.conftest import Starter, all_gone


def place(rank, factor):
    """Tells a rank's place."""
    print("hello from", rank)
    return rank * factor, int(os.environ["WORLD_SIZE"]), os.getpid()


def test_results_in_order_of_rank(capsys):
    """Each rank runs the function in a process of its own; what they print is shown, what they return is returned."""
    results = spawn(place, 3, (10,))
    assert [result[:2] for result in results] == [(0, 3), (10, 3), (20, 3)]
    assert len({os.getpid(), *(result[2] for result in results)}) == 4
    assert sorted(capsys.readouterr().out.splitlines()) == [f"[rank {r}] hello from {r}" for r in range(3)]


def fail(rank):
    """Fails on rank 1 only."""
    if rank == 1:
        raise ValueError("bad batch")


def test_failure_is_raised_with_the_ranks_traceback():
    """The first rank's failure is raised; its traceback starts in the function."""
    with pytest.raises(RankFailed, match="rank 1 raised ValueError: bad batch") as caught:
        spawn(fail, nprocs=2)
    assert (caught.value.rank, caught.value.exitcode, caught.value.signal) == (1, 1, None)
    (note,) = caught.value.__notes__
    assert "in fail" in note and "spawned.py" not in note and "child.py" not in note


def test_arguments_and_flags():
    """Variables, an automatic number of ranks and flags of ddprun are passed on."""
    results = spawn(get_variable, "cpu", env={"MINE": "a=b c"}, flags=["--bind", "cores"])
    assert results == [(rank, "a=b c") for rank in range(len(os.sched_getaffinity(0)))]


def get_variable(rank):
    """Returns the rank and a variable."""
    return rank, os.environ["MINE"]


def test_time_limit():
    """After the time limit the ranks are ended."""
    with pytest.raises(LaunchError, match=r"the time of 0.5 s is over"):
        spawn(sleep_long, 2, timeout_s=0.5)


def sleep_long(rank):
    """Sleeps longer than any test."""
    time.sleep(600)


def test_bad_calls(monkeypatch):
    """A number of ranks that makes no sense, and what cannot be sent, are errors with a remedy."""
    with pytest.raises(LaunchError, match="code 2"):
        spawn(place, 0, (1,))
    monkeypatch.setattr(spawning, "_cloudpickle", lambda: None)
    with pytest.raises(LaunchError, match="define it at the top of a module, or install cloudpickle"):
        spawn(lambda rank: rank, 2)


@pytest.mark.skipif(importlib.util.find_spec("cloudpickle") is None, reason="cloudpickle is not installed")
def test_local_functions_travel_with_cloudpickle():
    """A closure is sent by value."""
    factor = 7
    assert spawn(lambda rank: rank * factor, 2) == [0, 7]


SCRIPT = """
import sys
from ddpflow.launch import spawn
class Pair:
    def __init__(self, *values): self.values = values
def work(rank, pair):
    assert __name__ == "__mp_main__"
    return Pair(rank, *pair.values)
{guard}print([pair.values for pair in spawn(work, 2, (Pair(5, 6),))])
"""


def run_script(ddprun: Starter, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a script that calls spawn, in plain Python."""
    (ddprun.folder / "caller.py").write_text(text)
    return subprocess.run(
        [sys.executable, *(command or ("caller.py",))],
        cwd=ddprun.folder,
        env=ddprun.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", [("caller.py",), ("-m", "caller")])
def test_script_with_a_guard(ddprun: Starter, command):
    """Functions and classes of the script itself travel both ways, run as a file or as a module."""
    result = run_script(ddprun, SCRIPT.format(guard="if __name__ == '__main__': "), *command)
    assert (result.returncode, result.stdout) == (0, "[(0, 5, 6), (1, 5, 6)]\n"), result.stderr


def test_script_without_a_guard(ddprun: Starter):
    """A script that forgets the guard gets one sentence that explains it, and starts no flood of processes."""
    text = SCRIPT.format(guard="").replace(
        "import sys\n", "import os, sys\nprint('imported', os.getpid(), flush=True)\n"
    )
    result = run_script(ddprun, text)
    assert result.returncode == 1
    assert 'put the call under `if __name__ == "__main__":`' in result.stderr
    assert result.stdout.count("imported") <= 3


def test_no_process_survives_the_caller(ddprun: Starter):
    """When the process that called spawn is killed, its ranks end."""
    script = ddprun.folder / "caller.py"
    script.write_text(
        """
import os, time
from ddpflow.launch import spawn
def work(rank):
    with open(f"{rank}.pid", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
if __name__ == "__main__":
    spawn(work, 2)
"""
    )
    launch = ddprun.start(program=(sys.executable, str(script)))
    pids = launch.pids("0.pid", "1.pid")
    launch.process.kill()

    all_gone(pids)
    launch.result()
