"""How losses are reduced: ``"none"``, ``"mean"`` or ``"sum"``."""

from ddpflow.errors import ValueRangeError

__all__ = ["legacy_reduction", "reduce_loss"]


def legacy_reduction(reduction, size_average=None, reduce=None):
    """The reduction, from PyTorch's argument or its deprecated forms.

    Raises:
        ValueRangeError: For an unknown word.
    """
    if size_average is not None or reduce is not None:
        if reduce is False:
            return "none"
        return "mean" if size_average is not False else "sum"
    if reduction not in ("mean", "sum", "none"):
        raise ValueRangeError(f"{reduction!r} is not a valid value for reduction: use 'mean', 'sum' or 'none'")
    return reduction


def reduce_loss(loss, reduction, size_average=None, reduce=None):
    """The losses of all elements, or their mean or sum."""
    reduction = legacy_reduction(reduction, size_average, reduce)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
