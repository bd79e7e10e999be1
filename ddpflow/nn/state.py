"""State dicts: a module's parameters and buffers as a flat dictionary, and back."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ddpflow.autograd.base import RemovableHandle, wrap
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.device import device_of, move
from ddpflow.errors import DdpflowError, DtypeError, StateDictError
from ddpflow.nn.parameter import Parameter

__all__ = ["IncompatibleKeys", "StateDict", "Stateful"]

_EXTRA = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """What `Stateful.load_state_dict` found missing and what it did not expect."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class StateDict(OrderedDict[str, Any]):
    """What ``state_dict()`` returns: name to tensor, in the order of registration, and the modules' versions."""

    _metadata: dict[str, dict[str, Any]]


class Stateful:
    """The part of a module that saves and loads state."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers: set[str]
    _state_dict_hooks: dict[int, Callable[..., Any]]
    _state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: dict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """What ``state_dict()`` is to hold beside parameters and buffers; override it with `set_extra_state`."""
        raise NotImplementedError(f"{type(self).__name__} sets extra state but defines no get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise NotImplementedError(f"{type(self).__name__} gets extra state but defines no set_extra_state()")

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before `state_dict` collects this module's state."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)``, which may change the dict in place."""
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook before this module's part is loaded.

        It is called as ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
        error_msgs)``.
        """
        return RemovableHandle(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may change the two lists in place."""
        return RemovableHandle(self._load_state_dict_post_hooks, hook)

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """All parameters and persistent buffers by name; the tensors share memory with the module.

        Args:
            destination: A dictionary to fill; by default a new one.
            prefix: Put before each name.
            keep_vars: Give the parameters themselves, not detached tensors.

        Returns:
            The dictionary, in the order of registration.
        """
        if destination is None:
            destination = StateDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            if hook(self, destination, prefix, local_metadata) is not None:
                raise StateDictError("a state dict post-hook must change the dict in place and return None")
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Put this module's own state, without its children's, into ``destination``; for subclasses to extend."""
        for name, tensor in self._own_state():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + _EXTRA] = self.get_extra_state()

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers:
                yield name, buffer

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the values of a state dict into this module's parameters and buffers, in place.

        Args:
            state_dict: Name to tensor, as `state_dict` gives it.
            strict: Refuse missing and unexpected names.
            assign: Take the tensors themselves instead of copying their values.

        Returns:
            The missing and the unexpected names.

        Raises:
            StateDictError: When names differ under ``strict``, or shapes differ; the text lists every difference.
            DtypeError: When it is no mapping.
        """
        if not isinstance(state_dict, Mapping):
            raise DtypeError(f"load_state_dict() takes a dictionary, not {type(state_dict).__name__}")
        metadata: Mapping[str, Any] = getattr(state_dict, "_metadata", None) or {}
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []

        def load(module: Stateful, state: dict[str, Any], prefix: str) -> None:
            local_metadata = dict(metadata.get(prefix[:-1], {}))
            if assign:
                local_metadata["assign_to_params_buffers"] = True
            module._load_from_state_dict(state, prefix, local_metadata, strict, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    below = f"{prefix}{name}."
                    load(child, {key: value for key, value in state.items() if key.startswith(below)}, below)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, IncompatibleKeys(missing, unexpected)) is not None:
                    raise StateDictError("a load_state_dict post-hook must change the lists in place and return None")

        load(self, OrderedDict(state_dict), "")
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            lines = "\n\t".join(errors)
            raise StateDictError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{lines}")
        return IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own state, not its children's; for subclasses to extend. Problems go into the lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = dict(self._own_state())
        for name, tensor in own.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            problem = _problem_with(key, tensor, state_dict[key])
            if problem is None:
                problem = self._load_one(
                    key, name, tensor, state_dict[key], "assign_to_params_buffers" in local_metadata
                )
            if problem is not None:
                error_msgs.append(problem)
        extra = prefix + _EXTRA
        if type(self).set_extra_state is not Stateful.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            else:
                missing_keys.append(extra)
        elif extra in state_dict:
            unexpected_keys.append(extra)
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                name, *below = key[len(prefix) :].split(".", 1)
                if name not in (self._modules if below else own):
                    unexpected_keys.append(key)

    def _load_one(self, key: str, name: str, tensor: Tensor, value: Tensor, assign: bool) -> str | None:
        """Put a value of the right shape into one tensor; returns what went wrong."""
        if value.array.shape != tensor.array.shape:  # one element for a number
            value = wrap(value.array[0])
        if assign:
            if isinstance(tensor, Parameter):
                wanted = tensor.requires_grad
                value = value.requires_grad_(wanted) if isinstance(value, Parameter) else Parameter(value, wanted)
            setattr(self, name, value)
            return None
        try:
            with no_grad():
                write(tensor, wrap(move(value.array, device_of(tensor.array))))
        except DdpflowError as error:
            return f'While copying the parameter named "{key}", an exception occurred: {error}'
        return None


def _problem_with(key: str, tensor: Tensor, value: Any) -> str | None:
    """Why a value cannot be loaded into a tensor, or None."""
    if not isinstance(value, Tensor):
        return f'While copying the parameter named "{key}", expected a tensor, but received {type(value).__name__}'
    if value.shape != tensor.shape and not (tensor.ndim == 0 and value.shape == (1,)):
        return (
            f"size mismatch for {key}: copying a param with shape {tuple(value.shape)} from checkpoint, the shape in "
            f"current model is {tuple(tensor.shape)}."
        )
    return None


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
