"""Losses of predictions against numbers or probabilities, element by element and then reduced, under PyTorch's names.

All take ``reduction``: ``"mean"``, ``"sum"`` or ``"none"``; ``size_average`` and ``reduce`` are its deprecated forms.
"""

import math

import numpy as np

from ddpflow.autograd.autocast import in_float32
from ddpflow.autograd.op import Floats, op
from ddpflow.autograd.ops.dims import need_floating
from ddpflow.autograd.ops.pairwise import xlogy
from ddpflow.autograd.ops.reduction import legacy_reduction, reduce_loss
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
]

_PAIRS = [((3, 4), (3, 4)), ((2, 3), (3,)), ((), ())]
_SHARES = [(Floats((3, 4), 0.1, 0.9), Floats((3, 4), 0.0, 1.0)), (Floats((), 0.2, 0.7), Floats((), 0.2, 0.7))]


def _check(name, input, target):
    try:
        np.broadcast_shapes(input.shape, target.shape)
    except ValueError:
        raise ShapeError(
            f"{name}(): an input of shape {tuple(input.shape)} and a target of shape {tuple(target.shape)} do not fit"
        ) from None


def _check_same(name, input, target):
    if tuple(input.shape) != tuple(target.shape):
        raise ValueRangeError(
            f"{name}(): the target's shape {tuple(target.shape)} must be the same as the input's {tuple(input.shape)}"
        )


def _weighted(losses, weight, reduction, size_average=None, reduce=None):
    """Reduces losses times weights; the mean is over the weights."""
    if weight is None:
        return reduce_loss(losses, reduction, size_average, reduce)
    reduction = legacy_reduction(reduction, size_average, reduce)
    losses = losses * weight
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weight.expand_as(losses).sum()


