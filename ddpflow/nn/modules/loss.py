"""Losses of predictions against numbers or probabilities; those with classes and margins stand in files of their own.

All take ``reduction``: ``"mean"``, ``"sum"``, or ``"none"`` for one loss for each element. ``size_average`` and
``reduce`` are PyTorch's older names for it.
"""

from typing import Any

from ddpflow.autograd.ops.reduction import legacy_reduction
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import DtypeError
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "GaussianNLLLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "Loss",
    "MSELoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "WeightedLoss",
]


class Loss(Module):
    """What all losses share: how the elements' losses become one.

    Args:
        size_average: The older name for ``"mean"`` (True) and ``"sum"`` (False).
        reduce: The older name for ``"none"`` (False).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction: str = reduction
        if size_average is not None or reduce is not None:
            self.reduction = legacy_reduction(reduction, size_average, reduce)


class WeightedLoss(Loss):
    """A loss with a weight for each class, or for each element.

    Args:
        weight: The weights, kept as a buffer.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


_Loss, _WeightedLoss = Loss, WeightedLoss  # PyTorch's names, from which scripts derive losses of their own


class L1Loss(Loss):
    """The mean absolute difference.

    Args:
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(Loss):
    """The mean squared difference.

    Args:
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Loss):
    """Squared where the difference is below ``beta``, absolute above.

    Args:
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        beta: Where the two meet.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """`SmoothL1Loss` times ``delta``: squared where the difference is below ``delta``, linear above.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        delta: Where the two meet.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (float, int)):
            raise DtypeError(f"delta must be a float or int, got: {type(delta).__name__}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class BCELoss(WeightedLoss):
    """Binary cross entropy of probabilities; for logits take `BCEWithLogitsLoss`, which cannot overflow.

    Args:
        weight: Scales the elements' losses.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """Binary cross entropy of logits.

    Args:
        weight: Scales the elements' losses.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: Scales the losses of positive targets.
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(Loss):
    """The Kullback-Leibler divergence of log-probabilities from target probabilities.

    Args:
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"batchmean"`` for the mean over samples, which is the divergence's definition; ``"mean"``,
            ``"sum"`` or ``"none"``.
        log_target: The target holds log-probabilities too.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class GaussianNLLLoss(Loss):
    """The negative log-likelihood of targets under normal distributions with predicted means and variances.

    Args:
        full: Add the constant term.
        eps: The least variance.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Any:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class PoissonNLLLoss(Loss):
    """The negative log-likelihood of counts under Poisson distributions with predicted rates.

    Args:
        log_input: The input is the rate's logarithm.
        full: Add Stirling's approximation of the constant term.
        size_average: As for `Loss`.
        eps: Added to the rate before its logarithm is taken.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Any:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )
