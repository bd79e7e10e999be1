"""Activations with a kink or a shape of their own; the smooth ones are in `smooth`, the softmax family in `softmax`."""

from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.factories import empty
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "Softshrink",
    "Threshold",
]


class _InPlace(Module):
    """An activation that may overwrite its input."""

    inplace: bool

    def _repr_with(self, text: str = "") -> str:
        return ", ".join(part for part in (text, "inplace=True" if self.inplace else "") if part)

    def extra_repr(self) -> str:
        return self._repr_with()


class ReLU(_InPlace):
    """``max(x, 0)``.

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.relu(input, self.inplace)


class LeakyReLU(_InPlace):
    """``x`` where it is positive, ``negative_slope * x`` elsewhere.

    Args:
        negative_slope: The slope below zero.
        inplace: Overwrite the input.
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return self._repr_with(f"negative_slope={self.negative_slope}")


class PReLU(Module):
    """`LeakyReLU` with a slope that is learned.

    Args:
        num_parameters: One slope for all, or one for each channel (dimension 1).
        init: The slope to start from.
        device: Where the parameter lives.
        dtype: Its type.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Any:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(_InPlace):
    """`LeakyReLU` with a slope drawn anew for each element in training, and their mean in evaluation.

    Args:
        lower: The least slope.
        upper: The greatest slope.
        inplace: Overwrite the input.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return self._repr_with(f"lower={self.lower}, upper={self.upper}")


class Hardtanh(_InPlace):
    """``x`` cut off at ``min_val`` and ``max_val``.

    Args:
        min_val: The least value.
        max_val: The greatest value.
        inplace: Overwrite the input.

    Raises:
        ValueRangeError: When ``max_val`` is not greater than ``min_val``.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if max_val <= min_val:
            raise ValueRangeError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return self._repr_with(f"min_val={self.min_val}, max_val={self.max_val}")


class ReLU6(Hardtanh):
    """``min(max(x, 0), 6)``.

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return self._repr_with()


class Hardsigmoid(_InPlace):
    """``relu6(x + 3) / 6``.

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardswish(_InPlace):
    """``x * relu6(x + 3) / 6``.

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class ELU(_InPlace):
    """``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere.

    Args:
        alpha: The limit far below zero, negated.
        inplace: Overwrite the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return self._repr_with(f"alpha={self.alpha}")


class CELU(_InPlace):
    """``x`` where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere.

    Args:
        alpha: The limit far below zero, negated.
        inplace: Overwrite the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return self._repr_with(f"alpha={self.alpha}")


class SELU(_InPlace):
    """A scaled `ELU` that keeps mean 0 and variance 1 from layer to layer (Klambauer et al. 2017).

    Args:
        inplace: Overwrite the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.selu(input, self.inplace)


class Hardshrink(Module):
    """``x`` where its size is above ``lambd``, 0 elsewhere.

    Args:
        lambd: The bound.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Any:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Module):
    """``x`` moved towards zero by ``lambd``, and 0 where its size is below that.

    Args:
        lambd: The bound, at least 0.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Any:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Threshold(_InPlace):
    """``x`` where it is above ``threshold``, ``value`` elsewhere.

    Args:
        threshold: The bound.
        value: What stands for the rest.
        inplace: Overwrite the input.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Any:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return self._repr_with(f"threshold={self.threshold}, value={self.value}")
