"""Losses that push scores, pairs or triplets apart by a margin; PyTorch's names and arguments."""

from ddpflow.autograd.autocast import in_float32
from ddpflow.autograd.ops.activation import logsigmoid
from ddpflow.autograd.ops.classification import pick_class
from ddpflow.autograd.ops.distance import pairwise_distance
from ddpflow.autograd.ops.reduction import legacy_reduction, reduce_loss
from ddpflow.errors import IndexRangeError, ShapeError, ValueRangeError

__all__ = [
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


@in_float32
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """``max(0, -target * (input1 - input2) + margin)``: input1 is to rank higher where the target is 1, lower where -1.

    Raises:
        ShapeError: When the numbers of dimensions differ.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"{tuple(input1.shape)}, {tuple(input2.shape)}, {tuple(target.shape)}"
        )
    return reduce_loss((margin - target * (input1 - input2)).clamp(min=0), reduction, size_average, reduce)


@in_float32
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1."""
    zeros = input * 0
    losses = (margin - input).clamp(min=0).where(target != 1, zeros) + input.where(target != -1, zeros)
    return reduce_loss(losses, reduction, size_average, reduce)


@in_float32
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """``1 - cos`` of pairs with target 1, ``max(0, cos - margin)`` of pairs with target -1.

    Args:
        input1: Shape ``(N, D)``, or ``(D,)``.
        input2: The same.
        target: Shape ``(N,)``, or ``()``: 1 or -1.
        margin: From -1 to 1.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ShapeError: When the shapes do not fit.
    """
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1 or target.ndim > 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{tuple(input1.shape)} and {tuple(input2.shape)}"
        )
    eps = 1e-12
    squares1, squares2 = (input1 * input1).sum(-1) + eps, (input2 * input2).sum(-1) + eps
    cosine = (input1 * input2).sum(-1) / (squares1 * squares2).sqrt()
    zeros = cosine * 0
    losses = (1 - cosine).where(target == 1, zeros) + (cosine - margin).clamp(min=0).where(target == -1, zeros)
    return reduce_loss(losses, reduction, size_average, reduce)


@in_float32
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Hinge loss over classes: the mean over j of ``max(0, margin - x[y] + x[j]) ** p``, without j = y.

    Args:
        input: Scores ``(N, C)``, or ``(C,)``.
        target: Labels ``(N,)``, or ``()``.
        p: 1 or 2.
        margin: Wanted distance.
        weight: A weight for each class, or None.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: When p is neither 1 nor 2.
        IndexRangeError: For a label outside the classes.
    """
    if p not in (1, 2):
        raise ValueRangeError("only p == 1 and p == 2 supported")
    scores, labels = (input, target) if input.ndim == 2 else (input.reshape(1, -1), target.reshape(1))
    classes = scores.shape[1]
    if labels.numel() and not 0 <= int(labels.array.min()) <= int(labels.array.max()) < classes:
        raise IndexRangeError(f"multi_margin_loss(): a label is out of bounds: labels are 0 to {classes - 1}")
    gaps = (margin - pick_class(scores, labels).unsqueeze(1) + scores).clamp(min=0)
    if p == 2:
        gaps = gaps * gaps
    if weight is not None:
        gaps = gaps * weight[labels].unsqueeze(1)
    others = labels.unsqueeze(1) != labels.new_tensor(range(classes))
    losses = gaps.where(others, gaps * 0).sum(1) / classes
    return reduce_loss(losses if input.ndim == 2 else losses.reshape(()), reduction, size_average, reduce)


@in_float32
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Hinge loss between every labelled and every other class; each row of labels ends at its first -1.

    Args:
        input: Scores ``(N, C)``, or ``(C,)``.
        target: Labels in the same shape, each row filled up with -1.
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ShapeError: When the shapes differ.
    """
    if tuple(input.shape) != tuple(target.shape) or input.ndim > 2:
        raise ShapeError(
            f"multilabel_margin_loss(): inconsistent target size {tuple(target.shape)} for an input of "
            f"{tuple(input.shape)}"
        )
    scores = input if input.ndim == 2 else input.reshape(1, -1)
    labels = target if target.ndim == 2 else target.reshape(1, -1)
    classes = scores.shape[1]
    listed = (labels < 0).cumsum(1) == 0  # before the first -1
    slots = labels.where(listed, 0)
    hits = (slots.unsqueeze(2) == labels.new_tensor(range(classes))) & listed.unsqueeze(2)
    labelled = hits.any(1)
    chosen = scores.gather(1, slots)
    gaps = (1 - chosen.unsqueeze(2) + scores.unsqueeze(1)).clamp(min=0)
    counted = listed.unsqueeze(2) & labelled.logical_not().unsqueeze(1)
    losses = gaps.where(counted, gaps * 0).sum((1, 2)) / classes
    return reduce_loss(losses if input.ndim == 2 else losses.reshape(()), reduction, size_average, reduce)


@in_float32
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Binary cross entropy of logits, averaged over the classes (the last dimension)."""
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        losses = losses * weight
    return reduce_loss(losses.mean(-1), reduction, size_average, reduce)


@in_float32
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """``log(1 + exp(-target * input))`` for targets 1 and -1.

    Raises:
        ShapeError: When the shapes differ.
    """
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(f"soft_margin_loss(): shapes {tuple(input.shape)} and {tuple(target.shape)} differ")
    return reduce_loss(-logsigmoid(target * input), reduction, size_average, reduce)


@in_float32
def triplet_margin_loss(
    anchor,
    positive,
    negative,
    margin=1.0,
    p=2,
    eps=1e-6,
    swap=False,
    size_average=None,
    reduce=None,
    reduction="mean",
):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with p-norm distances.

    Args:
        anchor: Shape ``(N, D)``, or ``(D,)``.
        positive: The same.
        negative: The same.
        margin: Wanted difference, positive.
        p: Degree of the norm.
        eps: Added to differences.
        swap: Use the distance of positive and negative where it is smaller (Balntas et al. 2016).
        size_average: Deprecated form of ``reduction``.
        reduce: Deprecated form of ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: When the margin is not positive.
    """
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=legacy_reduction(reduction, size_average, reduce),
    )


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """`triplet_margin_loss` with a distance of one's own; the default is `pairwise_distance`.

    Raises:
        ShapeError: When the numbers of dimensions differ.
        ValueRangeError: When the margin is not positive.
    """
    if margin <= 0:
        raise ValueRangeError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduce_loss((margin + near - far).clamp(min=0), reduction)
