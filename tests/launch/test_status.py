"""A look at a running job from another shell."""

import os
import re
import signal

import pytest

from tests.launch.conftest import ROOT, Starter

RANKS = f"""
sys.path.insert(0, {str(ROOT)!r})
import threading
from ddpflow.comm.progress import COLLECTIVES, STEPS, Progress
def wait_for_peer():
    put(f"{{RANK}}.pid", os.getpid())
    while True:
        if RANK == 0:
            time.sleep(0.01)
            progress.words[STEPS] += 1
progress = Progress(os.environ["DDPFLOW_RUN_DIR"], RANK)
progress.words[COLLECTIVES] = 41
if RANK == 1:
    progress.waiting("all_reduce #41 (bucket 2: fc.weight)")
wait_for_peer()
"""


@pytest.fixture
def job(ddprun: Starter):
    """Starts a job whose rank 0 steps on, and whose rank 1 spins in a wait."""
    launch = ddprun.start("-n", 2, "--run-id", "look", ddprun.script(RANKS), "--lr", "0.1")
    launch.pids("0.pid", "1.pid")
    yield launch
    launch.kill(signal.SIGTERM)
    assert launch.result().code == 143


def test_status(ddprun: Starter, job):
    """Each rank's state, pace and collective; the run may be left out where there is only one."""
    result = ddprun.start("--status").result()
    assert result.code == 0, result.err
    heading, *lines = result.out.splitlines()
    assert re.fullmatch(r"run look: .*script.py --lr 0.1 \(2 ranks, \d:\d\d min\)", heading)
    pids = [int((ddprun.folder / f"{rank}.pid").read_text()) for rank in (0, 1)]
    assert re.match(rf"rank 0 +pid {pids[0]} .* steps/s, step \d+, .*last #41", lines[0])
    assert re.match(
        rf"rank 1 +pid {pids[1]} +running .*waiting for [\d.]+ s in all_reduce #41 \(bucket 2: fc.weight\)", lines[1]
    )
    assert float(re.search(r"([\d.]+) steps/s", lines[0])[1]) > 0


def test_stacks(ddprun: Starter, job):
    """The Python stack of each rank as it is now, again and again, without the launcher's own frames."""
    for _ in range(2):
        result = ddprun.start("--stacks", "look").result()
        assert result.code == 0, result.err
        parts = re.split(r"--- rank (\d) \(pid \d+, \w+\) ---\n", result.out)[1:]
        assert parts[0::2] == ["0", "1"]
        for text in parts[1::2]:
            assert text.count("in wait_for_peer") == 1 and "script.py" in text
        assert "child.py" not in result.out


def test_stopped_rank_has_no_stack(ddprun: Starter, job):
    """A rank that cannot answer is said so, the others answer, and the exit code is 1."""
    pid = int((ddprun.folder / "1.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    result = ddprun.start("--stacks", "look").result()
    assert result.code == 1
    assert "in wait_for_peer" in result.out and f"--- rank 1 (pid {pid}, stopped) ---\nno answer" in result.out
