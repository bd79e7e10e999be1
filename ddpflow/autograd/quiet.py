"""Quiet floating point: operations give inf and NaN without a warning, as PyTorch's do.

`numpy.errstate` costs more than a small operation itself. Its state lives in one context variable, and to set that is
cheap: ``before = silence(QUIET)``, then ``restore(before)`` in a ``finally``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["QUIET", "restore", "silence"]

QUIET: Any = None
silence: Callable[[Any], Any]
restore: Callable[[Any], Any]

try:
    from numpy._core.umath import _extobj_contextvar as _state

    with np.errstate(all="ignore"):
        QUIET = _state.get()
    silence, restore = _state.set, _state.reset
except (ImportError, AttributeError):  # not public: a NumPy that keeps it elsewhere gets the slow way

    def silence(quiet: Any) -> Any:
        """Switch the warnings off in this thread; returns what `restore` needs."""
        return np.seterr(all="ignore")

    def restore(before: Any) -> Any:
        """Put back what was in force before."""
        np.seterr(**before)
