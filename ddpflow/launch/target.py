"""What ddprun is asked to run, checked before anything starts."""

import importlib.util
import os
import shutil
import sys
import warnings

from ddpflow.errors import LaunchError

__all__ = ["check_target"]


def check_target(kind: str, target: str) -> None:
    """Checks that a script, module or program exists and can be run.

    Args:
        kind: "script", "module" or "command".
        target: Path, name or program.

    Raises:
        LaunchError: It cannot be run; one line that says why.
    """
    if kind == "module":
        _check_module(target)
    elif kind == "command":
        if shutil.which(target) is None:
            raise LaunchError(f"there is no program {target!r}")
    else:
        _check_script(target)


def _check_module(name: str) -> None:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        # Only the first part: finding the others would import their packages into the launcher.
        found = importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        hint = "; without -m it would be taken for a script" if os.path.exists(name) else ""
        raise LaunchError(f"there is no module {name!r}{hint}")


def _check_script(path: str) -> None:
    if os.path.isdir(path):
        if not os.path.isfile(os.path.join(path, "__main__.py")):
            raise LaunchError(f"{path} is a folder without __main__.py")
        return
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        hint = f"; --no-python runs programs, and {path} is one" if os.sep not in path and shutil.which(path) else ""
        raise LaunchError(f"there is no script {path}{hint}") from None
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}") from None
    if data.startswith(b"PK\x03\x04"):
        return
    try:
        with warnings.catch_warnings():
            # The ranks will show these.
            warnings.simplefilter("ignore")
            compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise LaunchError(
            f"{path} is not Python{line}: {getattr(error, 'msg', error)}; --no-python runs other programs"
        ) from None
