"""Noticing that a model was changed after it was wrapped."""

from typing import Any

from ddpflow.nn.parallel.managed import ignored_names

__all__ = ["Watch"]


class Watch:
    """Remembers a module's parameters and children, and tells what became of them.

    It compares identities in the modules' own dictionaries, which costs about a tenth of a microsecond a parameter and
    much less than going through the modules again.
    """

    def __init__(self, module: Any) -> None:
        self._filled: list[tuple[str, dict[str, Any], list[tuple[str, Any]]]] = []
        self._empty: list[dict[str, Any]] = []
        self._empty_of: list[str] = []
        self._params: list[tuple[str, Any, bool, Any]] = []
        self._buffers: list[tuple[str, dict[str, Any]]] = []
        self._ignored = ignored_names(module)
        for path, m in module.named_modules():
            prefix = f"{path}." if path else ""
            for parts in (m._parameters, m._modules):
                if parts:
                    self._filled.append((prefix, parts, list(parts.items())))
                else:
                    self._empty.append(parts)
                    self._empty_of.append(path)
            self._params += [
                (prefix + n, p, p.needs_grad, p.array.dtype) for n, p in m._parameters.items() if p is not None
            ]
            self._buffers.append((prefix, m._buffers))

    def changes(self) -> list[str]:
        """What was replaced, added, removed, frozen or cast since."""
        found = []
        for prefix, now, then in self._filled:
            if len(now) != len(then):
                found.append(f"beside {prefix}{then[0][0]} something was added or removed")
            for name, part in then:
                if now.get(name) is not part:
                    found.append(f"{prefix}{name} was replaced")
        if any(self._empty):
            filled = [path for path, now in zip(self._empty_of, self._empty, strict=True) if now]
            found += [f"in {path or 'the root'} something was added" for path in filled]
        for name, p, needs_grad, dtype in self._params:
            if p.needs_grad is not needs_grad:
                found.append(f"{name} was {'unfrozen' if p.needs_grad else 'frozen'}")
            if p.array.dtype is not dtype:
                found.append(f"{name} was cast to {p.array.dtype}")
        return found

    def buffers(self) -> list[Any]:
        """The buffers as they are now, each once, but those that are ignored."""
        found = {
            id(buffer): buffer
            for prefix, own in self._buffers
            if own
            for name, buffer in own.items()
            if buffer is not None and prefix + name not in self._ignored
        }
        return list(found.values())
