"""Containers of parameters: a list and a dictionary."""

from collections.abc import Iterable, Iterator, KeysView
from operator import index as as_index
from typing import Any, Self

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import AutogradError, DtypeError, IndexRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.modules.container import pairs_of
from ddpflow.nn.parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(name: Any, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.shape)
    place = f" ({value.device})" if value.is_cuda else ""
    return f"  ({name}): {kind} containing: [{value.dtype} of size {size}{place}]"


class ParameterList(Module):
    """A list of parameters; a plain tensor put in becomes a `Parameter`, other objects are kept as they are.

    Args:
        values: What to put in.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, idx: Any) -> str:
        place = as_index(idx)
        if not -self._size <= place < self._size:
            raise IndexRangeError(f"index {place} is out of range for a ParameterList of length {self._size}")
        return str(place % self._size)

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(self._size)))
        return getattr(self, self._key(idx))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, self._key(idx), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add several values at the end.

        Raises:
            DtypeError: When it is not an iterable, or a tensor.
        """
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise DtypeError(f"ParameterList.extend() takes an iterable of values, not {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """One line for each value."""
        return "\n".join(_describe(place, value) for place, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a list computes nothing."""
        raise AutogradError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters; a plain tensor put in becomes a `Parameter`, other objects are kept as they are.

    Args:
        parameters: A mapping from names to values, or pairs of them.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise DtypeError(f"a ParameterDict has strings as keys, not {type(key).__name__}")
        setattr(self, key, _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> "ParameterDict":
        """Another dictionary with the same parameters."""
        return ParameterDict(self)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under a name, after putting ``default`` there if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take all values out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a value out and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last pair out and return it."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a name, or ``default``."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> "ParameterDict":
        """A new dictionary with one value under all names."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> list[tuple[str, Any]]:
        """The pairs of name and value."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> list[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Put values in, replacing those of the same name."""
        for key, value in pairs_of(parameters, "ParameterDict"):
            self[key] = value

    def extra_repr(self) -> str:
        """One line for each value."""
        return "\n".join(_describe(key, value) for key, value in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a dictionary computes nothing."""
        raise AutogradError("ParameterDict should not be called.")

    def __or__(self, other: "ParameterDict") -> "ParameterDict":
        union = self.copy()
        union.update(other)
        return union

    def __ior__(self, other: "ParameterDict") -> Self:
        self.update(other)
        return self
