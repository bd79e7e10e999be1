"""How exactly GPUs multiply float32 matrices: in float32, or in TF32, which keeps 10 of the 23 bits of a fraction.

cuBLAS takes TF32 from two places, and CuPy's products ask both: those of two matrices name a way of computing, which
CuPy keeps for the whole process; batches of matrices follow the mode of the cuBLAS handle, and each thread has one for
each GPU. So a thread's handle is told when the choice changes in that thread, and when the thread next makes a tensor
on that GPU or chooses it.
"""

import threading
from typing import Any

from ddpflow.errors import ValueRangeError

__all__ = ["choose_precision", "chosen_precision", "follow_precision"]

# cublasMath_t of cublas_api.h, of which CuPy has no name for the second, and CuPy's own numbers of ways of computing.
_DEFAULT_MODE, _TF32_MODE = 0, 3
_DEFAULT_WAY, _TF32_WAY = 1, 7
_chosen = "highest"
_told = False  # what CuPy was told for the process


class _Handles(threading.local):
    """What this thread's cuBLAS handles were told, by GPU."""

    def __init__(self) -> None:
        self.told: dict[int, bool] = {}


_handles = _Handles()


def chosen_precision() -> str:
    """``"highest"`` for float32, ``"high"`` or ``"medium"`` for TF32."""
    return _chosen


def choose_precision(level: str) -> None:
    """Choose for the process; `follow_precision` carries it out.

    Raises:
        ValueRangeError: When it is none of highest, high, medium.
    """
    global _chosen
    if level not in ("highest", "high", "medium"):
        raise ValueRangeError(f"matmul precision is highest, high or medium, not {level!r}")
    _chosen = level


def follow_precision(cupy: Any) -> None:
    """Tell CuPy, and this thread's cuBLAS handle of the current GPU, what was chosen, where that is news to them.

    A GPU without TF32 (compute capability below 8.0) computes in float32 whatever was chosen.
    """
    global _told
    gpu, tf32 = int(cupy.cuda.runtime.getDevice()), _chosen != "highest"
    if _told == tf32 == _handles.told.get(gpu, False):
        return
    place = cupy.cuda.Device(gpu)
    if int(place.compute_capability) < 80:
        return
    from cupy._core import set_compute_type

    set_compute_type("float32", _TF32_WAY if tf32 else _DEFAULT_WAY)
    cupy.cuda.cublas.setMathMode(place.cublas_handle, _TF32_MODE if tf32 else _DEFAULT_MODE)
    _told = _handles.told[gpu] = tf32
