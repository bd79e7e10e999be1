"""Softmax over many classes, most of them rare: the rare ones in clusters behind narrower layers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.nn import functional as F
from ddpflow.nn.module import Module
from ddpflow.nn.modules.container import ModuleList, Sequential
from ddpflow.nn.modules.linear import Linear

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class AdaptiveLoss(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` returns: the log probability of each sample's class, and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log probabilities of classes sorted by how frequent they are, most frequent first.

    The head scores the classes below the first cutoff and one entry for each cluster between two cutoffs; a cluster's
    classes are scored only for the samples that fall into it, through a layer ``div_value`` times narrower than the
    cluster's before. Source: Grave et al. 2017; PyTorch's conventions.

    Args:
        in_features: The length of the input's last dimension.
        n_classes: The number of classes.
        cutoffs: Where clusters begin, ascending, between 1 and ``n_classes - 1``.
        div_value: By how much each cluster's layer is narrower than the one before.
        head_bias: Add a learned constant in the head.
        device: Where the parameters live.
        dtype: Their type.

    Raises:
        ValueRangeError: When the cutoffs are not as said.

    Example:
        >>> import ddpflow
        >>> loss = ddpflow.nn.AdaptiveLogSoftmaxWithLoss(16, 1000, cutoffs=[10, 100])
        >>> loss(ddpflow.ones(2, 16), ddpflow.tensor([3, 500])).output.shape
        ddpflow.Size([2])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        ends = [*cutoffs, n_classes]
        if len(ends) < 2 or any(int(c) != c for c in ends) or ends != sorted(set(ends)) or ends[0] < 1:
            raise ValueRangeError(
                f"cutoffs should be unique, ascending integers, each between 1 and n_classes - 1, got {cutoffs}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = ends
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[0]
        self.n_clusters = len(ends) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(ends, ends[1:], strict=False)):
            width = int(in_features // div_value ** (i + 1))
            narrow, score = (
                Linear(*sizes, bias=False, **place) for sizes in ((in_features, width), (width, high - low))
            )
            self.tail.append(Sequential(narrow, score))

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        self.head.reset_parameters()
        for layers in self.tail:
            for layer in layers:  # type: ignore[attr-defined]
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveLoss:
        """The log probabilities of the targets, and the loss.

        Args:
            input_: Shape ``(N, in_features)`` or ``(in_features,)``.
            target_: Class numbers, shape ``(N,)`` or ``()``.

        Raises:
            ShapeError: When the shapes do not go together, or a target is not a class.
        """
        if input_.ndim not in (1, 2) or input_.shape[:-1] != target_.shape:
            raise ShapeError(
                f"input of shape {tuple(input_.shape)} does not go with a target of {tuple(target_.shape)}"
            )
        input, target = input_.reshape(-1, input_.shape[-1]), target_.reshape(-1)
        if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < self.n_classes:
            raise ShapeError(f"Target values should be in the range [0, {self.n_classes - 1}]")
        entry, inner = target.clone(), []
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel():
                entry[rows] = self.shortlist_size + i
                scores = F.log_softmax(self.tail[i](input[rows]), 1)
                inner.append((rows, scores.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)))
        output = F.log_softmax(self.head(input), 1).gather(1, entry.unsqueeze(1)).squeeze(1)
        for rows, part in inner:
            output = output.index_add(0, rows, part)
        return AdaptiveLoss(output.reshape(target_.shape), -output.mean())

    def log_prob(self, input: Tensor) -> Any:
        """The log probabilities of all classes, ``(N, n_classes)``, for an input ``(N, in_features)``."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, layers in enumerate(self.tail):
            parts.append(F.log_softmax(layers(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return cat(parts, 1)

    def predict(self, input: Tensor) -> Any:
        """The most probable class of each sample, ``(N,)``; clusters count where one has the greatest entry."""
        best = self.head(input).argmax(1)
        rows = (best >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            best[rows] = self.log_prob(input[rows]).argmax(1)
        return best

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.n_classes}, cutoffs={self.cutoffs[:-1]}, div_value={self.div_value}"
