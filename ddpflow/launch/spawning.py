"""``spawn``: runs a function on several ranks from a notebook, a test or a script, and returns what they return."""

import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TextIO

from ddpflow.errors import LaunchError, RankFailed

__all__ = ["importing_main", "spawn"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_PROGRAM = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "_ddprun.py")
_BOOTSTRAP, _RANK = os.path.join(_HERE, "child.py"), os.path.join(_HERE, "spawned.py")
# Not empty in a rank while it imports the script that called spawn.
_importing: list[bool] = []


def spawn(
    fn: Callable[..., Any],
    nprocs: int | str = "auto",
    args: Sequence[Any] = (),
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    flags: Sequence[str] = (),
) -> list[Any]:
    """Runs ``fn(rank, *args)`` on ``nprocs`` ranks under ddprun, and returns their results in order of rank.

    Each rank is a fresh interpreter; function, arguments and results travel as pickles. Functions that are defined in a
    notebook, and lambdas, need the package ``cloudpickle``. In a script, call it under ``if __name__ == "__main__":``,
    because every rank imports the script.

    Args:
        fn: Function to run; its first argument is the rank.
        nprocs: Number of ranks, or "auto": one for each GPU, or each core.
        args: Further arguments.
        env: Variables for the ranks.
        timeout_s: The ranks are ended after this many seconds.
        flags: Further flags of ddprun, such as ``["--bind", "cores"]``.

    Raises:
        RankFailed: A rank failed; the error names the first, and has its traceback.
        LaunchError: The function cannot be sent, or the ranks cannot be started, or the time is over.

    Example:
        >>> from ddpflow.launch import spawn
        >>> spawn(pow, nprocs=2, args=(3,))
        [0, 1]
    """
    if _importing:
        raise LaunchError(
            'spawn() was called while a rank imported the script: put the call under `if __name__ == "__main__":`, '
            "because every rank imports the script to find the function"
        )
    with tempfile.TemporaryDirectory(prefix="ddpflow-spawn-") as folder:
        with open(os.path.join(folder, "call"), "wb") as file:
            file.write(_pack(fn, tuple(args)))
        report = os.path.join(folder, "report")
        command = [sys.executable, _BOOTSTRAP, "--parent", str(os.getpid()), "command", sys.executable, _PROGRAM]
        command += ["--nproc-per-node", str(nprocs), "--standalone", "--report", report, *flags]
        for name, value in (env or {}).items():
            command += ["--env", f"{name}={value}"]
        code = _run([*command, _RANK, folder], timeout_s)
        if code:
            raise _failure(code, report)
        return _results(folder)


@contextlib.contextmanager
def importing_main() -> Iterator[None]:
    """Says that what runs inside is the import of the caller's script in a rank, in which ``spawn`` is a mistake."""
    _importing.append(True)
    try:
        yield
    finally:
        _importing.pop()


def _pack(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Pickles the call, with what a rank must know to unpickle it: the path, and where ``__main__`` comes from."""
    main = sys.modules["__main__"]
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None) or ""
    can_be_imported = spec is not None or os.path.isfile(path)
    try:
        if not can_be_imported and getattr(fn, "__module__", None) == "__main__":
            raise pickle.PicklingError("it is defined in a notebook or at a prompt")
        call = pickle.dumps((fn, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        cloudpickle = _cloudpickle()
        if cloudpickle is None:
            raise LaunchError(
                f"spawn cannot send {getattr(fn, '__qualname__', fn)!r} and its arguments to the ranks ({error}): "
                "define it at the top of a module, or install cloudpickle"
            ) from None
        call = cloudpickle.dumps((fn, args))
    where: dict[str, Any] = {"path": sys.path, "module": None, "file": None}
    # Only a call that names something in the script makes ranks import the script.
    if b"__main__" in call and can_be_imported:
        where |= {"module": spec.name} if spec is not None else {"file": os.path.abspath(path)}
    return pickle.dumps((where, call))


def _cloudpickle() -> ModuleType | None:
    return importlib.import_module("cloudpickle") if importlib.util.find_spec("cloudpickle") else None


def _run(command: list[str], timeout_s: float | None) -> int:
    """Runs the launcher with its output on ours, whatever ours is (a notebook's cell, a test's capture)."""
    # A group of its own: a terminal's Ctrl-C would otherwise reach it twice, from the terminal and from us.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
    )
    assert process.stdout is not None and process.stderr is not None
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with process, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, sys.stdout)
        selector.register(process.stderr, selectors.EVENT_READ, sys.stderr)
        while selector.get_map():
            try:
                for key, _ in selector.select(None if deadline is None else max(0.0, deadline - time.monotonic())):
                    _copy(key, selector)
                if deadline is not None and time.monotonic() >= deadline:
                    process.send_signal(signal.SIGTERM)
                    process.wait()
                    raise LaunchError(f"the ranks were ended: the time of {timeout_s:g} s is over")
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                raise
    return process.returncode


def _copy(key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
    data = os.read(key.fd, 1 << 16)
    if not data:
        selector.unregister(key.fileobj)
        return
    stream: TextIO = key.data
    stream.write(data.decode(errors="replace"))
    stream.flush()


def _failure(code: int, report: str) -> LaunchError:
    try:
        with open(report) as file:
            root = json.load(file)["root_cause"]
    except OSError:
        root = None
    if root is None:
        return LaunchError(f"ddprun ended with code {code}; what it printed says why")
    error = RankFailed(root["summary"], rank=root["rank"], exitcode=root["exitcode"], signal=root["signal"])
    if root["traceback"]:
        error.add_note(f"Traceback of rank {root['rank']}:\n{root['traceback']}")
    return error


def _results(folder: str) -> list[Any]:
    # What the script defines has this name in the ranks.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    results = []
    for rank in range(sum(name.startswith("result.") for name in os.listdir(folder))):
        with open(os.path.join(folder, f"result.{rank}"), "rb") as file:
            results.append(pickle.load(file))
    return results
