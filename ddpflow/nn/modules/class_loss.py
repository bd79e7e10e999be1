"""Losses of scores against class labels, and of sequences against label sequences."""

import math
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.modules.linear import Linear
from ddpflow.nn.modules.loss import Loss, WeightedLoss

__all__ = [
    "CTCLoss",
    "CrossEntropyLoss",
    "LinearCrossEntropyLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
]


class CrossEntropyLoss(WeightedLoss):
    """The cross entropy of scores ``(N, C, *)`` against class numbers ``(N, *)`` or probabilities ``(N, C, *)``.

    Args:
        weight: A weight for each class.
        size_average: As for `Loss`.
        ignore_index: A label that does not count; where all labels are ignored the mean is NaN, its gradient 0.
        reduce: As for `Loss`.
        reduction: ``"mean"`` over the weights of what counts, ``"sum"`` or ``"none"``.
        label_smoothing: The share of each target that is spread over all classes.

    Example:
        >>> import ddpflow
        >>> loss = ddpflow.nn.CrossEntropyLoss()
        >>> loss(ddpflow.zeros(2, 4), ddpflow.tensor([1, 3])).item()  # log 4
        1.3862943649291992
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(WeightedLoss):
    """The negative of the target class's log-probability: `CrossEntropyLoss` after `LogSoftmax`.

    Args:
        weight: A weight for each class.
        size_average: As for `Loss`.
        ignore_index: A label that does not count.
        reduce: As for `Loss`.
        reduction: ``"mean"`` over the weights of what counts, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` of images, under its older name."""


class MultiMarginLoss(WeightedLoss):
    """A hinge loss over classes: how far other classes come within ``margin`` of the target's score.

    Args:
        p: The power, 1 or 2.
        margin: The margin.
        weight: A weight for each class.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueRangeError: For another power, or a weight that is not 1-d.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueRangeError(f"only p == 1 and p == 2 supported, not {p}")
        if weight is not None and weight.ndim != 1:
            raise ValueRangeError(f"MultiMarginLoss: expected weight to be None or 1D, not {tuple(weight.shape)}")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(Loss):
    """A hinge loss over classes with several targets: the labels before the first -1 of each row.

    Args:
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """Binary cross entropy of each class's logit, averaged over the classes.

    Args:
        weight: A weight for each class.
        size_average: As for `Loss`.
        reduce: As for `Loss`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class CTCLoss(Loss):
    """The negative log-probability of label sequences summed over all alignments (Graves et al. 2006).

    ``forward`` takes log-probabilities ``(T, N, C)``, the targets, and the lengths of both.

    Args:
        blank: The label for "no label".
        reduction: ``"mean"`` divides by the target lengths first, ``"sum"`` or ``"none"``.
        zero_infinity: Count losses that are infinite (a target too long for its input) as zero.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Any:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class LinearCrossEntropyLoss(WeightedLoss):
    """A linear layer and the cross entropy of its scores in one.

    Args:
        in_features: The length of the input's last dimension.
        num_classes: The number of classes.
        out_features: Further dimensions of the scores, for losses over several places.
        bias: Add a learned constant to the scores.
        device: Where the layer's parameters live.
        dtype: Their type.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: A weight for each class.
        ignore_index: A label that does not count.
        label_smoothing: The share of each target that is spread over all classes.
        options: PyTorch's choice of an implementation; it means nothing here.

    Raises:
        ShapeError: When the weight does not fit the classes, or the smoothing is no share.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ShapeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise ShapeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        scores = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, scores, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Any:
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
