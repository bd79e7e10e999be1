"""Weight normalization: a weight as a length and a direction (Salimans and Kingma 2016)."""

from typing import Any, TypeVar

from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import AutogradError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Parameter

__all__ = ["WeightNorm", "lengths", "remove_weight_norm", "weight_norm"]

_Module = TypeVar("_Module", bound=Module)


def lengths(v: Tensor, dim: int) -> Any:
    """The norm over all dimensions but one (all of them for -1), ready to broadcast."""
    others = [d for d in range(v.ndim) if dim == -1 or d != dim % v.ndim]
    total = (v * v).sum(others, keepdim=True).sqrt() if others else v.abs()
    return total.reshape(()) if dim == -1 else total


class WeightNorm:
    """The hook that makes ``weight = g * v / |v|`` before each forward.

    Args:
        name: The weight's name.
        dim: The dimension along which lengths are kept; -1 for one length.
    """

    def __init__(self, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim

    def compute_weight(self, module: Module) -> Any:
        """The weight that the module's parameters now make."""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return v * (g / lengths(v, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        """Set the weight."""
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: _Module, name: str = "weight", dim: int | None = 0) -> _Module:
    """Replace a weight by two parameters, its length ``<name>_g`` and its direction ``<name>_v``.

    Args:
        module: The module; it is changed.
        name: The weight's name.
        dim: The dimension along which lengths are kept (0: one for each output); None for one length.

    Returns:
        The module.

    Raises:
        AutogradError: When that weight is normalized already.
    """
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook.function, WeightNorm) and hook.function.name == name:
            raise AutogradError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    made = WeightNorm(name, -1 if dim is None else dim)
    weight = module.get_parameter(name)
    delattr(module, name)
    with no_grad():
        module.register_parameter(f"{name}_g", Parameter(lengths(weight, made.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    made(module, ())
    module.register_forward_pre_hook(made)
    return module


def remove_weight_norm(module: _Module, name: str = "weight") -> _Module:
    """Make the normalized weight one parameter again.

    Raises:
        ValueRangeError: When that weight is not normalized.
    """
    for number, hook in module._forward_pre_hooks.items():
        made = hook.function
        if isinstance(made, WeightNorm) and made.name == name:
            weight = made.compute_weight(module).detach()
            for part in (name, f"{name}_g", f"{name}_v"):
                delattr(module, part)
            module.register_parameter(name, Parameter(weight))
            del module._forward_pre_hooks[number]
            return module
    raise ValueRangeError(f"weight_norm of '{name}' not found in {module}")
