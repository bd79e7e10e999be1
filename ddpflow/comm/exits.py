"""How a process that communicates ends: in good order, or by telling its peers why it fails."""

import atexit
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["install"]


class _Exits:
    """The hooks of this process; installed once, never in a forked child's name."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.on_failure: Callable[[BaseException], None] | None = None
        self.after_report: Callable[[], None] | None = None
        self.on_exit: Callable[[], None] | None = None
        self.failed = False
        self.previous: Callable[..., Any] = sys.excepthook

    def excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Tells the peers first, so that they stop at once; then reports as before."""
        ours = os.getpid() == self.pid
        if ours:
            self.failed = True
            if self.on_failure is not None:
                self.on_failure(error)
        self.previous(kind, error, trace)
        sys.stderr.flush()
        if ours and self.after_report is not None:
            self.after_report()

    def at_exit(self) -> None:
        """Leaves in good order; after a failure the peers know already, and nothing waits for them."""
        if os.getpid() == self.pid and not self.failed and self.on_exit is not None:
            self.on_exit()


_exits: _Exits | None = None


def install(
    on_failure: Callable[[BaseException], None], after_report: Callable[[], None], on_exit: Callable[[], None]
) -> None:
    """Arranges for the end of the process; a second call replaces the actions.

    Args:
        on_failure: Called with an uncaught exception of the main thread before it is printed.
        after_report: Called after it was printed.
        on_exit: Called at a normal exit, also by ``sys.exit``.
    """
    global _exits
    if _exits is None or _exits.pid != os.getpid():
        _exits = _Exits()
        sys.excepthook = _exits.excepthook
        atexit.register(_exits.at_exit)
    _exits.on_failure, _exits.after_report, _exits.on_exit = on_failure, after_report, on_exit
