"""Losses between predictions and targets, element by element and then reduced; PyTorch's names and arguments."""

import numpy as np

from ddpflow.autograd.op import op
from ddpflow.autograd.ops.reduction import legacy_reduction
from ddpflow.errors import ShapeError

__all__ = ["mse_loss"]

_PAIRS = [((3, 4), (3, 4)), ((2, 3), (3,)), ((), ())]


@op(
    samples=[((3, 4), (3, 4), "mean"), ((2, 3), (3,), "sum"), ((3,), (3,), "none")],
    promote="common",
    tensors=2,
    name="mse_loss",
)
def _mse(xp, input, target, reduction):
    """Squared difference, reduced."""
    difference = input - target
    squares = difference * difference
    out = squares if reduction == "none" else squares.sum() if reduction == "sum" else squares.mean()
    factor = 2 / squares.size if reduction == "mean" and squares.size else 2
    return out, (lambda g: (input - target) * (g * factor), lambda g: (target - input) * (g * factor))


def _compatible(name, input, target):
    try:
        np.broadcast_shapes(input.shape, target.shape)
    except ValueError:
        raise ShapeError(
            f"{name}(): an input of shape {tuple(input.shape)} and a target of shape {tuple(target.shape)} do not fit"
        ) from None


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Mean squared difference of an input and a target (PyTorch's ``F.mse_loss``).

    Args:
        input: Any shape.
        target: The same shape, or one that broadcasts.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: Factors of the squares, or None.

    Raises:
        ShapeError: When the shapes do not broadcast.
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    _compatible("mse_loss", input, target)
    if weight is None:
        return _mse(input, target, reduction)
    losses = _mse(input, target, "none") * weight
    return (
        losses if reduction == "none" else losses.sum() / (1 if reduction == "sum" else weight.expand_as(losses).sum())
    )
