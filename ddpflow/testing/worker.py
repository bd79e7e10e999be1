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
from dataclasses import dataclass
from typing import Any

from ddpflow.comm.default import abandon_world, destroy_process_group, init_process_group
from ddpflow.comm.failure import FailureRecord
from ddpflow.comm.rendezvous import close_servers
from ddpflow.testing.channel import Channel

__all__ = ["Report", "Task", "main"]

_PR_SET_PDEATHSIG = 1


@dataclass
class Task:
    """What a worker shall do.

    Attributes:
        rank: Its rank.
        environ: Launcher variables of the world.
        modules: Names and files of the modules that ``payload`` refers to, for those that cannot be imported by name.
        payload: The pickled function and its arguments.
        backend: Argument of ``init_process_group``.
        timeout_s: Its deadline.
        init: Whether to call it.
    """

    rank: int
    environ: dict[str, str]
    modules: list[tuple[str, str]]
    payload: bytes
    backend: str
    timeout_s: float
    init: bool


@dataclass
class Report:
    """How a task ended: pickled value or exception, and the traceback as text."""

    value: bytes | None = None
    error: bytes | None = None
    error_text: str = ""


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
        sys.modules[name] = module
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


def main(argv: list[str]) -> Any:
    """Serves tasks that come over the socket with the number ``argv[1]`` until it is closed."""
    parent = int(argv[2])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    sys.path[:] = argv[3].split(os.pathsep)
    _serve(Channel(socket.socket(fileno=int(argv[1]))))


if __name__ == "__main__":
    main(sys.argv)
