"""Smooth activations: the sigmoid and tanh families, GELU, SiLU, Mish, softplus."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = [
    "GELU",
    "GLU",
    "LogSigmoid",
    "Mish",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Tanh",
    "Tanhshrink",
]


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, input: Tensor) -> Any:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """``log(1 / (1 + exp(-x)))``, without overflow."""

    def forward(self, input: Tensor) -> Any:
        return F.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Any:
        return F.tanh(input)


class Tanhshrink(Module):
    """``x - tanh(x)``."""

    def forward(self, input: Tensor) -> Any:
        return F.tanhshrink(input)


class Softsign(Module):
    """``x / (1 + |x|)``."""

    def forward(self, input: Tensor) -> Any:
        return F.softsign(input)


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``, and ``x`` itself above the threshold.

    Args:
        beta: How sharp the bend is.
        threshold: Where ``beta * x`` counts as large.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Any:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GELU(Module):
    """``x`` times the normal distribution's probability below ``x`` (Hendrycks and Gimpel 2016).

    Args:
        approximate: ``"none"``, or ``"tanh"`` for the usual approximation.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Any:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """The first half of the input times the sigmoid of the second.

    Args:
        dim: The dimension that is halved.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Any:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class SiLU(Module):
    """``x * sigmoid(x)``.

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.silu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Mish(Module):
    """``x * tanh(softplus(x))``.

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.mish(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""
