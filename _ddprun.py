"""The entry point of the program ddprun, outside the package so that starting it imports neither ddpflow nor NumPy.

The launcher needs only the standard library, and waits for processes that import NumPy themselves: importing it here as
well would double the time to start a job. ``python -m ddpflow.launch`` is the same program without this short cut.
"""

import importlib
import importlib.util
import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Runs ddprun; returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the launcher handles it, Ctrl-C ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in ("ddpflow", "ddpflow.comm", "ddpflow.launch"):
        # Packages that can find their modules, and whose own __init__.py, the public face, has not run.
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"{name} is not installed beside {__file__}")
        sys.modules[name] = importlib.util.module_from_spec(spec)
    code: int = importlib.import_module("ddpflow.launch.cli").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
