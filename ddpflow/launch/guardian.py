"""A second process that outlives the launcher by a moment: if the launcher is killed, it ends what the ranks started.

The ranks themselves die with the launcher (see ``child``); their children, in sessions of their own perhaps, do not.
"""

import contextlib
import os
import shutil
import signal
import time

from ddpflow.launch.processes import processes_of_run

__all__ = ["Guardian"]

_PATIENCE_S = 2.0


class Guardian:
    """Starts the process. It must be made while the launcher has one thread, and before the ranks."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._writer)
                # Away from the terminal: Ctrl-C and hang-ups are the launcher's business.
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                _watch(reader)
            finally:
                os._exit(0)
        os.close(reader)

    def tell(self, run_id: str, run_dir: str) -> None:
        """Names the run that now has to be ended, and its directory, if the launcher dies."""
        with contextlib.suppress(OSError):
            os.write(self._writer, f"{run_id}\t{run_dir}\n".encode())

    def dismiss(self) -> None:
        """Ends the process: nothing is left to guard."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\t\n")
        os.close(self._writer)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _watch(reader: int) -> None:
    """Reads what the launcher says until it is gone, then cleans up the run it named last."""
    text = b""
    while piece := os.read(reader, 4096):
        text = (text + piece)[-8192:]
    run_id, _, run_dir = text.decode().splitlines()[-1].partition("\t") if text else ("", "", "")
    if not run_id:
        return
    deadline = time.monotonic() + _PATIENCE_S
    while (pids := processes_of_run(run_id)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(run_dir, ignore_errors=True)
