"""The rank process: finding the test's module, and ending with its parent."""

import os
import select
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import ddpflow.comm as dist
from ddpflow.testing import run_ranks

class Result:
    pass

def make(rank):
    result = Result()
    result.rank = rank
    return result

if GUARD:
    print([r.rank for r in run_ranks(make, 2, "shm")])
"""


def run_script(path: Path, guard: str) -> subprocess.CompletedProcess[str]:
    """Runs a script that calls run_ranks with a function and a class of its own."""
    (path / "script.py").write_text(SCRIPT.replace("GUARD", guard))
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "script.py"], cwd=path, env=environ, capture_output=True, text=True, timeout=60
    )


def test_a_script_of_its_own(tmp_path):
    """Functions and classes of the main script work in the ranks, and their objects come back."""
    done = run_script(tmp_path, "__name__ == '__main__'")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1]\n", "")


def test_a_script_without_guard(tmp_path):
    """Without the guard there is one clear error instead of processes that start processes."""
    done = run_script(tmp_path, "True")
    assert done.returncode == 1
    assert "put the call of run_ranks under if __name__ == '__main__'" in done.stderr


ORPHAN = """
import os
from ddpflow.testing import run_ranks
from ddpflow.testing.workers import _idle

run_ranks(max_of, 2, "shm")
print(*[worker.pid for worker in _idle], flush=True)
os.kill(os.getpid(), 9)
"""


def test_no_orphans(tmp_path):
    """Ranks end with the test's process, even if that is killed."""
    program = "import functools\nmax_of = functools.partial(max, 5)\n" + ORPHAN
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr
    for pid in map(int, done.stdout.split()):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        # Readable once the process has ended.
        ready, _, _ = select.select([fd], [], [], 10)
        os.close(fd)
        assert ready
