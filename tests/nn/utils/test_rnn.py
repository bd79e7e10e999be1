"""Padded and packed sequences."""

import numpy as np
import pytest

import ddpflow
from ddpflow.nn.utils.rnn import (
    PackedSequence,
    invert_permutation,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

SEQUENCES = [[1.0, 2.0, 3.0], [10.0, 20.0], [100.0]]


def tensors(values=SEQUENCES):
    """Returns sequences as tensors."""
    return [ddpflow.tensor(row) for row in values]


def test_packed_layout():
    """A packed batch holds step after step, of as many sequences as have it."""
    packed = pack_sequence(tensors())
    assert packed.data.tolist() == [1, 10, 100, 2, 20, 3]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices is None
    assert packed.unsorted_indices is None


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_round_trip(order, batch_first):
    """Packing and padding give the batch back, in its order, with the padding as asked."""
    rows = [SEQUENCES[i] for i in order]
    lengths = [len(row) for row in rows]
    padded = pad_sequence(tensors(rows), batch_first=batch_first)
    packed = pack_padded_sequence(padded, lengths, batch_first, enforce_sorted=False)
    assert packed.data.tolist() == [1, 10, 100, 2, 20, 3]
    back, sizes = pad_packed_sequence(packed, batch_first, padding_value=-1.0, total_length=4)
    assert sizes.tolist() == lengths
    expected = np.full((3, 4), -1.0)
    for i, row in enumerate(rows):
        expected[i, : len(row)] = row
    np.testing.assert_array_equal(back.numpy(), expected if batch_first else expected.T)
    assert [row.tolist() for row in unpack_sequence(packed)] == rows
    assert [row.tolist() for row in unpad_sequence(padded, sizes, batch_first)] == rows


def test_gradients():
    """Padding takes no gradient; the rest passes through packing and padding."""
    x = ddpflow.randn(3, 2, 2, dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(lambda x: pack_padded_sequence(x, [3, 1]).data, x)
    assert ddpflow.autograd.gradcheck(lambda x: pad_packed_sequence(pack_padded_sequence(x, [3, 1]))[0], x)


def test_pad_sequence_sides():
    """Sequences are padded on the right or the left."""
    assert pad_sequence(tensors(), True).tolist() == [[1, 2, 3], [10, 20, 0], [100, 0, 0]]
    left = pad_sequence(tensors(), True, 7.0, padding_side="left")
    assert left.tolist() == [[1, 2, 3], [7, 10, 20], [7, 7, 100]]
    assert pad_sequence([ddpflow.ones(2, 5), ddpflow.ones(1, 5)]).shape == (2, 2, 5)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 3], "sorted in decreasing order"),
        ([3, 0], "greater than 0"),
        ([3, 2, 1], r"equal to batch_size 2, but got shape \(3,\)"),
        ([4, 1], "with 3 steps"),
    ],
)
def test_bad_lengths(lengths, message):
    """Lengths out of order, not positive, too many or too large are RuntimeErrors."""
    with pytest.raises(RuntimeError, match=message):
        pack_padded_sequence(ddpflow.ones(3, 2), lengths)


def test_errors():
    """Bad sides, sequences and total lengths are refused."""
    with pytest.raises(ValueError, match="padding_side"):
        pad_sequence(tensors(), padding_side="top")
    with pytest.raises(RuntimeError, match="at least one sequence"):
        pad_sequence([])
    with pytest.raises(RuntimeError, match="takes an iterable"):
        pad_sequence(3)
    with pytest.raises(TypeError, match="takes tensors, not list"):
        pad_sequence([[1.0]])
    with pytest.raises(ValueError, match="got 2 and max sequence length being 3"):
        pad_packed_sequence(pack_sequence(tensors()), total_length=2)


def test_invert_permutation():
    """The inverse of a permutation undoes it; None stays None."""
    assert invert_permutation(ddpflow.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    assert invert_permutation(None) is None


def test_packed_sequence_to():
    """to() casts the data and keeps the layout."""
    packed = pack_sequence(tensors()).to(ddpflow.float64)
    assert isinstance(packed, PackedSequence)
    assert packed.data.dtype is ddpflow.float64
    assert packed.batch_sizes.tolist() == [3, 2, 1]
