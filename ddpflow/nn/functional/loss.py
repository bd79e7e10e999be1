"""Losses that combine operations: of label sequences, and of a linear layer's scores."""

import math
from typing import Any

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops.classification import cross_entropy
from ddpflow.autograd.ops.compare import where
from ddpflow.autograd.ops.joining import stack
from ddpflow.autograd.ops.linear import linear
from ddpflow.autograd.ops.padding import pad
from ddpflow.autograd.ops.reduction import legacy_reduction
from ddpflow.autograd.ops.softmax import log_softmax
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.errors import ShapeError

__all__ = ["ctc_loss", "linear_cross_entropy"]

# The logarithm of no probability. Finite, so that sums of it and their gradients are never NaN.
_NEVER = -1e30


def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Tensor,
    *,
    linear_bias: Any = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Any:
    """The cross entropy of ``linear(input, linear_weight, linear_bias)`` against a target.

    Args:
        input: ``(N, features)`` or ``(features,)``.
        linear_weight: ``(C, features)``, or ``(C, d1, ..., features)`` for losses over several places.
        target: Class numbers ``(N, d1, ...)`` or probabilities ``(N, C, d1, ...)``.
        linear_bias: ``(C, d1, ...)``, or None.
        weight: A weight for each class.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: A label that does not count; by default -100.
        label_smoothing: The share of each target that is spread over all classes.
        options: PyTorch's choice of an implementation; it means nothing here.
    """
    classes, *places, features = linear_weight.shape
    rows = linear_weight.reshape(-1, features)
    logits = linear(input, rows, None if linear_bias is None else linear_bias.reshape(-1))
    if places:
        logits = logits.reshape(*input.shape[:-1], classes, *places)
    return cross_entropy(
        logits,
        target,
        weight=weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def ctc_loss(
    log_probs: Any,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """The negative log-probability of label sequences, summed over all alignments (Graves et al. 2006).

    Args:
        log_probs: Log-probabilities ``(T, N, C)`` or ``(T, C)``; they are normalized first, which changes nothing where
            they are log-probabilities.
        targets: Labels ``(N, S)``, or one target after another in one dimension.
        input_lengths: How many of the T steps count, for each sequence: a tensor or a list.
        target_lengths: The targets' lengths.
        blank: The label for "no label".
        reduction: ``"mean"`` divides by the target lengths, then averages; ``"sum"`` or ``"none"``.
        zero_infinity: Count infinite losses (a target too long for its input) as zero.

    Raises:
        ShapeError: When lengths or the blank do not fit.
    """
    reduction = legacy_reduction(reduction)
    batched = log_probs.ndim == 3
    scores = log_softmax(log_probs if batched else log_probs.unsqueeze(1), 2)
    steps, batch, classes = scores.shape
    if not 0 <= blank < classes:
        raise ShapeError(f"blank must be in label range: {blank} with {classes} classes")
    inputs = _lengths("input_lengths", input_lengths, batch, steps)
    labels, counts = _labels(targets, target_lengths, batch)
    # A blank before, between and after the labels; a label may be reached past a blank from another label before it.
    states = np.full((batch, 2 * labels.shape[1] + 1), blank, np.int64)
    states[:, 1::2] = labels
    skips = np.zeros(states.shape, bool)
    skips[:, 3::2] = labels[:, 1:] != labels[:, :-1]
    xp = array_module(scores.array)
    index = wrap(xp.asarray(states)).unsqueeze(0).expand(steps, -1, -1)
    emitted = scores.gather(2, index)
    may_skip = wrap(xp.asarray(skips))
    start = np.arange(states.shape[1])[None, :] < 2
    forward = where(wrap(xp.asarray(np.broadcast_to(start, states.shape).copy())), emitted[0], _NEVER)
    for step in range(1, steps):
        reach = pad(forward, (2, 0), value=_NEVER)
        skipped = where(may_skip, reach[:, :-2], _NEVER)
        reached = stack([forward, reach[:, 1:-1], skipped]).logsumexp(0) + emitted[step]
        running = step < inputs
        forward = reached if running.all() else where(wrap(xp.asarray(running[:, None])), reached, forward)
    last = np.stack([2 * counts, np.maximum(2 * counts - 1, 0)], 1)
    ends = forward.gather(1, wrap(xp.asarray(last)))
    ends = where(wrap(xp.asarray(np.stack([counts >= 0, counts > 0], 1))), ends, _NEVER)
    loss = -ends.logsumexp(1)
    possible = (loss.array < -_NEVER / 2) & xp.asarray(inputs > 0)
    otherwise = np.where(zero_infinity | ((inputs == 0) & (counts == 0)), 0.0, math.inf)
    loss = where(wrap(possible), loss, wrap(xp.asarray(otherwise.astype(loss.array.dtype))))
    if reduction == "mean":
        return (loss / wrap(xp.asarray(np.maximum(counts, 1)).astype(loss.array.dtype))).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if batched else loss.squeeze(0)


def _lengths(name: str, lengths: Any, batch: int, most: int) -> Any:
    values = lengths.numpy(force=True) if isinstance(lengths, Tensor) else lengths
    array = np.asarray(values, np.int64).reshape(-1)
    if array.size != batch:
        raise ShapeError(f"{name} must be of size batch_size: {array.size} lengths for a batch of {batch}")
    if array.size and (array.min() < 0 or array.max() > most):
        raise ShapeError(f"{name} must be between 0 and {most}, not {array.tolist()}")
    return array


def _labels(targets: Tensor, target_lengths: Any, batch: int) -> tuple[Any, Any]:
    """Targets as a matrix, and their lengths."""
    values = targets.numpy(force=True).astype(np.int64)
    if values.ndim == 1 and batch != 1:
        counts = _lengths("target_lengths", target_lengths, batch, values.size)
        if counts.sum() > values.size:
            raise ShapeError(f"target_lengths {counts.tolist()} add up to more than the {values.size} labels")
        labels = np.zeros((batch, int(counts.max(initial=0))), np.int64)
        starts = np.cumsum(counts) - counts
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            labels[row, :count] = values[start : start + count]
        return labels, counts
    values = values.reshape(batch, -1)
    return values, _lengths("target_lengths", target_lengths, batch, values.shape[1])
