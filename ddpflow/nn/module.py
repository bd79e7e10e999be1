"""Module: the base class of everything that holds parameters.

Parameters, buffers and children are registered in dictionaries, in the order of assignment, and also stand in the
instance's ``__dict__``: reading ``self.weight`` in ``forward`` is a plain attribute access. Whoever changes them goes
through attributes or the ``register_*`` methods, which keep both in step.
"""

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.errors import DtypeError, ModuleAttributeError, ModuleNameError, ValueRangeError
from ddpflow.nn.hooks import HookedCall
from ddpflow.nn.parameter import Buffer, Parameter
from ddpflow.nn.placement import Placed
from ddpflow.nn.state import Stateful

__all__ = ["Module"]

_Member = TypeVar("_Member")


class Module(HookedCall, Placed, Stateful):
    """Base class of all layers and models: derive from it, make the parts in ``__init__``, use them in ``forward``.

    Attributes:
        training: True in training mode (`train`), False in evaluation mode (`eval`).

    Example:
        >>> import ddpflow.nn as nn
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = nn.Linear(4, 2)
        ...
        ...     def forward(self, x):
        ...         return self.fc(x).relu()
        >>> Net()
        Net(
          (fc): Linear(in_features=4, out_features=2, bias=True)
        )
    """

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _modules={},
            _non_persistent_buffers=set(),
            _forward_hooks={},
            _forward_pre_hooks={},
            _backward_hooks={},
            _backward_pre_hooks={},
            _state_dict_hooks={},
            _state_dict_pre_hooks={},
            _load_state_dict_pre_hooks={},
            _load_state_dict_post_hooks={},
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; each subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, with the hooks around it if there are any."""
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take back what copying and pickling carry over; also where a subclass passes unknown attributes on."""
        self.__dict__.update(state)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: here for PyTorch's scripts; there is no compiler."""

    # --- parts --------------------------------------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name; None keeps the place.

        Raises:
            DtypeError: When it is not a `Parameter`.
            ModuleNameError: When the name is empty, has a dot, or is taken.
            AutogradError: When it is the result of an operation, and so cannot be trained.
        """
        self._check_name(name, self.__dict__.get("_parameters"), "parameter")
        if param is not None:
            if not isinstance(param, Parameter):
                raise DtypeError(
                    f"cannot assign '{_typename(param)}' object to parameter '{name}' (Parameter or None required): "
                    "wrap the tensor in nn.Parameter, or register it as a buffer"
                )
            if param.node is not None:
                raise ValueRangeError(
                    f"cannot assign a computed tensor to parameter '{name}': parameters are leaves; compute it in "
                    "forward()"
                )
        self._parameters[name] = param
        self.__dict__[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but not trained, such as a running mean; None keeps the place.

        Args:
            name: Its name.
            tensor: The tensor.
            persistent: Whether `state_dict` holds it.

        Raises:
            DtypeError: When it is not a tensor.
            ModuleNameError: When the name is empty, has a dot, or is taken.
        """
        self._check_name(name, self.__dict__.get("_buffers"), "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DtypeError(f"cannot assign '{_typename(tensor)}' object to buffer '{name}' (Tensor or None required)")
        self._buffers[name] = tensor
        self.__dict__[name] = tensor
        if persistent:
            self._non_persistent_buffers.discard(name)
        else:
            self._non_persistent_buffers.add(name)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Add a child under a name; None keeps the place.

        Raises:
            DtypeError: When it is not a module.
            ModuleNameError: When the name is empty, has a dot, or is taken.
        """
        if module is not None and not isinstance(module, Module):
            raise DtypeError(f"{_typename(module)} is not a Module subclass")
        self._check_name(name, self.__dict__.get("_modules"), "module")
        self._modules[name] = module
        self.__dict__[name] = module

    register_module = add_module

    def _check_name(self, name: Any, own: dict[str, Any] | None, what: str) -> None:
        if own is None:
            raise ModuleAttributeError(f"cannot assign {what}s before Module.__init__() call")
        if not isinstance(name, str):
            raise DtypeError(f"{what} name should be a string. Got {_typename(name)}")
        if "." in name:
            raise ModuleNameError(f'{what} name can\'t contain ".", got: {name}')
        if name == "":
            raise ModuleNameError(f'{what} name can\'t be empty string ""')
        if name not in own and hasattr(self, name):
            raise ModuleNameError(f"attribute '{name}' already exists")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        parameters = own.get("_parameters")
        if parameters is None:
            if isinstance(value, (Parameter, Module)):
                what = "parameters" if isinstance(value, Parameter) else "module"
                raise ModuleAttributeError(f"cannot assign {what} before Module.__init__() call")
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            if name not in parameters:
                self._forget(name)
            self.register_parameter(name, value)
        elif name in parameters:
            if value is not None:
                raise DtypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' (nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            if name not in self._modules:
                self._forget(name)
            self._modules[name] = own[name] = value
        elif name in self._modules:
            if value is not None:
                raise DtypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' (nn.Module or None expected)"
                )
            self._modules[name] = own[name] = None
        elif isinstance(value, Buffer):
            if name not in self._buffers:
                self._forget(name)
            self.register_buffer(name, value, value.persistent)
        elif name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise DtypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' (nn.Buffer, Tensor or None expected)"
                )
            self._buffers[name] = own[name] = value
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str) -> None:
        for parts in (self.__dict__, self._parameters, self._buffers, self._modules):
            parts.pop(name, None)
        self._non_persistent_buffers.discard(name)

    def __delattr__(self, name: str) -> None:
        if name in self._parameters or name in self._buffers or name in self._modules:
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted(name for name in object.__dir__(self) if not name[0].isdigit())

    # --- finding parts ------------------------------------------------------------------------------------------------

    def get_submodule(self, target: str) -> "Module":
        """The module at a dotted path; the empty path is this module.

        Raises:
            ModuleAttributeError: When there is none.
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise ModuleAttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise ModuleAttributeError(f"`{name}` is not an nn.Module")
        return module  # type: ignore[no-any-return]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path.

        Raises:
            ModuleAttributeError: When there is none.
        """
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = module._parameters.get(name)
        if found is None:
            raise ModuleAttributeError(f"{type(module).__name__} has no parameter `{name}`")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path.

        Raises:
            ModuleAttributeError: When there is none.
        """
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = module._buffers.get(name)
        if found is None:
            raise ModuleAttributeError(f"{type(module).__name__} has no buffer `{name}`")
        return found

    def named_modules(
        self, memo: "set[Module] | None" = None, prefix: str = "", remove_duplicate: bool = True
    ) -> "Iterator[tuple[str, Module]]":
        """This module and all below it, each with its dotted path, parents first.

        Args:
            memo: Modules to leave out; those given out are added.
            prefix: Put before each path.
            remove_duplicate: Give a module that is reached twice only once.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> "Iterator[Module]":
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> "Iterator[tuple[str, Module]]":
        """The modules directly below this one, with their names."""
        memo = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self) -> "Iterator[Module]":
        """The modules directly below this one."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        members: "Callable[[Module], dict[str, _Member | None]]",
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, _Member]]:
        memo: set[int] = set()
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else iter([(prefix, self)])
        for path, module in modules:
            for name, member in members(module).items():
                if member is None or id(member) in memo:
                    continue
                if remove_duplicate:
                    memo.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module and of all below it, each with its dotted path.

        Args:
            prefix: Put before each path.
            recurse: Go into the children.
            remove_duplicate: Give a shared parameter only once, under its first path.
        """
        return self._named_members(lambda module: module._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and, with ``recurse``, of all below it; each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers of this module and of all below it; the arguments are those of `named_parameters`."""
        return self._named_members(lambda module: module._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, with ``recurse``, of all below it; each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # --- changing all of them -----------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Set training mode, here and below: dropout drops, batch norm uses the batch.

        Raises:
            ValueRangeError: When ``mode`` is no bool.
        """
        if not isinstance(mode, bool):
            raise ValueRangeError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode, here and below."""
        return self.train(False)

    def apply(self, fn: "Callable[[Module], None]") -> Self:
        """Call ``fn(module)`` for every module below this one, then for this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Train the parameters, or freeze them."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or set them to zero in place."""
        for parameter in self.parameters():
            grad = parameter._grad
            if grad is None:
                continue
            if set_to_none:
                parameter._grad = None
            else:
                grad.detach_()
                write(grad, 0)

    # --- printing -----------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses when the module is printed, beside its children."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({extra})"
        body = "\n  ".join([*lines, *children])
        return f"{self._get_name()}(\n  {body}\n)" if body else f"{self._get_name()}()"


def _typename(value: Any) -> str:
    return type(value).__name__
