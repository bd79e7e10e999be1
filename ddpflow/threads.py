"""How many threads NumPy's matrix products use: asked of, and told to, the OpenBLAS library that NumPy has loaded."""

import ctypes
import os
from pathlib import Path
from typing import Any

from ddpflow.errors import ValueRangeError

__all__ = ["get_num_interop_threads", "get_num_threads", "set_num_interop_threads", "set_num_threads"]

# How OpenBLAS' functions are called in the builds that NumPy comes with.
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")
_loaded: list[Any] = []


def _openblas(verb: str) -> Any:
    """OpenBLAS' function to ``get`` or ``set`` the number of threads; None when NumPy uses another library."""
    if not _loaded:
        try:
            lines = Path("/proc/self/maps").read_text().splitlines()
        except OSError:  # not Linux
            lines = []
        paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}
        _loaded.extend([ctypes.CDLL(path) for path in sorted(paths)])
    for library in _loaded:
        for name in _NAMES:
            function = getattr(library, name.format(verb), None)
            if function is not None:
                return function
    return None


def set_num_threads(num: int) -> None:
    """Let matrix products use this many threads. Where NumPy uses another library than OpenBLAS nothing changes.

    Raises:
        ValueRangeError: When it is not a positive number.
    """
    if num < 1:
        raise ValueRangeError(f"set_num_threads() takes a number above 0, not {num}")
    function = _openblas("set")
    if function is not None:
        function(ctypes.c_int(num))


def get_num_threads() -> int:
    """How many threads matrix products use."""
    function = _openblas("get")
    return int(function()) if function is not None else len(os.sched_getaffinity(0))


def set_num_interop_threads(num: int) -> None:
    """Accepted; operations never run beside one another here."""


def get_num_interop_threads() -> int:
    """1: operations never run beside one another here."""
    return 1
