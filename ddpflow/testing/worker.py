"""A rank process of a test: gets functions from the test, runs them as one rank of a world, and sends back how it went.

Started by ``ddpflow.testing.processes``, not by users.
"""

import ctypes
import faulthandler
import importlib.util
import os
import pickle
import signal
import socket
import sys
import traceback

from ddpflow.comm.default import abandon_world, destroy_process_group, init_process_group
from ddpflow.comm.failure import FailureRecord
from ddpflow.comm.rendezvous import close_servers
from ddpflow.testing.channel import Channel
from ddpflow.testing.task import Report, Task

__all__ = ["main", "main_connecting"]

_PR_SET_PDEATHSIG = 1


def _load_modules(modules: list[tuple[str, str]]) -> None:
    """Loads the test's module under the name that it has in the test, also where it has no importable name."""
    for name, file in modules:
        if name in sys.modules and name != "__main__":
            continue
        if name != "__main__":
            try:
                importlib.import_module(name)
                continue
            except ImportError:
                pass
        spec = importlib.util.spec_from_file_location("__mp_main__" if name == "__main__" else name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = sys.modules[spec.name] = module
        spec.loader.exec_module(module)


def _run(task: Task) -> Report:
    try:
        try:
            _load_modules(task.modules)
            fn, args = pickle.loads(task.payload)
            if task.init:
                init_process_group(task.backend, timeout=task.timeout_s)
            value = fn(task.rank, *args)
            return Report(value=pickle.dumps(value))
        except BaseException as error:
            abandon_world(error)
            if "DDPFLOW_RUN_DIR" in task.environ:
                FailureRecord.from_exception(task.rank, error).write(task.environ["DDPFLOW_RUN_DIR"])
            raise
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return Report(error=pickle.dumps(error), error_text=text)


def _serve(channel: Channel) -> None:
    while True:
        try:
            task, descriptors = channel.receive()
        except EOFError:
            return
        environ = dict(task.environ)
        if descriptors:
            environ["DDPFLOW_STORE_FD"] = str(descriptors[0])
        os.environ.update(environ)
        channel.send(_run(task))
        # Ends the world only when the test says that all ranks are done, so that a fast rank looks no different from a
        # slow one.
        try:
            channel.receive()
        except EOFError:
            return
        destroy_process_group()
        close_servers()
        for descriptor in descriptors:
            os.close(descriptor)
        for name in environ:
            os.environ.pop(name, None)
        sys.stdout.flush()
        channel.send("idle")


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def main(descriptor: int, parent: int) -> None:
    """Serves the tasks that come over a socket until it is closed; ends with the process ``parent``."""
    _end_with_parent()
    if os.getppid() == parent:
        _serve(Channel(socket.socket(fileno=descriptor)))


def main_connecting(path: str) -> None:
    """Connects to the test's Unix socket, says which process this is, and serves the tasks that come over it."""
    _end_with_parent()
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)
    channel = Channel(end)
    channel.send((int(os.environ["PMI_RANK"]), os.getpid()))
    _serve(channel)
