"""Weight and spectral normalization as parametrizations: PyTorch's ``torch.nn.utils.parametrizations``."""

from typing import Any, TypeVar

from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.nn.module import Module
from ddpflow.nn.utils.parametrize import register_parametrization
from ddpflow.nn.utils.spectral_norm import SpectralNorm
from ddpflow.nn.utils.weight_norm import lengths

__all__ = ["spectral_norm", "weight_norm"]

_Module = TypeVar("_Module", bound=Module)
_FIRST_STEPS = 15  # of power iteration, when a weight is normalized first


class _WeightNorm(Module):
    """A weight of its lengths g and directions v: ``g * v / |v|``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Any:
        return v * (g / lengths(v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return lengths(weight, self.dim), weight.clone()


class _SpectralNorm(Module):
    """A weight over its spectral norm, which one step of power iteration follows in each training forward."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.norm = SpectralNorm("weight", n_power_iterations, dim, eps)
        for name, vector in zip(("_u", "_v"), self.norm.vectors(weight), strict=True):
            self.register_buffer(name, vector)
        with no_grad():
            self.norm.normalized(weight, self._u, self._v, _FIRST_STEPS)

    def forward(self, weight: Tensor) -> Any:
        return self.norm.normalized(weight, self._u, self._v, self.norm.n_power_iterations if self.training else 0)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def weight_norm(module: _Module, name: str = "weight", dim: int | None = 0) -> _Module:
    """Compute a weight of its lengths and directions (Salimans and Kingma 2016).

    They are ``parametrizations.<name>.original0`` and ``original1``.

    Args:
        module: The module; it is changed.
        name: The weight's name.
        dim: The dimension along which lengths are kept (0: one for each output); None for one length.

    Returns:
        The module.
    """
    return register_parametrization(module, name, _WeightNorm(-1 if dim is None else dim), unsafe=True)


def spectral_norm(
    module: _Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> _Module:
    """Divide a weight by its greatest singular value (Miyato et al. 2018), which power iteration estimates.

    Args:
        module: The module; it is changed.
        name: The weight's name.
        n_power_iterations: Steps for each training forward.
        eps: The least length that is divided by.
        dim: The dimension of the outputs; by default 1 for transposed convolutions, else 0.

    Returns:
        The module.

    Raises:
        ValueRangeError: When there is to be no step.
    """
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    made = _SpectralNorm(getattr(module, name), n_power_iterations, dim, eps)
    return register_parametrization(module, name, made)
