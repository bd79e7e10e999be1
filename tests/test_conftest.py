"""The safety net itself: the hang timer, the stray-process check and the seed."""

import mmap
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]


def run_pytest(folder: Path, body: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    """Runs one test file under our conftest.py, with a hang timer of `limit_s` seconds."""
    (folder / "test_it.py").write_text(textwrap.dedent(body))
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    conftest = conftest.replace("TEST_LIMIT_S = 120", f"TEST_LIMIT_S = {limit_s}", 1)
    (folder / "conftest.py").write_text(conftest.replace("CLEANUP_GRACE_S = 5.0", "CLEANUP_GRACE_S = 0.2"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_hang_timer(tmp_path):
    """A test that hangs ends the run, with the stack of every thread on standard error."""
    result = run_pytest(
        tmp_path,
        """
        import threading

        def waits_in_a_thread():
            threading.Event().wait()

        def test_hangs():
            threading.Thread(target=waits_in_a_thread, daemon=True).start()
            threading.Event().wait()
        """,
        limit_s=1,
    )
    assert result.returncode != 0
    assert "waits_in_a_thread" in result.stderr
    assert "test_hangs" in result.stderr


def test_stray_process(tmp_path):
    """A process left running fails the session by name, even when every test passed."""
    result = run_pytest(
        tmp_path,
        """
        import subprocess, sys

        children = []

        def test_leaves_a_child():
            children.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3)  # forgotten"]))
        """,
        limit_s=60,
    )
    assert "1 passed" in result.stdout
    assert "left behind by the tests" in result.stdout
    assert "forgotten" in result.stdout
    assert result.returncode == 1


def test_files_of_killed_mpi_ranks(tmp_path):
    """What MPICH leaves in /dev/shm is removed at the end of the session, but not what a process still maps."""
    left, used = (Path(f"/dev/shm/mpich_shm_test{os.getpid()}_{kind}") for kind in ("left", "used"))
    # Mapped here, in another process than the session's, as by an MPI job that runs beside the suite.
    body = f"""
        from pathlib import Path

        def test_leaves_two_files():
            Path({str(left)!r}).write_bytes(b"left")
            Path({str(used)!r}).write_bytes(b"used")
            Path({str(tmp_path / "written")!r}).touch()
            while not Path({str(tmp_path / "mapped")!r}).exists():
                pass
        """
    found = []

    def map_when_written():
        while not (tmp_path / "written").exists():
            time.sleep(0.01)
        with used.open("r+b") as file:
            found.append(mmap.mmap(file.fileno(), 0))
        (tmp_path / "mapped").touch()

    mapper = threading.Thread(target=map_when_written, daemon=True)
    mapper.start()
    try:
        result = run_pytest(tmp_path, body, limit_s=60)
        assert result.returncode == 0, result.stdout
        assert not left.exists()
        assert used.exists()
    finally:
        left.unlink(missing_ok=True)
        used.unlink(missing_ok=True)
    found[0].close()


def test_fixed_seed():
    """NumPy's global generator starts every test at the same number."""
    first = np.random.rand()
    np.random.seed(20260801)
    assert np.random.rand() == first
