"""The first code that runs in each rank: ties the process to the launcher, then becomes the user's script.

Run by path (``python .../child.py ...``), so that neither ddpflow nor NumPy is imported before the script does so.

    child.py [options] script FILE ARGS...      run a script as ``__main__``
    child.py [options] module NAME ARGS...      run a module as ``python -m`` does
    child.py [options] command PROGRAM ARGS...  become another program

Options: ``--parent PID`` (end when that process does), ``--cores 0,1`` (run only on these), ``--quiet 1`` (leave the
traceback of an uncaught exception to the launcher's report).
"""

import ctypes
import faulthandler
import importlib
import importlib.machinery
import io
import os
import runpy
import signal
import sys
from collections.abc import Callable
from types import ModuleType, TracebackType

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Runs what ``argv`` says, in this process."""
    options: dict[str, str] = {}
    while argv[0].startswith("--"):
        options[argv[0]] = argv[1]
        argv = argv[2:]
    kind, target, arguments = argv[0], argv[1], argv[2:]
    if "--parent" in options:
        _die_with(int(options["--parent"]))
    if "--cores" in options:
        os.sched_setaffinity(0, [int(core) for core in options["--cores"].split(",")])
    if kind == "command":
        _become(target, arguments)
    store_fd = os.environ.get("DDPFLOW_STORE_FD")
    if store_fd:
        # The script's own children must not hold the job's port.
        os.set_inheritable(int(store_fd), False)
    faulthandler.enable()
    _answer_stack_requests()
    # Into a pipe, Python would otherwise hold lines back until a block is full.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv[:] = [target, *arguments]
    # A namespace of its own for the script: this file's functions go on using theirs.
    sys.modules["__main__"] = ModuleType("__main__")
    _run(_run_script if kind == "script" else _run_module, target, "--quiet" in options)


def _die_with(parent: int) -> None:
    """Asks the kernel to kill this process when its launcher ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _become(program: str, arguments: list[str]) -> None:
    """Replaces this process by another program."""
    # Python ignores these two, and a program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(program, [program, *arguments])
    except OSError as error:
        sys.stderr.write(f"ddprun: cannot run {program}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _answer_stack_requests() -> None:
    """Writes the stacks of all threads to the run directory on SIGURG, which is harmless where nobody listens."""
    folder, rank = os.environ.get("DDPFLOW_RUN_DIR"), os.environ.get("RANK")
    if folder and rank and hasattr(faulthandler, "register"):
        # Open as long as the process lives.
        fd = os.open(
            os.path.join(folder, f"stacks.{rank}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        faulthandler.register(signal.SIGURG, file=fd, all_threads=True)


def _run_script(path: str) -> None:
    if os.path.isdir(path) or _is_archive(path):
        if not sys.flags.safe_path:
            del sys.path[0]
        runpy.run_path(path, run_name="__main__")
        return
    full = os.path.abspath(path)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    namespace = sys.modules["__main__"].__dict__
    loader = importlib.machinery.SourceFileLoader("__main__", full)
    namespace.update(__file__=full, __cached__=None, __loader__=loader, __builtins__=__builtins__)
    with io.open_code(full) as file:
        code = compile(file.read(), full, "exec", dont_inherit=True)
    exec(code, namespace)


def _is_archive(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _run_module(name: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _run(body: Callable[[str], None], target: str, quiet: bool) -> None:
    """Runs the script; an uncaught exception is published for the other ranks before anything else happens."""
    pid = os.getpid()
    reported: set[int] = set()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Prints what the launcher's report will not have; hooks set later, of ddpflow or the user, come before it."""
        if id(error) not in reported:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = hook
    try:
        body(target)
    except SystemExit as error:
        if error.code not in (None, 0) and os.getpid() == pid:
            # With a text instead of a number, Python prints it and exits with 1; how it came to that is no news.
            error.__traceback__, error.__suppress_context__ = None, True
            _publish(None, error.code) if isinstance(error.code, int) else _publish(error, 1)
        raise
    except BaseException as error:
        error.__traceback__ = _user_part(error.__traceback__)
        # What Python does for an uncaught exception.
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        if isinstance(error, KeyboardInterrupt):
            _tell_where_interrupted(error.__traceback__)
            sys.exit(128 + signal.SIGINT)
        if os.getpid() == pid and _publish(error, 1) and quiet:
            reported.add(id(error))
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def _user_part(traceback: TracebackType | None) -> TracebackType | None:
    """Returns the traceback without the frames of the launcher's files and of runpy."""
    own = (os.path.dirname(os.path.abspath(__file__)) + os.sep, runpy.__file__, "<frozen runpy>")
    while traceback and traceback.tb_frame.f_code.co_filename.startswith(own):
        traceback = traceback.tb_next
    return traceback


def _tell_where_interrupted(traceback: TracebackType | None) -> None:
    """Prints one line instead of a traceback from every rank: Ctrl-C reaches them all."""
    while traceback and traceback.tb_next:
        traceback = traceback.tb_next
    if traceback:
        code = traceback.tb_frame.f_code
        sys.stderr.write(f"KeyboardInterrupt in {code.co_name}, {code.co_filename}:{traceback.tb_lineno}\n")


def _publish(error: BaseException | None, exitcode: int) -> bool:
    """Writes this rank's failure record into the run directory; returns whether that worked."""
    folder = os.environ.get("DDPFLOW_RUN_DIR")
    if not folder:
        return False
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name, path in (("ddpflow", package), ("ddpflow.comm", os.path.join(package, "comm"))):
        if name not in sys.modules:
            # The script may have failed before it imported ddpflow, or because it could not.
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = [path]
    record = importlib.import_module("ddpflow.comm.failure").FailureRecord
    rank, node = int(os.environ["RANK"]), int(os.environ["GROUP_RANK"])
    made = (
        record.from_exception(rank, error, node)
        if error is not None
        else record(rank, node, os.getpid(), exitcode=exitcode)
    )
    return bool(made.write(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
