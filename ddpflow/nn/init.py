"""Starting values of parameters, filled in place under ``no_grad``: PyTorch's distributions and gains.

Sources: Glorot and Bengio 2010 (xavier), He et al. 2015 (kaiming), Saxe et al. 2014 (orthogonal), Martens 2010
(sparse).
"""

import math
import warnings
from typing import Any

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.device import array_module, device_of, move
from ddpflow.errors import ValueRangeError
from ddpflow.random import Generator, draw_normal, draw_uniform, stream

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {"sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4, "linear": 1.0}
_GAINS |= {f"conv{kind}{n}d": 1.0 for kind in ("", "_transpose") for n in (1, 2, 3)}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity wants its layer's weights scaled, by name.

    Args:
        nonlinearity: A name in `ddpflow.nn.functional`, such as ``"relu"``.
        param: The negative slope, for ``"leaky_relu"`` (default 0.01).

    Raises:
        ValueRangeError: For a name that has no gain, or a slope that is no number.
    """
    if nonlinearity == "leaky_relu":
        if param is None:
            param = 0.01
        elif isinstance(param, bool) or not isinstance(param, (int, float)):
            raise ValueRangeError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + param**2))
    if nonlinearity not in _GAINS:
        raise ValueRangeError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _fill(tensor: Tensor, values: Any) -> Tensor:
    with no_grad():
        write(tensor, wrap(values) if hasattr(values, "dtype") else values)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from the uniform distribution on ``[a, b)``."""
    x = tensor.array
    values = draw_uniform(array_module(x), x.shape, x.dtype, generator)
    values *= float(b) - float(a)
    values += float(a)
    return _fill(tensor, values)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from the normal distribution.

    Raises:
        ValueRangeError: When ``std`` is negative.
    """
    if std < 0:
        raise ValueRangeError(f"normal_() takes a standard deviation >= 0, not {std}")
    x = tensor.array
    values = draw_normal(array_module(x), x.shape, x.dtype, generator)
    values *= float(std)
    if mean:
        values += float(mean)
    return _fill(tensor, values)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with draws from the normal distribution, those outside ``[a, b]`` drawn again.

    Args:
        tensor: What to fill.
        mean: The mean before cutting.
        std: The standard deviation before cutting.
        a: The least value.
        b: The greatest value.
        generator: Draw from this one.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )
    x = tensor.array
    xp = array_module(x)
    inside = _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std)
    values = xp.empty(x.shape, np.float64)
    pending = xp.ones(x.shape, bool)
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    while count := int(pending.sum()):
        if inside > 0.3:
            drawn = draw_normal(xp, (count,), np.dtype(np.float64), generator) * std + mean
            accepted = (drawn >= a) & (drawn <= b)
        else:  # far out in a tail: accept draws from the uniform distribution by the density
            drawn = draw_uniform(xp, (count,), np.dtype(np.float64), generator) * (b - a) + a
            density = xp.exp(-0.5 * ((drawn - mean) / std) ** 2 - peak)
            accepted = draw_uniform(xp, (count,), np.dtype(np.float64), generator) < density
        places = xp.flatnonzero(pending)[accepted]
        values.reshape(-1)[places] = drawn[accepted]
        pending.reshape(-1)[places] = False
    return _fill(tensor, xp.clip(values.astype(x.dtype), a, b))


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    return _fill(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return _fill(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return _fill(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity, as far as it goes.

    Raises:
        ValueRangeError: When the tensor has not two dimensions.
    """
    _check_matrix(tensor)
    x = tensor.array
    return _fill(tensor, array_module(x).eye(*x.shape, dtype=x.dtype))


def _check_matrix(tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise ValueRangeError(f"Only tensors with 2 dimensions are supported, not shape {tuple(tensor.shape)}")


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes its input on, channel by channel, as far as it goes.

    Args:
        tensor: A weight with 3, 4 or 5 dimensions.
        groups: The convolution's groups; each passes its own channels on.

    Raises:
        ValueRangeError: For another number of dimensions, or output channels that ``groups`` does not divide.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueRangeError(f"Only tensors with 3, 4, or 5 dimensions are supported, not shape {tuple(tensor.shape)}")
    x = tensor.array
    if x.shape[0] % groups != 0:
        raise ValueRangeError(f"dim 0 must be divisible by groups: {x.shape[0]} channels, {groups} groups")
    values = array_module(x).zeros_like(x)
    per_group = x.shape[0] // groups
    centre = tuple(n // 2 for n in x.shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, x.shape[1])):
            values[(group * per_group + channel, channel, *centre)] = 1
    return _fill(tensor, values)


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output depends on, and how many outputs an input reaches."""
    if tensor.ndim < 2:
        raise ValueRangeError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, "
            f"here of shape {tuple(tensor.shape)}"
        )
    outputs, inputs, *kernel = tensor.shape
    field = math.prod(kernel)
    return inputs * field, outputs * field


def _correct_fan(tensor: Tensor, mode: str) -> int:
    modes = ("fan_in", "fan_out")
    if mode.lower() not in modes:
        raise ValueRangeError(f"Mode {mode} not supported, please use one of {list(modes)}")
    return _fans(tensor)[modes.index(mode.lower())]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from ``[-a, a)``, where ``a = gain * sqrt(6 / (fan_in + fan_out))``."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal draws of deviation ``gain * sqrt(2 / (fan_in + fan_out))``."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with draws from ``[-b, b)``, where ``b = gain * sqrt(3 / fan)``.

    Args:
        tensor: A weight of shape (out, in, ...).
        a: The negative slope, for ``"leaky_relu"``.
        mode: ``"fan_in"`` keeps the variance of the forward pass, ``"fan_out"`` that of the backward pass.
        nonlinearity: What follows the layer; it sets the gain.
        generator: Draw from this one.
    """
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_correct_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normal draws of deviation ``gain / sqrt(fan)``; the arguments are those of `kaiming_uniform_`."""
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_correct_fan(tensor, mode)), generator)


def _is_empty(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a matrix whose rows or columns, whichever are fewer, are orthonormal; trailing dimensions count as one.

    Raises:
        ValueRangeError: When the tensor has fewer than two dimensions.
    """
    if tensor.ndim < 2:
        raise ValueRangeError(f"Only tensors with 2 or more dimensions are supported, not shape {tuple(tensor.shape)}")
    x = tensor.array
    if x.size == 0:
        return tensor
    xp, rows = array_module(x), x.shape[0]
    tall = sorted((rows, x.size // rows), reverse=True)
    q, r = xp.linalg.qr(draw_normal(xp, tuple(tall), np.dtype(np.float64), generator))
    q = q * xp.sign(xp.diagonal(r))  # makes the draw uniform over orthogonal matrices (Mezzadri 2006)
    matrix = q.T if rows < x.size // rows else q
    return _fill(tensor, (matrix.reshape(x.shape) * gain).astype(x.dtype))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal draws, and a share of each column with zeros.

    Args:
        tensor: The matrix.
        sparsity: The share of zeros in a column, rounded up to whole elements.
        std: The deviation of the rest.
        generator: Draw from this one.

    Raises:
        ValueRangeError: When the tensor has not two dimensions.
    """
    _check_matrix(tensor)
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    x = tensor.array
    xp = array_module(x)
    values = draw_normal(xp, x.shape, x.dtype, generator) * std
    for column in range(columns):
        chosen = move(np.argsort(stream(np).random(rows))[:zeros], device_of(x))
        values[chosen, column] = 0
    return _fill(tensor, values)
