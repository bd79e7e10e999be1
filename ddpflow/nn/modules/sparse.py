"""Tables of vectors: embeddings and sums of them."""

from typing import Any, Self

from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.views import write
from ddpflow.errors import ValueRangeError
from ddpflow.factories import empty
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """What both share: the weight, how it starts, and the row that stays zero."""

    padding_idx: int | None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Tensor | None,
        freeze: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueRangeError(
                    f"padding_idx must be within num_embeddings: {padding_idx} is no row of {num_embeddings}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if weight is None:
            made = empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(made, requires_grad=not freeze)
            self.reset_parameters()
        else:
            if tuple(weight.shape) != (num_embeddings, embedding_dim):
                raise ValueRangeError(
                    f"the weight of shape {tuple(weight.shape)} does not match num_embeddings and embedding_dim, "
                    f"({num_embeddings}, {embedding_dim})"
                )
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                write(self.weight, 0, self.padding_idx)


class Embedding(_Table):
    """A table of vectors, looked up by row number.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The length of a row.
        padding_idx: A row that starts at zero and gets no gradient.
        max_norm: Rows longer than this are scaled down, in place, when looked up.
        norm_type: The norm's degree for ``max_norm``.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs in the batch.
        sparse: Accepted; gradients are always dense here.
        device: Where the table lives.
        dtype: Its type.

    Raises:
        ValueRangeError: When ``padding_idx`` is no row.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            _freeze,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Any:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text + (", sparse=True" if self.sparse else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """A layer around a table that exists; with ``freeze`` it is not trained.

        Raises:
            ValueRangeError: When the table is not a matrix.
        """
        rows, columns = _matrix(embeddings)
        return cls(
            rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, _freeze=freeze
        )


class EmbeddingBag(_Table):
    """The sum, mean or maximum of several rows of a table, without making the rows.

    ``forward`` takes bags as the rows of a matrix, or one after another with the ``offsets`` where each starts.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The length of a row.
        max_norm: Rows longer than this are scaled down, in place, when looked up.
        norm_type: The norm's degree for ``max_norm``.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs in the batch.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        sparse: Accepted; gradients are always dense here.
        include_last_offset: ``offsets`` also holds where the last bag ends.
        padding_idx: A row that does not take part.
        device: Where the table lives.
        dtype: Its type.

    Raises:
        ValueRangeError: When ``padding_idx`` is no row.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            False,
            device,
            dtype,
        )
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Any:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        return text + (f", padding_idx={self.padding_idx}" if self.padding_idx is not None else "")

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:
        """A layer around a table that exists; with ``freeze`` it is not trained.

        Raises:
            ValueRangeError: When the table is not a matrix.
        """
        rows, columns = _matrix(embeddings)
        made = cls(
            rows,
            columns,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made


def _matrix(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise ValueRangeError(f"Embeddings parameter is expected to be 2-dimensional, not {tuple(embeddings.shape)}")
    return embeddings.shape[0], embeddings.shape[1]
