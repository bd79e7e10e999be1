"""What NCCL's error codes mean. CuPy's own table has lacked codes, and then hides the error behind a KeyError."""

from typing import Any

__all__ = ["error_code", "error_text"]

# Source: ncclResult_t in nccl.h, and the section "Errors" of the NCCL user guide.
_NAMES = {
    0: ("success", "nothing is wrong"),
    1: ("unhandled CUDA error", "a CUDA call failed; run with NCCL_DEBUG=INFO for the reason"),
    2: ("system error", "a call to the operating system failed; run with NCCL_DEBUG=INFO for the reason"),
    3: ("internal error", "a fault of NCCL itself, or memory that was overwritten; run with NCCL_DEBUG=WARN"),
    4: ("invalid argument", "one argument of the call is wrong; this is a fault of ddpflow"),
    5: ("invalid usage", "calls do not fit together, such as two ranks on one GPU; run with NCCL_DEBUG=WARN"),
    6: ("remote error", "another rank failed or the network did; look at the other ranks' first error"),
    7: ("in progress", "the communicator is still at work on an earlier call"),
}


def error_code(error: BaseException) -> int | None:
    """Returns NCCL's code for an exception out of CuPy, or None where it is another error.

    CuPy's NcclError has it as ``status``; for a code that CuPy's table lacks, what comes is ``KeyError(code)``.
    """
    code: Any = getattr(error, "status", None)
    if code is None and isinstance(error, KeyError) and error.args:
        code = error.args[0]
    return code if isinstance(code, int) and not isinstance(code, bool) and code >= 0 else None


def error_text(error: BaseException) -> str:
    """Returns "remote error (6): look at the other ranks' first error", or the exception's own text."""
    code = error_code(error)
    if code is None:
        return f"{type(error).__name__}: {error}"
    name, hint = _NAMES.get(code, ("unknown error", "newer than this version of ddpflow"))
    return f"{name} ({code}): {hint}"
