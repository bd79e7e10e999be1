"""Sequences of different lengths in one batch: padded, or packed without the padding.

A packed batch holds first the first step of all sequences, longest first, then the second step of those that have one,
and so on; ``batch_sizes`` says how many sequences have each step.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.autograd.ops.joining import cat, stack
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import array_module
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Any
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """A batch of sequences of different lengths without padding; `pack_padded_sequence` makes one.

    Attributes:
        data: All steps, ``(sum of lengths, *)``.
        batch_sizes: How many sequences have each step, an int64 tensor on the CPU.
        sorted_indices: Which sequence of the batch stands where; None if the order was not changed.
        unsorted_indices: The inverse of that.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> "PackedSequence":
        """Fill in the inverse permutation where only one is given."""
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> "PackedSequence":
        """The same batch with its data moved or cast."""
        return PackedSequence(
            self.data.to(*args, **kwargs), self.batch_sizes, self.sorted_indices, self.unsorted_indices
        )


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Where each place went under a permutation; None for None."""
    if permutation is None:
        return None
    order = permutation.array
    inverse = array_module(order).empty_like(order)
    inverse[order] = array_module(order).arange(order.size, dtype=order.dtype)
    return wrap(inverse)


def _lengths_of(lengths: Any) -> "np.ndarray[Any, np.dtype[np.int64]]":
    values = lengths.numpy(force=True) if isinstance(lengths, Tensor) else lengths
    return np.asarray(values, dtype=np.int64)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded batch.

    Args:
        input: ``(T, N, *)``, or ``(N, T, *)`` with ``batch_first``.
        lengths: Each sequence's length, all positive; a list or a tensor.
        batch_first: The batch is the first dimension.
        enforce_sorted: The sequences come longest first; otherwise they are sorted here.

    Raises:
        ShapeError: When lengths are out of order, not positive, too many or too large.
    """
    sizes = _lengths_of(lengths)
    steps, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
    if sizes.shape != (batch,):
        raise ShapeError(f"Expected `len(lengths)` to be equal to batch_size {batch}, but got shape {sizes.shape}")
    if batch == 0 or sizes.min() <= 0:
        raise ShapeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    order: Any = None
    if enforce_sorted:
        if (np.diff(sizes) > 0).any():
            raise ShapeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True: pass "
                "enforce_sorted=False"
            )
    else:
        order = np.argsort(-sizes, kind="stable")
        sizes = sizes[order]
    if sizes[0] > steps:
        raise ShapeError(f"a length of {sizes[0]} in an input of shape {tuple(input.shape)} with {steps} steps")
    step_of, row_of, batch_sizes = _layout(sizes)
    rows = row_of if order is None else order[row_of]
    xp = array_module(input.array)
    step_index, row_index = wrap(xp.asarray(step_of)), wrap(xp.asarray(rows))
    data = input[row_index, step_index] if batch_first else input[step_index, row_index]
    sorted_indices = None if order is None else wrap(xp.asarray(order))
    return PackedSequence(data, wrap(batch_sizes), sorted_indices, None)


def _layout(sizes: Any) -> tuple[Any, Any, Any]:
    """For lengths in falling order: the step and the sequence of each packed row, and the batch sizes."""
    steps = int(sizes[0])
    batch_sizes = (sizes[None, :] > np.arange(steps)[:, None]).sum(1).astype(np.int64)
    step_of = np.repeat(np.arange(steps), batch_sizes)
    starts = np.cumsum(batch_sizes) - batch_sizes
    row_of = np.arange(len(step_of)) - starts[step_of]
    return step_of, row_of, batch_sizes


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Any, Tensor]:
    """Undo `pack_padded_sequence`.

    Args:
        sequence: The packed batch.
        batch_first: Put the batch first.
        padding_value: What stands after a sequence's end.
        total_length: The padded length; by default that of the longest sequence.

    Returns:
        The padded batch and each sequence's length, in the order before packing.

    Raises:
        ValueRangeError: When ``total_length`` is below the longest sequence.
    """
    data, batch_sizes = sequence.data, sequence.batch_sizes.array
    steps, batch = len(batch_sizes), int(batch_sizes[0])
    if total_length is not None:
        if total_length < steps:
            raise ValueRangeError(
                f"Expected total_length to be at least the length of the longest sequence in input, but got "
                f"{total_length} and max sequence length being {steps}"
            )
        steps = total_length
    lengths = (batch_sizes[:, None] > np.arange(batch)[None, :]).sum(0).astype(np.int64)
    step_of, row_of, _ = _layout(lengths)
    source = np.full((steps, batch), len(step_of), dtype=np.int64)  # one row past the end: the padding
    source[step_of, row_of] = np.arange(len(step_of))
    if sequence.unsorted_indices is not None:
        back = sequence.unsorted_indices.numpy(force=True)
        source, lengths = source[:, back], lengths[back]
    if batch_first:
        source = source.T
    xp = array_module(data.array)
    padding = wrap(xp.full((1, *data.shape[1:]), padding_value, data.array.dtype))
    return cat([data, padding])[wrap(xp.asarray(np.ascontiguousarray(source)))], wrap(lengths)


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Stack sequences ``(L, *)`` of different lengths, padded to the longest.

    Args:
        sequences: The sequences.
        batch_first: Give ``(N, T, *)`` instead of ``(T, N, *)``.
        padding_value: What fills the rest.
        padding_side: ``"right"`` or ``"left"``.

    Raises:
        DtypeError: When a sequence is not a tensor.
        ValueRangeError: For an unknown side.
        ShapeError: When there is no sequence.
    """
    if padding_side not in ("right", "left"):
        raise ValueRangeError(f'padding_side must be "right" or "left", not {padding_side!r}')
    if not isinstance(sequences, Iterable):
        raise ShapeError(f"pad_sequence() takes an iterable of tensors, not {type(sequences).__name__}")
    rows = list(sequences)
    if not rows:
        raise ShapeError("pad_sequence() takes at least one sequence")
    for row in rows:
        if not isinstance(row, Tensor):
            raise DtypeError(f"pad_sequence() takes tensors, not {type(row).__name__}")
    steps = max(row.shape[0] for row in rows)
    padded = []
    for row in rows:
        missing = steps - row.shape[0]
        if missing:
            xp = array_module(row.array)
            padding = wrap(xp.full((missing, *row.shape[1:]), padding_value, row.array.dtype))
            row = cat([row, padding] if padding_side == "right" else [padding, row])
        padded.append(row)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Undo `pad_sequence`: the sequences, each of its own length."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, _lengths_of(lengths).tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences ``(L, *)``; arguments and errors are those of `pack_padded_sequence`."""
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Undo `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
