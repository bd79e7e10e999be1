"""One number, or one for each dimension: how layers take kernel sizes, strides and paddings."""

from collections.abc import Iterable
from typing import Any

__all__ = ["tuple_of"]


def tuple_of(value: Any, count: int) -> tuple[Any, ...]:
    """The value ``count`` times, or the values of an iterable as they are."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,) * count
