"""Spectral normalization: a weight divided by its greatest singular value (Miyato et al. 2018)."""

from typing import Any, TypeVar

from ddpflow.autograd.base import wrap
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.device import array_module
from ddpflow.errors import AutogradError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Parameter
from ddpflow.random import draw_normal

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]

_Module = TypeVar("_Module", bound=Module)


class SpectralNorm:
    """The hook that divides a weight by its spectral norm, which power iteration estimates.

    Args:
        name: The weight's name.
        n_power_iterations: Steps of the iteration for each training forward.
        dim: The dimension of the outputs.
        eps: The least length that is divided by.

    Raises:
        ValueRangeError: When there is to be no step.
    """

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueRangeError(f"n_power_iterations must be positive, but got {n_power_iterations}")
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def as_matrix(self, weight: Tensor) -> Any:
        """The weight with one row for each output."""
        if self.dim != 0:
            weight = weight.movedim(self.dim, 0)
        return weight.reshape(weight.shape[0], -1)

    def compute_weight(self, module: Module, iterate: bool) -> Any:
        """The normalized weight; with ``iterate``, after improving the estimate in place."""
        weight, u, v = (getattr(module, f"{self.name}_{suffix}") for suffix in ("orig", "u", "v"))
        return self.normalized(weight, u, v, self.n_power_iterations if iterate else 0)

    def normalized(self, weight: Tensor, u: Tensor, v: Tensor, steps: int) -> Any:
        """The weight over its spectral norm, by the vectors u and v after so many steps, which change them in place."""
        matrix = self.as_matrix(weight)
        if steps:
            rows, left, right = matrix.array, u.array, v.array
            for _ in range(steps):
                right = self._unit(rows.T @ left)
                left = self._unit(rows @ right)
            with no_grad():
                write(u, wrap(left))
                write(v, wrap(right))
        # Copies: the graph keeps them, and the next forward overwrites the buffers.
        sigma = (wrap(u.array.copy()) * (matrix @ wrap(v.array.copy()))).sum()
        return weight / sigma

    def vectors(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Random unit vectors to start from, one for the matrix's rows and one for its columns."""
        rows = self.as_matrix(weight).array
        xp = array_module(rows)
        u, v = (wrap(self._unit(draw_normal(xp, (length,), rows.dtype))) for length in rows.shape)
        return u, v

    def _unit(self, vector: Any) -> Any:
        xp = array_module(vector)
        return vector / xp.maximum(xp.sqrt((vector * vector).sum()), self.eps)

    def __call__(self, module: Module, inputs: Any) -> None:
        """Set the weight."""
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: _Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> _Module:
    """Divide a weight by its spectral norm before each forward; the parameter is then ``<name>_orig``.

    Args:
        module: The module; it is changed.
        name: The weight's name.
        n_power_iterations: Steps of power iteration for each training forward.
        eps: The least length that is divided by.
        dim: The dimension of the outputs; by default 1 for transposed convolutions, else 0.

    Returns:
        The module.

    Raises:
        AutogradError: When that weight is normalized already.
        ValueRangeError: When there is to be no step.
    """
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook.function, SpectralNorm) and hook.function.name == name:
            raise AutogradError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    made = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module.get_parameter(name)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.data)
    for suffix, vector in zip("uv", made.vectors(weight), strict=True):
        module.register_buffer(f"{name}_{suffix}", vector)
    module.register_forward_pre_hook(made)
    return module


def remove_spectral_norm(module: _Module, name: str = "weight") -> _Module:
    """Make the normalized weight a plain parameter again.

    Raises:
        ValueRangeError: When that weight is not normalized.
    """
    for number, hook in module._forward_pre_hooks.items():
        made = hook.function
        if isinstance(made, SpectralNorm) and made.name == name:
            weight = made.compute_weight(module, False).detach()
            for part in (name, f"{name}_orig", f"{name}_u", f"{name}_v"):
                delattr(module, part)
            module.register_parameter(name, Parameter(weight))
            del module._forward_pre_hooks[number]
            return module
    raise ValueRangeError(f"spectral_norm of '{name}' not found in {module}")
