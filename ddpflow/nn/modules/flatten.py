"""Changes of shape as modules."""

from collections.abc import Sequence
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import DtypeError
from ddpflow.nn.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Makes a range of dimensions one.

    Args:
        start_dim: The first of them.
        end_dim: The last of them.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Any:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Makes several dimensions of one.

    Args:
        dim: The dimension.
        unflattened_size: What it becomes; one length may be -1.

    Raises:
        DtypeError: When the size is not made of integers.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise DtypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        for place, length in enumerate(unflattened_size):
            if not isinstance(length, int):
                raise DtypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {type(length).__name__} at pos "
                    f"{place}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Any:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