@op(
    samples=[((3, 4), (3, 4), "mean"), ((2, 3), (3,), "sum"), ((3,), (3,), "none")],
    promote="common",
    tensors=2,
    name="mse_loss",
)
def _mse(xp, input, target, reduction):
    """Squared difference, reduced."""
    squares = input - target
    squares *= squares
    out = squares if reduction == "none" else squares.sum() if reduction == "sum" else squares.mean()
    factor = 2 / squares.size if reduction == "mean" and squares.size else 2
    return out, (lambda g: (input - target) * (g * factor), lambda g: (target - input) * (g * factor))


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Mean squared difference of an input and a target (PyTorch's ``F.mse_loss``).

    Args:
        input: Any shape.
        target: The same shape, or one that broadcasts.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: Factors of the squares, or None; the mean is then over the weights.

    Raises:
        ShapeError: When the shapes do not broadcast.
    """
    _check("mse_loss", input, target)
    need_floating("mse_loss", target.array if input.array.dtype.kind in "iub" else input.array)
    if weight is None:
        return _mse(input, target, legacy_reduction(reduction, size_average, reduce))
    return _weighted(_mse(input, target, "none"), weight, reduction, size_average, reduce)


@in_float32
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Mean absolute difference; arguments as `mse_loss`. Its gradient where both are equal is 0."""
    _check("l1_loss", input, target)
    return _weighted((input - target).abs(), weight, reduction, size_average, reduce)


@op(samples=[(*pair, 0.5) for pair in _PAIRS], promote="common", tensors=2)
def smooth_difference(xp, input, target, beta):
    """Half the square over ``beta`` of differences below ``beta``, the absolute difference less ``beta / 2`` above."""
    size = abs(input - target)
    out = xp.where(size < beta, size * size * (0.5 / beta), size - 0.5 * beta)
    return out, (
        lambda g: g * xp.clip((input - target) / beta, -1, 1),
        lambda g: g * xp.clip((target - input) / beta, -1, 1),
    )


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Squared below a difference of ``beta``, absolute above (PyTorch's ``F.smooth_l1_loss``).

    Raises:
        ShapeError: When the shapes do not broadcast, or beta is negative.
    """
    _check("smooth_l1_loss", input, target)
    if beta < 0:
        raise ShapeError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    losses = (input - target).abs() if beta == 0 else smooth_difference(input, target, float(beta))
    return reduce_loss(losses, reduction, size_average, reduce)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Half the square below a difference of ``delta``, linear above (PyTorch's ``F.huber_loss``).

    Raises:
        ShapeError: When the shapes do not broadcast, or delta is not positive.
    """
    _check("huber_loss", input, target)
    if delta <= 0:
        raise ShapeError(f"huber_loss does not support non-positive values for delta, got {delta}")
    return _weighted(smooth_difference(input, target, float(delta)) * float(delta), weight, reduction)


@op(samples=_SHARES, promote="common")
def bernoulli_nll(xp, input, target):
    """``-(t * log(p) + (1 - t) * log(1 - p))`` with logarithms not below -100, as PyTorch clamps them."""
    yes, no = xp.maximum(xp.log(input), -100), xp.maximum(xp.log1p(-input), -100)
    return (target - 1) * no - target * yes, (
        lambda g: g * (input - target) / xp.maximum((1 - input) * input, 1e-12),
        lambda g: g * (xp.maximum(xp.log1p(-input), -100) - xp.maximum(xp.log(input), -100)),
    )


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Cross entropy of probabilities and targets between 0 and 1 (PyTorch's ``F.binary_cross_entropy``).

    Args:
        input: Probabilities, any shape.
        target: The same shape.
        weight: Factors of the losses, or None.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: When the shapes differ.
        ShapeError: When an input is outside [0, 1].
    """
    _check_same("binary_cross_entropy", input, target)
    values = input.array
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ShapeError("binary_cross_entropy(): all elements of input should be between 0 and 1")
    losses = bernoulli_nll(input, target)
    return reduce_loss(losses if weight is None else losses * weight, reduction, size_average, reduce)


@op(
    samples=[((3, 4), Floats((3, 4), 0.0, 1.0), None), ((2, 3), Floats((2, 3), 0.0, 1.0), Floats((3,), 0.5, 2.0))],
    tensors=3,
)
def logit_nll(xp, input, target, pos_weight):
    """``(1 - t) * x + w * log(1 + exp(-x))`` with ``w = 1 + (pos_weight - 1) * t``, without overflow."""
    small = xp.log1p(xp.exp(-abs(input)))  # added last, so that it is not lost beside a large input
    if pos_weight is None:
        return small + (xp.maximum(input, 0) - target * input), (
            lambda g: g * (1 / (1 + xp.exp(-input)) - target),
            lambda g: -g * input,
            None,
        )

    def weight(t):
        return 1 + (pos_weight - 1) * t

    soft = small + xp.maximum(-input, 0)
    large = (1 - target) * input + weight(target) * xp.maximum(-input, 0)
    return weight(target) * small + large, (
        lambda g: g * (1 - target - weight(target) / (1 + xp.exp(input))),
        lambda g: g * ((pos_weight - 1) * soft - input),
        lambda g: g * target * soft,
    )


def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """`binary_cross_entropy` of ``sigmoid(input)``, computed without overflow; ``pos_weight`` scales positive targets.

    Raises:
        ValueRangeError: When the shapes differ.
    """
    _check_same("binary_cross_entropy_with_logits", input, target)
    losses = logit_nll(input, target.to(input.dtype), pos_weight)
    return reduce_loss(losses if weight is None else losses * weight, reduction, size_average, reduce)


@in_float32
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """Kullback-Leibler divergence of log-probabilities ``input`` from a target (PyTorch's ``F.kl_div``).

    Args:
        input: Log-probabilities, any shape.
        target: Probabilities, or their logarithms with ``log_target``.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: Also ``"batchmean"``: the sum over the batch size, which is the mathematical definition's mean.
        log_target: Whether the target is in logarithms.
    """
    _check("kl_div", input, target)
    losses = target.exp() * (target - input) if log_target else xlogy(target, target) - target * input
    if reduction == "batchmean" and size_average is None and reduce is None:
        return losses.sum() / (input.shape[0] if input.ndim else 1)
    return reduce_loss(losses, reduction, size_average, reduce)


@in_float32
def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):
    """Negative log likelihood of counts under a Poisson distribution (PyTorch's ``F.poisson_nll_loss``).

    Args:
        input: The rates' logarithms, or the rates without ``log_input``.
        target: Counts.
        log_input: Whether the input is in logarithms.
        full: Add Stirling's approximation of ``log(target!)``.
        size_average: Deprecated form of ``reduction``.
        eps: Added to rates before their logarithm.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        losses = losses + stirling.where(target > 1, 0)
    return reduce_loss(losses, reduction, size_average, reduce)


@in_float32
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """Negative log likelihood under normal distributions (PyTorch's ``F.gaussian_nll_loss``).

    Args:
        input: Means.
        target: Samples of the same shape.
        var: Variances: that shape, or without (or with 1 as) the last dimension, or a number.
        full: Add the constant term.
        eps: Least variance; below it the variance gets no gradient.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: When the variances' shape does not fit or one is negative.
    """
    if isinstance(var, (int, float)):
        if var < 0:
            raise ValueRangeError("var has negative entry/entries")
        var = var * (input.detach() * 0 + 1)
    shape = tuple(input.shape)
    if tuple(var.shape) != shape:
        if tuple(var.shape) == shape[:-1]:
            var = var.unsqueeze(-1)
        elif not (len(var.shape) == len(shape) and all(v in (n, 1) for v, n in zip(var.shape, shape, strict=True))):
            raise ValueRangeError(f"var is of incorrect size {tuple(var.shape)} for an input of {shape}")
    if var.array.size and var.array.min() < 0:
        raise ValueRangeError("var has negative entry/entries")
    floored = var + (var.detach().clamp(min=eps) - var.detach())
    losses = 0.5 * (floored.log() + (input - target) ** 2 / floored)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduce_loss(losses, reduction)
