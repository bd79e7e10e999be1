"""Losses over classes: cross entropy and negative log likelihood, from class indices or class probabilities."""

import numpy as np

from ddpflow.autograd.kernels import cuda
from ddpflow.autograd.kernels import softmax as kernels
from ddpflow.autograd.op import Ints, apply, op
from ddpflow.autograd.ops.dims import need_floating
from ddpflow.autograd.ops.reduction import legacy_reduction
from ddpflow.autograd.ops.selecting import masked_fill
from ddpflow.autograd.ops.softmax import log_softmax
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError, ValueRangeError

__all__ = ["cross_entropy", "nll_loss", "pick_class"]


def _prepare(xp, target, weight, ignore_index, reduction, classes, dtype):
    """Class indices that are safe to index with, and what each sample's loss counts in the result (0 where ignored)."""
    if target.dtype.kind not in "iu":
        raise DtypeError(f"class indices must be integers (int64), not {target.dtype}")
    if xp is not np and cuda.fits_classes(xp, target, weight, dtype):
        index, coefficient, valid = cuda.class_weights(xp, target, weight, ignore_index, classes, dtype)
        return index, coefficient, _total(xp, coefficient, reduction), valid
    ignored = target == ignore_index
    outside = ((target < 0) | (target >= classes)) & ~ignored
    if xp is np:
        if xp.any(outside):
            label = int(target[outside].ravel()[0])
            raise IndexRangeError(f"Target {label} is out of bounds: labels are 0 to {classes - 1}, or ignore_index")
        replaced = bool(xp.any(ignored))
        index = xp.where(ignored, 0, target) if replaced else target
    else:  # to ask would make the host wait: on a GPU a label out of bounds makes the loss NaN
        replaced = True
        index = xp.where(ignored | outside, 0, target)
    coefficient = xp.ones(target.shape, dtype) if weight is None else weight[index].astype(dtype, copy=False)
    if replaced:
        coefficient = xp.where(ignored, xp.zeros((), dtype), coefficient)
    if xp is not np:
        coefficient = xp.where(outside, xp.full((), xp.nan, dtype), coefficient)
    return index, coefficient, _total(xp, coefficient, reduction), ~ignored


def _total(xp, coefficient, reduction):
    """What a mean divides by."""
    if reduction != "mean":
        return None
    return coefficient.sum(dtype=xp.float32 if coefficient.dtype.itemsize == 2 else None)


@op(samples=[(Ints((4,), 3), None, -100, "mean", 3, np.dtype("float32"))], differentiable=False, tensors=2)
def class_coefficients(xp, target, weight, ignore_index, reduction, classes, dtype):
    """For class indices: safe indices, and the share of each sample in the reduced loss, 0 where it is ignored."""
    index, coefficient, total, _ = _prepare(xp, target, weight, ignore_index, reduction, classes, dtype)
    if total is not None:
        coefficient = (coefficient / xp.where(total == 0, 1, total)).astype(dtype)
    return index, coefficient


@op(samples=[((3, 4), Ints((3,), 4)), ((2, 3, 4), Ints((2, 4), 3))])
def pick_class(xp, input, index):
    """One entry along axis 1 for each index: ``input[n, index[n, ...], ...]``."""
    classes = input.shape[1]
    out = xp.take_along_axis(input, xp.expand_dims(index, 1), 1)[:, 0]
    return out, (lambda g: apply(xp, spread_class, g, index, classes), None)


@op(samples=[((3,), Ints((3,), 4), 4), ((2, 4), Ints((2, 4), 3), 3)])
def spread_class(xp, input, index, classes):
    """The adjoint of `pick_class`: zeros but for one entry along axis 1."""
    out = xp.zeros((index.shape[0], classes, *index.shape[1:]), input.dtype)
    xp.put_along_axis(out, xp.expand_dims(index, 1), xp.expand_dims(input, 1), 1)
    return out, (lambda g: apply(xp, pick_class, g, index), None, None)


def _indexed_composite(xp, input, target, weight, ignore_index, reduction, label_smoothing):
    classes = input.shape[1]
    index, coefficient = class_coefficients(target, weight, ignore_index, reduction, classes, input.array.dtype)
    logp = log_softmax(input, 1)
    loss = pick_class(logp, index) * coefficient * (label_smoothing - 1)
    if label_smoothing:
        weighted = logp if weight is None else logp * weight.reshape(-1, *[1] * (input.ndim - 2))
        share = coefficient if weight is None else coefficient / weight[index]
        loss = loss - weighted.sum(1) * share * (label_smoothing / classes)
    return loss if reduction == "none" else loss.sum()


