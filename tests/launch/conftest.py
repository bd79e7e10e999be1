"""Starting ddprun in tests: on small scripts of the standard library, always under a deadline."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The same program as the console script, which need not be on the path.
PROGRAM = (sys.executable, "-c", "import sys, _ddprun; sys.exit(_ddprun.main())")
LIMIT_S = 60.0


@dataclass
class Result:
    """How a call of ddprun ended."""

    code: int
    out: str
    err: str


def _heed_signals() -> None:
    """Undoes what nohup, or a shell that put the tests in the background, has told its children to ignore."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Launch:
    """A ddprun that runs while the test goes on."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self.folder = process, folder

    @property
    def pid(self) -> int:
        """Process id of the launcher."""
        return self.process.pid

    def kill(self, number: int = signal.SIGTERM) -> None:
        """Sends the launcher a signal."""
        self.process.send_signal(number)

    def result(self, limit_s: float = LIMIT_S) -> Result:
        """Waits for the end."""
        try:
            out, err = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            pytest.fail(f"ddprun did not end\n{out.decode()}\n{err.decode()}")
        # Text as it is, without universal newlines: bytes that are no UTF-8 survive.
        return Result(self.process.returncode, *((text or b"").decode(errors="surrogateescape") for text in (out, err)))

    def stop_reading(self) -> None:
        """Closes the pipe that the launcher writes its standard output to."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stdout = None

    def wait_for_files(self, *names: str) -> list[Path]:
        """Waits until ranks have written these files into the test's folder, and are not merely about to."""
        paths = [self.folder / name for name in names]
        wait_until(
            lambda: all(path.is_file() and path.stat().st_size for path in paths) or self.process.poll() is not None
        )
        assert self.process.poll() is None, self.result()
        return paths

    def pids(self, *names: str) -> list[int]:
        """Waits for files and returns the process ids in them."""
        return [int(path.read_text()) for path in self.wait_for_files(*names)]


def wait_until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_gone(pids: list[int]) -> None:
    """Waits until none of the processes runs."""
    wait_until(lambda: not any(map(is_alive, pids)), 10)


# What most scripts need. `put` writes a file at once or not at all; `linger` waits for another rank's failure, as a
# collective would, and then leaves, which is quicker than being ended.
PRELUDE = """
import os, signal, subprocess, sys, time
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def put(name, text):
    with open(name + ".new", "w") as file:
        file.write(str(text))
    os.rename(name + ".new", name)
def linger():
    while not any(name.startswith("failed.") for name in os.listdir(os.environ["DDPFLOW_RUN_DIR"])):
        time.sleep(0.01)
    sys.exit(0)
"""


class Starter:
    """Starts ddprun on scripts, in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launches: list[Launch] = []
        (folder / "tmp").mkdir()
        self.environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DDPRUN_", "DDPFLOW_STORE", "OMP_"))
        }
        self.environ |= {"TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}

    def script(self, body: str, name: str = "script.py") -> Path:
        """Writes a script and returns its path."""
        path = self.folder / name
        path.write_text(PRELUDE + textwrap.dedent(body))
        return path

    def start(
        self,
        *arguments: object,
        program: tuple[str, ...] = PROGRAM,
        env: dict[str, str] | None = None,
        **options: object,
    ) -> Launch:
        """Starts ddprun with these arguments."""
        process = subprocess.Popen(
            [*program, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            cwd=self.folder,
            env=self.environ | (env or {}),
            **{"preexec_fn": _heed_signals, **options},
        )
        launch = Launch(process, self.folder)
        self.launches.append(launch)
        return launch

    def run(
        self, body: str, *flags: object, arguments: tuple[object, ...] = (), env: dict[str, str] | None = None
    ) -> Result:
        """Writes a script, runs ddprun on it and waits for the end."""
        return self.start(*flags, self.script(body), *arguments, env=env).result()

    def run_folders(self) -> list[str]:
        """Returns what is left of run directories."""
        return [str(path) for path in (self.folder / "tmp").glob("ddprun-*/*")]


@pytest.fixture
def ddprun(tmp_path: Path) -> Iterator[Starter]:
    """Returns what starts ddprun; afterwards no launcher and no run directory is left."""
    starter = Starter(tmp_path)
    yield starter
    for launch in starter.launches:
        if launch.process.poll() is None:
            launch.process.kill()
            launch.process.communicate()
    wait_until(lambda: not starter.run_folders(), 10)
