"""Dropout's product of three: one kernel for CuPy, two passes for everything else."""

from typing import Any

import numpy as np

from ddpflow.autograd.kernels import cuda

__all__ = ["keep_scaled"]


def keep_scaled(xp: Any, x: Any, keep: Any, scale: float) -> Any:
    """The input times ``scale`` where ``keep`` is True, 0 elsewhere; ``keep`` broadcasts."""
    if xp is np:
        out = x * keep
        out *= scale
        return out
    if keep.shape == x.shape and cuda.fits(xp, x):
        return cuda.keep_scaled(xp, x, keep, scale)
    return x * keep * scale