@op(
    samples=[
        ((5, 3), Ints((5,), 3), None, -100, "mean", 0.0),
        ((5, 3), Ints((5,), 3), None, 1, "sum", 0.1),
        ((2, 3, 4), Ints((2, 4), 3), None, -100, "none", 0.0),
    ],
    tensors=3,
    name="cross_entropy",
    composite=_indexed_composite,
)
def _cross_entropy(xp, input, target, weight, ignore_index, reduction, label_smoothing):
    """Cross entropy of logits ``(N, C, ...)`` and class indices ``(N, ...)`` in one pass; see `cross_entropy`."""
    classes, dtype = input.shape[1], input.dtype
    index, coefficient, total, valid = _prepare(xp, target, weight, ignore_index, reduction, classes, dtype)
    loss, lse = kernels.cross_entropy(xp, input, index)
    smooth = label_smoothing / classes
    loss = xp.where(coefficient == 0, 0, loss * coefficient)
    column = (1, -1, *[1] * (input.ndim - 2))
    weights = xp.ones(classes, dtype) if weight is None and smooth else weight
    if smooth:
        spread = weights.sum() * lse - (input * weights.reshape(column)).sum(1)
        loss = loss * (1 - label_smoothing) + xp.where(valid, spread * smooth, 0)
    if reduction == "none":
        out = loss.astype(dtype)
    else:
        out = loss.sum() if total is None else loss.sum() / total
        out = xp.asarray(out, dtype)

    def vjp(g):
        share = g if total is None else g / xp.where(total == 0, 1, total)
        scale = coefficient * share
        if not smooth:
            return kernels.cross_entropy_backward(xp, input, index, lse, scale.astype(dtype, copy=False))
        gx = kernels.cross_entropy_backward(xp, input, index, lse, (scale * (1 - label_smoothing)).astype(dtype))
        each = valid * share * smooth
        p = xp.exp(input - xp.expand_dims(lse, 1)) * weights.sum() - weights.reshape(column)
        return gx + xp.where(xp.expand_dims(valid, 1), p * xp.expand_dims(each, 1), 0).astype(dtype)

    return out, (vjp, None, None)


def _check(name, input, target, weight, classes):
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{name}(): weight has shape {tuple(weight.shape)}; it needs one number for each of {classes} classes"
        )
    expected = tuple(input.shape[:1]) + tuple(input.shape[2:]) if input.ndim > 1 else ()
    if tuple(target.shape) != expected:
        if input.ndim > 1 and target.ndim > 0 and target.shape[0] != input.shape[0]:
            raise ValueRangeError(
                f"Expected input batch_size ({input.shape[0]}) to match target batch_size ({target.shape[0]})"
            )
        raise ShapeError(
            f"{name}(): class indices of shape {tuple(target.shape)} for an input of shape {tuple(input.shape)}; "
            f"expected {expected}"
        )


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """Negative log likelihood: minus the log-probability of each sample's class (PyTorch's ``F.nll_loss``).

    Args:
        input: Log-probabilities, ``(C,)`` or ``(N, C, ...)``.
        target: Class indices, ``()`` or ``(N, ...)``.
        weight: A weight for each class, or None.
        size_average: Deprecated form of ``reduction``.
        ignore_index: Samples with this label count for nothing.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"`` (over the weights of the samples that count; NaN if none does, with gradient 0),
            ``"sum"`` or ``"none"``.

    Raises:
        IndexRangeError: For a label outside the classes.
        ShapeError: When the shapes do not fit.
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    if input.ndim == 0:
        raise ShapeError("nll_loss(): the input needs a class dimension, but is 0-d")
    need_floating("nll_loss", input.array)
    classes = input.shape[0 if input.ndim == 1 else 1]
    _check("nll_loss", input, target, weight, classes)
    if input.ndim == 1:
        loss = nll_loss(input.reshape(1, -1), target.reshape(1), weight, None, ignore_index, None, reduction)
        return loss.reshape(()) if reduction == "none" else loss
    index, coefficient = class_coefficients(target, weight, ignore_index, reduction, classes, input.array.dtype)
    loss = pick_class(input, index) * -coefficient
    if reduction == "none":
        return loss
    total = loss.sum()
    if reduction != "mean":
        return total
    if coefficient.is_cuda:  # to ask would make the host wait
        return masked_fill(total, ~coefficient.any(), float("nan"))
    return total if coefficient.array.any() else total + float("nan")


def _with_probabilities(input, target, weight, reduction, label_smoothing):
    axis = 1 if input.ndim > 1 else 0
    if tuple(target.shape) != tuple(input.shape):
        raise ShapeError(
            f"cross_entropy(): class probabilities of shape {tuple(target.shape)} for an input of shape "
            f"{tuple(input.shape)}"
        )
    classes = input.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    loss = log_softmax(input, axis) * target
    if weight is not None:
        loss = loss * (weight if axis == 0 else weight.reshape(-1, *[1] * (input.ndim - 2)))
    if reduction == "none":
        return -loss.sum(axis)
    return -loss.sum() / (input.numel() / classes if reduction == "mean" else 1)


def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):
    """Cross entropy between logits and class indices or class probabilities (PyTorch's ``F.cross_entropy``).

    Args:
        input: Logits, ``(C,)`` or ``(N, C, ...)``.
        target: Class indices, ``()`` or ``(N, ...)``; or floating probabilities in the shape of the input.
        weight: A weight for each class, or None.
        size_average: Deprecated form of ``reduction``.
        ignore_index: Samples with this label count for nothing.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"`` (over the weights of the samples that count; NaN if none does, with gradient exactly 0),
            ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target that is spread evenly over all classes, from 0 to 1.

    Raises:
        IndexRangeError: For a label outside the classes.
        ShapeError: When the shapes do not fit.
        ValueRangeError: For an unknown reduction or a smoothing outside [0, 1].
    """
    if reduction != "mean" or size_average is not None or reduce is not None:
        reduction = legacy_reduction(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ShapeError(f"label_smoothing must be between 0.0 and 1.0, not {label_smoothing}")
    if input.ndim == 0:
        raise ShapeError("cross_entropy(): the input needs a class dimension, but is 0-d")
    need_floating("cross_entropy", input.array)
    if target.array.dtype.kind not in "iub":
        return _with_probabilities(input, target, weight, reduction, label_smoothing)
    _check("cross_entropy", input, target, weight, input.shape[0 if input.ndim == 1 else 1])
    if input.ndim == 1:
        loss = _cross_entropy(input.reshape(1, -1), target.reshape(1), weight, ignore_index, reduction, label_smoothing)
        return loss.reshape(()) if reduction == "none" else loss
    return _cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
