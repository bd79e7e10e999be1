"""Memory that NumPy frees stays with the process, so that the next temporary need not be fetched from the kernel again.

By default glibc maps every large block afresh and unmaps it when freed; the page faults of that cost a third of a
training step. `keep_freed_memory` raises the thresholds, once, when ddpflow is imported.

What it costs: freed memory is not handed back to the system before the process ends; it is used again by later arrays.
Set ``DDPFLOW_MALLOC=0``, or any of glibc's own ``MALLOC_..._`` variables or ``GLIBC_TUNABLES``, to leave malloc alone.
On other C libraries (musl, macOS) nothing is done.
"""

import ctypes
import os
from collections.abc import Mapping

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # names of mallopt's parameters, from malloc.h
_LARGEST = 2**31 - 1
_OLD_LIMIT = 32 << 20  # what glibc before 2.35 takes as its largest mmap threshold
_OWN_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell glibc's malloc to keep freed blocks, large ones too; returns whether it was told.

    Args:
        environ: Where to look for the opt-out and for settings of the user's own.
    """
    if environ.get("DDPFLOW_MALLOC", "1").strip().lower() in ("0", "false", "no", "off"):
        return False
    if any(environ.get(name) for name in _OWN_SETTINGS):
        return False
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return False
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, ValueError, OSError):
        return False
    if not mallopt(_MMAP_THRESHOLD, 1 << 30):
        mallopt(_MMAP_THRESHOLD, _OLD_LIMIT)
    mallopt(_TRIM_THRESHOLD, _LARGEST)
    mallopt(_TOP_PAD, 16 << 20)
    return True
