"""A gradient known to be zero, without memory."""

from typing import Any

import numpy as np

from ddpflow.errors import ShapeError

__all__ = ["StaticZeros", "gradients_of_zero"]


class StaticZeros:
    """A zero gradient of a shape and dtype that owns no memory.

    Adding to it gives the other operand itself, scaling it gives itself. It becomes a real array in `materialize`: when
    a leaf's ``grad`` is set, or when it must go through an operation that knows only arrays.
    """

    __slots__ = ("dtype", "shape", "xp")

    def __init__(self, shape: tuple[int, ...], dtype: "np.dtype[Any]", xp: Any = np) -> None:
        self.shape = shape
        self.dtype = dtype
        self.xp = xp

    def __add__(self, other: Any) -> Any:
        if other.shape != self.shape:
            raise ShapeError(f"a zero gradient of shape {self.shape} cannot be added to one of shape {other.shape}")
        return other

    __radd__ = __add__

    def __mul__(self, factor: float) -> "StaticZeros":
        return self

    __rmul__ = __mul__

    def astype(self, dtype: "np.dtype[Any]") -> "StaticZeros":
        """Zeros of another dtype."""
        return StaticZeros(self.shape, dtype, self.xp)

    def materialize(self) -> Any:
        """A real array of zeros that the caller owns."""
        return self.xp.zeros(self.shape, self.dtype)

    def __repr__(self) -> str:
        return f"StaticZeros({self.shape}, {self.dtype})"


def gradients_of_zero(edges: tuple[Any, ...], g: StaticZeros | None) -> list[Any]:
    """What a node passes on to its edges when its own gradient is absent (None) or known to be zero."""
    if g is None:
        return [None] * len(edges)
    return [
        None
        if edge is None
        else StaticZeros(edge.shape, edge.dtype, g.xp)
        if edge.is_node
        else StaticZeros(edge.array.shape, edge.array.dtype, g.xp)
        for edge in edges
    ]
