"""Parametrizations: a module's tensor that is computed from others at each use (PyTorch's ``nn.utils.parametrize``).

The tensor becomes a property of a class made for that purpose, a subclass of the module's own; what it is computed from
are the parameters of a `ParametrizationList`, the child ``parametrizations.<name>``.
"""

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.modules.container import ModuleDict, ModuleList
from ddpflow.nn.parameter import Parameter

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations"]

_Module = TypeVar("_Module", bound=Module)


class ParametrizationList(ModuleList):
    """The modules that compute one tensor, one after the other, and the parameters that the first of them takes.

    Args:
        modules: The modules. One with a ``right_inverse`` says from what it would compute a given value.
        original: The tensor as it is, a parameter or a buffer.
        unsafe: Do not check that the computed tensor has its shape and dtype.

    Attributes:
        original: What the tensor is computed from; ``original0``, ``original1`` and so on where ``right_inverse`` gives
            several tensors.

    Raises:
        ValueRangeError: When the computed tensor has another shape or dtype.
    """

    def __init__(self, modules: Iterable[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        before = original.data
        with no_grad():
            source = self._source_of(original)
            if isinstance(source, Tensor):
                self.names = ["original"]
                original.data = source  # the same parameter, which an optimizer may hold already
                parts = [original]
            else:
                self.names = [f"original{i}" for i in range(len(source))]
                parts = [_like(original, part) for part in source]
        for name, part in zip(self.names, parts, strict=True):
            if isinstance(part, Parameter):
                self.register_parameter(name, part)
            else:
                self.register_buffer(name, part)
        try:
            self.check(before)
        except ValueRangeError:
            original.data = before
            raise

    def check(self, before: Tensor) -> None:
        """Refuse a computed tensor that differs in shape or dtype from the one before, unless ``unsafe``."""
        if self.unsafe:
            return
        with no_grad():
            value = self()
        if value.shape != before.shape or value.dtype != before.dtype:
            raise ValueRangeError(
                f"a parametrization must keep shape and dtype, or be registered with unsafe=True: it makes "
                f"{tuple(value.shape)} ({value.dtype}) of {tuple(before.shape)} ({before.dtype})"
            )

    def _source_of(self, value: Any) -> Any:
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                value = module.right_inverse(value)
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Set the parameters to what makes a value, as far as the modules' ``right_inverse`` say."""
        with no_grad():
            source = self._source_of(value)
        for name, part in zip(self.names, [source] if isinstance(source, Tensor) else source, strict=True):
            getattr(self, name).data = part

    def forward(self) -> Any:
        """The computed tensor."""
        first, *rest = self
        value = first(*[getattr(self, name) for name in self.names])
        for module in rest:
            value = module(value)
        return value


def _like(original: Tensor, value: Tensor) -> Tensor:
    """A parameter where the original is one, else a plain tensor."""
    return Parameter(value.detach(), original.requires_grad) if isinstance(original, Parameter) else value.detach()


@functools.cache
def _parametrized(kind: type[Module], names: tuple[str, ...]) -> type[Module]:
    """A subclass whose tensors of these names are computed; modules alike share it, and copies and pickles find it."""

    def computed(name: str) -> property:
        return property(
            lambda module: module.parametrizations[name](),
            lambda module, value: module.parametrizations[name].right_inverse(value),
        )

    members: dict[str, Any] = {name: computed(name) for name in names}
    members["__reduce__"] = lambda module: (_blank, (kind, names), module.__dict__)
    members |= {"kind": kind, "__doc__": kind.__doc__}
    return type(f"Parametrized{kind.__name__}", (kind,), members)


def _blank(kind: Any, names: tuple[str, ...]) -> Module:
    made = _parametrized(kind, names)
    return made.__new__(made)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module's tensor is computed by a parametrization; without a name, whether any is."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(
    module: _Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> _Module:
    """Compute a parameter or buffer of a module by another module: ``parametrization(original)``.

    Several run one after the other. The parameter itself becomes ``module.parametrizations.<name>.original``.
    Assigning to the tensor sets what it is computed from, where the parametrization has a ``right_inverse``.

    Args:
        module: The module; its class becomes a subclass of the class that it had.
        tensor_name: The name of the parameter or buffer.
        parametrization: The module that computes it.
        unsafe: Do not check that shape and dtype stay.

    Returns:
        The module.

    Raises:
        ValueRangeError: When there is no such tensor, or its shape or dtype would change.

    Example:
        >>> import ddpflow.nn as nn
        >>> class Symmetric(nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).mT
        >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.mT).all())
        True
    """
    if is_parametrized(module, tensor_name):
        found = _lists(module)[tensor_name]
        before = getattr(module, tensor_name)
        found.append(parametrization)
        found.unsafe = found.unsafe or unsafe
        try:
            found.check(before)
        except ValueRangeError:
            del found[-1]
            raise
        return module
    original = {**module._buffers, **module._parameters}.get(tensor_name)
    if original is None:
        raise ValueRangeError(
            f"{type(module).__name__} has no parameter, buffer or parametrized tensor {tensor_name!r}"
        )
    made = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.add_module("parametrizations", ModuleDict())
    _lists(module)[tensor_name] = made
    _set_class(module)
    return module


def _lists(module: Module) -> Any:
    return module._modules["parametrizations"]


def _set_class(module: Module) -> None:
    kind: Any = getattr(type(module), "kind", type(module))
    module.__class__ = _parametrized(kind, tuple(_lists(module))) if is_parametrized(module) else kind


def remove_parametrizations(module: _Module, tensor_name: str, leave_parametrized: bool = True) -> _Module:
    """Make a computed tensor a parameter or buffer again.

    Args:
        module: The module.
        tensor_name: The tensor's name.
        leave_parametrized: Keep the computed value; else the one it was computed from.

    Returns:
        The module; without other parametrizations it has its old class.

    Raises:
        ValueRangeError: When the tensor is not parametrized, or was computed from several that are to be left.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueRangeError(f"{type(module).__name__} has no parametrization of {tensor_name!r}")
    found = _lists(module)[tensor_name]
    tensor = getattr(found, found.names[0])
    if leave_parametrized:
        with no_grad():
            value = found().detach()
        if len(found.names) == 1:
            tensor.data = value
        else:
            tensor = _like(tensor, value)
    elif len(found.names) > 1:
        raise ValueRangeError(f"{tensor_name!r} is computed from {len(found.names)} tensors: leave_parametrized=True")
    del _lists(module)[tensor_name]
    _set_class(module)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
    if isinstance(tensor, Parameter):
        module.register_parameter(tensor_name, tensor)
    else:
        module.register_buffer(tensor_name, tensor)
    return module
