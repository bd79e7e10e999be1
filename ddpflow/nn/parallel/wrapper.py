"""What a module does that stands for another: attributes read through, states under plain names, copies of its kind."""

from copy import deepcopy
from typing import Any, ClassVar, Self

from ddpflow.comm.world import current_group
from ddpflow.nn.module import Module

__all__ = ["Wrapper"]


class Wrapper(Module):
    """A module with all attributes and the state of its child ``module``.

    A subclass names its options, which copies take over, and has two steps that a copy goes through as well.
    """

    module: Module
    _option_names: ClassVar[tuple[str, ...]]
    _group: Any

    def _bind(self, group: Any) -> None:
        """What belongs to this process and is neither copied nor pickled."""
        raise NotImplementedError

    def _build(self) -> None:
        """What is made of module and options."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("module")
        own = type(self).__name__
        if module is None or name.startswith("__"):
            raise AttributeError(f"'{own}' object has no attribute '{name}'")
        if hasattr(type(module), name) or name in module.__dict__:
            return getattr(module, name)  # an AttributeError raised inside a property is the property's own
        try:
            return getattr(module, name)
        except AttributeError:
            raise AttributeError(
                f"neither '{own}' nor the '{type(module).__name__}' that it wraps has an attribute '{name}'"
            ) from None

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's, with its plain names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load into the wrapped module; names may have PyTorch's prefix ``module.``."""
        if state_dict and all(name.startswith("module.") for name in state_dict):
            state_dict = {name[len("module.") :]: value for name, value in state_dict.items()}
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = self._like(deepcopy(self.module, memo), self._group)
        memo[id(self)] = copy
        return copy

    def _like(self, module: Module, group: Any) -> Self:
        """A wrapper with the same options; no collective runs."""
        copy = type(self).__new__(type(self))
        Module.__init__(copy)
        for name, value in self._options().items():
            setattr(copy, name, value)
        copy.module = module
        copy.training = self.training
        copy._bind(group)
        copy._build()
        return copy

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._option_names}

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "training": self.training, **self._options()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Module.__init__(self)
        for name, value in state.items():
            setattr(self, name, value)
        self._bind(current_group())
        self._build()
