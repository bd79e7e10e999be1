"""Containers of modules: a chain, a list, a dictionary."""

from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from operator import index as as_index
from typing import Any, Self

from ddpflow.errors import DtypeError, IndexRangeError, ValueRangeError
from ddpflow.nn.module import Module

__all__ = ["ModuleDict", "ModuleList", "Sequential", "pairs_of"]


class _Numbered(Module):
    """Children in a row, with a list's methods. Those made from numbers are named by their places."""

    _modules: dict[str, Module]

    def _key(self, idx: Any) -> str:
        place = as_index(idx)
        if not -len(self) <= place < len(self):
            raise IndexRangeError(f"index {place} is out of range for {self._get_name()} of length {len(self)}")
        return list(self._modules)[place]

    def _renumber(self, modules: Iterable[Module]) -> None:
        modules = list(modules)
        for name in list(self._modules):
            delattr(self, name)
        for place, module in enumerate(modules):
            self.add_module(str(place), module)

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._key(idx), module)

    def __delitem__(self, idx: int | slice) -> None:
        modules = list(self._modules.values())
        if not isinstance(idx, slice):
            self._key(idx)
        del modules[idx]
        self._renumber(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add several modules at the end."""
        if not isinstance(modules, Iterable):
            raise DtypeError(f"{self._get_name()}.extend() takes an iterable, not {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one at ``index``."""
        if not isinstance(module, Module):
            raise DtypeError(f"{type(module).__name__} is not a Module subclass")
        if not -len(self) <= index <= len(self):
            raise IndexRangeError(f"Index out of range: {index}, length {len(self)}")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: int) -> Module:
        """Take the module at ``key`` out and return it."""
        module = self._modules[self._key(key)]
        del self[key]
        return module


class Sequential(_Numbered):
    """A chain: each module's output is the next one's input.

    Args:
        *args: The modules, in order; or one ``OrderedDict`` of names and modules.

    Example:
        >>> import ddpflow.nn as nn
        >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
          (1): ReLU()
        )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in named:
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        """The last module's output."""
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._key(idx)]

    def __add__(self, other: "Sequential") -> "Sequential":
        return Sequential(*self, *_chain(other))

    def __iadd__(self, other: "Sequential") -> Self:
        return self.extend(_chain(other))

    def __mul__(self, other: int) -> "Sequential":
        return Sequential(*list(self) * _times(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        return self.extend(list(self) * (_times(other) - 1))


def _chain(other: Any) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueRangeError(f"a Sequential can be added only to a Sequential, not to {type(other).__name__}")
    return other


def _times(other: Any) -> int:
    if not isinstance(other, int):
        raise DtypeError(f"a Sequential can be repeated a whole number of times, not {type(other).__name__}")
    if other <= 0:
        raise ValueRangeError(f"Non-positive multiplication factor {other} for a Sequential")
    return other


class ModuleList(_Numbered):
    """A list of modules whose parameters are found; it has no ``forward``.

    Args:
        modules: The modules.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._key(idx)]

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        blocks: list[tuple[int, int, str]] = []  # first place, last place, text: equal neighbours are printed once
        for place, module in enumerate(self):
            text = repr(module)
            if blocks and blocks[-1][2] == text:
                blocks[-1] = (blocks[-1][0], place, text)
            else:
                blocks.append((place, place, text))
        if not blocks:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in blocks
        ]
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{self._get_name()}(\n  {body}\n)"


class ModuleDict(Module):
    """A dictionary of modules whose parameters are found; it has no ``forward``.

    Args:
        modules: A mapping from names to modules, or pairs of them.
    """

    _modules: dict[str, Module]

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]
        del self.__dict__[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        for key in list(self._modules):
            del self[key]

    def pop(self, key: str) -> Module:
        """Take a module out and return it."""
        module = self._modules[key]
        del self[key]
        return module

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """The pairs of name and module."""
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Put modules in, replacing those of the same name.

        Raises:
            DtypeError: When it is neither a mapping nor an iterable of pairs.
        """
        for key, module in pairs_of(modules, "ModuleDict"):
            self[key] = module


def pairs_of(values: Any, what: str) -> list[tuple[str, Any]]:
    """The pairs that a dictionary-like container is updated with."""
    if isinstance(values, (Mapping, ModuleDict)) or hasattr(values, "items"):
        return list(values.items())
    if not isinstance(values, Iterable):
        raise DtypeError(f"{what}.update() takes a mapping or pairs of name and value, not {type(values).__name__}")
    pairs = []
    for place, pair in enumerate(values):
        if not isinstance(pair, Iterable):
            raise DtypeError(f"{what}.update(): element {place} should be a pair, not {type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueRangeError(f"{what}.update(): element {place} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs
