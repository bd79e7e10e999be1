"""Activations with PyTorch's ``inplace`` argument, and those that only combine operations."""

from collections.abc import Callable
from typing import Any

from ddpflow.autograd.mode import is_grad_enabled
from ddpflow.autograd.ops import activation
from ddpflow.autograd.ops.sampling import rand_like
from ddpflow.autograd.ops.softmax import softmax
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.dtype import finfo
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "celu",
    "celu_",
    "elu",
    "elu_",
    "glu",
    "gumbel_softmax",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "leaky_relu",
    "leaky_relu_",
    "mish",
    "relu",
    "relu6",
    "relu_",
    "rrelu",
    "rrelu_",
    "selu",
    "selu_",
    "silu",
    "threshold",
    "threshold_",
]


def _overwrite(function: Callable[..., Any], input: Tensor, *args: Any) -> Any:
    """Write what a function makes of a tensor into the tensor itself, and record that."""
    if input.requires_grad and is_grad_enabled():
        return write(input, function(input.clone(), *args))  # what backward needs of the input must stay
    return write(input, function(input, *args))


def relu(input: Tensor, inplace: bool = False) -> Any:
    """``max(x, 0)``; the gradient at 0 is 0.

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.relu, input) if inplace else activation.relu(input)


def relu_(input: Tensor) -> Any:
    """`relu` in place."""
    return _overwrite(activation.relu, input)


def relu6(input: Tensor, inplace: bool = False) -> Any:
    """``min(max(x, 0), 6)``.

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """``x`` where it is positive, ``negative_slope * x`` elsewhere.

    Args:
        input: Any shape.
        negative_slope: The slope below zero.
        inplace: Overwrite the input.
    """
    if inplace:
        return _overwrite(activation.leaky_relu, input, negative_slope)
    return activation.leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Any:
    """`leaky_relu` in place."""
    return leaky_relu(input, negative_slope, True)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Any:
    """`leaky_relu` with slopes drawn from ``[lower, upper)`` in training, and their mean otherwise.

    Args:
        input: Any shape.
        lower: The least slope.
        upper: The greatest slope.
        training: Draw a slope for each element.
        inplace: Overwrite the input.

    Raises:
        ValueRangeError: When ``lower`` is above ``upper``.
    """
    if lower > upper:
        raise ValueRangeError(f"rrelu() takes a lower bound <= the upper one, not {lower} and {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = rand_like(input) * (upper - lower) + lower
    return _overwrite(_slanted, input, slopes) if inplace else _slanted(input, slopes)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Any:
    """`rrelu` in place."""
    return rrelu(input, lower, upper, training, True)


def _slanted(input: Tensor, slopes: Tensor) -> Any:
    positive = activation.relu(input)
    return positive + (input - positive) * slopes


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere.

    Args:
        input: Any shape.
        alpha: The limit far below zero, negated.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.elu, input, alpha) if inplace else activation.elu(input, alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Any:
    """`elu` in place."""
    return elu(input, alpha, True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Any:
    """``x`` where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere.

    Args:
        input: Any shape.
        alpha: The limit far below zero, negated.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.celu, input, alpha) if inplace else activation.celu(input, alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Any:
    """`celu` in place."""
    return celu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Any:
    """A scaled `elu` that keeps mean 0 and variance 1 (Klambauer et al. 2017).

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.selu, input) if inplace else activation.selu(input)


def selu_(input: Tensor) -> Any:
    """`selu` in place."""
    return selu(input, True)


def silu(input: Tensor, inplace: bool = False) -> Any:
    """``x * sigmoid(x)``.

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.silu, input) if inplace else activation.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Any:
    """``x * tanh(softplus(x))``.

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.mish, input) if inplace else activation.mish(input)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """``x`` cut off at ``min_val`` and ``max_val``.

    Args:
        input: Any shape.
        min_val: The least value.
        max_val: The greatest value.
        inplace: Overwrite the input.

    Raises:
        ValueRangeError: When ``min_val`` is above ``max_val``.
    """
    if min_val > max_val:
        raise ValueRangeError(f"hardtanh() takes min_val <= max_val, not {min_val} and {max_val}")
    if inplace:
        return _overwrite(activation.hardtanh, input, min_val, max_val)
    return activation.hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, True)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Any:
    """``relu6(x + 3) / 6``.

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.hardsigmoid, input) if inplace else activation.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Any:
    """``x * relu6(x + 3) / 6``.

    Args:
        input: Any shape.
        inplace: Overwrite the input.
    """
    return _overwrite(activation.hardswish, input) if inplace else activation.hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Any:
    """``x`` where it is above ``threshold``, ``value`` elsewhere.

    Args:
        input: Any shape.
        threshold: The bound.
        value: What stands for the rest.
        inplace: Overwrite the input.
    """
    if inplace:
        return _overwrite(activation.threshold, input, threshold, value)
    return activation.threshold(input, threshold, value)


def threshold_(input: Tensor, threshold: float, value: float) -> Any:
    """`threshold` in place."""
    return _overwrite(activation.threshold, input, threshold, value)


def glu(input: Tensor, dim: int = -1) -> Any:
    """The first half of the input along a dimension times the sigmoid of the second.

    Raises:
        ShapeError: When the input is 0-d, or the dimension's length is odd.
    """
    if input.ndim == 0:
        raise ShapeError("glu does not support 0-dimensional tensors because halving size must be even")
    if input.shape[dim] % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {dim} of {tuple(input.shape)} is odd")
    first, second = input.chunk(2, dim)
    return first * activation.sigmoid(second)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """A draw from a categorical distribution, relaxed so that it has a gradient (Jang et al. 2017).

    Args:
        logits: Unnormalized log-probabilities.
        tau: The temperature; small ones give nearly one-hot draws.
        hard: Return one-hot draws, with the relaxed draw's gradient.
        eps: Taken for compatibility.
        dim: The dimension that holds the categories.
    """
    uniform = rand_like(logits).clamp(finfo(logits.dtype).tiny)  # a draw of 0 has no logarithm
    soft = softmax((logits - (-uniform.log()).log()) / tau, dim)
    if not hard:
        return soft
    index = soft.detach().argmax(dim, keepdim=True)
    one_hot = write(soft.detach().clone(), 0).scatter(dim, index, 1.0)
    return one_hot - soft.detach() + soft
