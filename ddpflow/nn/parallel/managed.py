"""Which of a model's parameters and buffers are kept equal across ranks: all but those on its list of ignored ones."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

__all__ = ["ignore", "ignored_names", "managed_buffers", "managed_parameters"]

_LIST = "_ddp_params_and_buffers_to_ignore"  # PyTorch's name for it


def ignore(module: Any, names: Iterable[str]) -> None:
    """Name parameters and buffers that ranks keep for themselves: neither compared, nor copied, nor averaged."""
    setattr(module, _LIST, sorted(names))


def ignored_names(module: Any) -> Collection[str]:
    """The names on the module's list."""
    ignored: Collection[str] = module.__dict__.get(_LIST, ())
    return ignored


def managed_parameters(module: Any, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
    """The names and parameters that are not ignored."""
    ignored = ignored_names(module)
    for name, param in module.named_parameters(remove_duplicate=remove_duplicate):
        if name not in ignored:
            yield name, param


def managed_buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """The names and buffers that are not ignored."""
    ignored = ignored_names(module)
    for name, buffer in module.named_buffers():
        if name not in ignored:
            yield name, buffer
