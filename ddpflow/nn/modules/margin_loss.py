"""Losses that push pairs or triplets of vectors apart by a margin."""

from collections.abc import Callable
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.modules.distance import PairwiseDistance
from ddpflow.nn.modules.loss import Loss

__all__ = [
    "CosineEmbeddingLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _MarginLoss(Loss):
    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """``1 - cos`` for pairs labelled 1, ``max(0, cos - margin)`` for pairs labelled -1.

    Args:
        margin: How similar unlike pairs may be.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Any:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_MarginLoss):
    """``max(0, -target * (input1 - input2) + margin)``: the first should rank above the second where the target is 1.

    Args:
        margin: By how much.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Any:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """The input where the target is 1, ``max(0, margin - input)`` where it is -1.

    Args:
        margin: The margin.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(Loss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1.

    Args:
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class TripletMarginLoss(Loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with the p-norm distance.

    Args:
        margin: By how much the negative should be farther.
        p: The norm's degree.
        eps: Keeps the gradient finite where vectors are equal.
        swap: Take the positive's distance to the negative if that is less (Balntas et al. 2016).
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: When the margin is not positive.
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueRangeError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Any:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(Loss):
    """`TripletMarginLoss` with any distance.

    Args:
        distance_function: A function of two tensors; by default `PairwiseDistance`.
        margin: By how much the negative should be farther.
        swap: Take the positive's distance to the negative if that is less.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: When the margin is not positive.
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueRangeError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function: Any = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Any:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
