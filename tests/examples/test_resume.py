"""The example that survives: two deaths change no bit, and a signal stops all ranks at one step."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "resume.py"
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
DDPRUN = [sys.executable, "-m", "ddpflow.launch", "-n", "2", "--max-restarts", "2", str(SCRIPT)]


def _run(folder, *flags):
    done = subprocess.run(
        [*DDPRUN, "--folder", str(folder), *flags], env=ENVIRON, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _weights(text):
    (found,) = re.findall(r"24 steps, weights ([0-9a-f]{16})", text)
    return found


def test_two_deaths_change_no_bit(tmp_path):
    """Rank 1 is killed in two attempts, in the middle of a pass; the third ends with the undisturbed run's weights."""
    undisturbed = _run(tmp_path / "a")
    disturbed = _run(tmp_path / "b", "--crash-at", "7,19")
    assert re.findall(r"attempt (\d) starts after step (\d+)", disturbed) == [("0", "0"), ("1", "5"), ("2", "15")]
    assert _weights(disturbed) == _weights(undisturbed)
    assert len(list((tmp_path / "b").iterdir())) == 2


def test_a_signal_stops_all_ranks_at_one_step(tmp_path):
    """SIGUSR1, and SIGTERM, to ddprun: both ranks save and stop at the same step, and a new run goes on from there."""
    for number in (signal.SIGUSR1, signal.SIGTERM):
        folder = tmp_path / signal.Signals(number).name
        process = subprocess.Popen(
            [*DDPRUN, "--folder", str(folder), "--epochs", "100000"],
            env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            lines = [process.stdout.readline()]
            while not list(folder.glob("*.ckpt")):
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
            process.wait()
        stopped = re.findall(r"rank (\d) stops after step (\d+)", out)
        assert {rank for rank, _ in stopped} == {"0", "1"}, (lines, out, err)
        assert len({step for _, step in stopped}) == 1
        assert (folder / f"step-{int(stopped[0][1]):010d}.ckpt").exists()
        assert process.returncode == 0
        again = _run(folder, "--epochs", "1")
        assert f"starts after step {stopped[0][1]}" in again
