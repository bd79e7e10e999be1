"""Datasets and their splits."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.errors import IndexRangeError, ShapeError, ValueRangeError
from ddpflow.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split


class Squares(Dataset):
    """The squares of 0 to n - 1."""

    def __init__(self, n):
        self.n = n

    def __getitem__(self, index):
        """Returns index ** 2."""
        return index * index

    def __len__(self):
        return self.n


def test_tensor_datasets_give_rows():
    """Items are tuples of rows; lengths must agree."""
    data = TensorDataset(flow.arange(6).reshape(3, 2), flow.tensor([7, 8, 9]))
    x, y = data[1]
    assert len(data) == 3 and x.tolist() == [2, 3] and y.item() == 8
    with pytest.raises(ShapeError, match=r"\[2, 3\]"):
        TensorDataset(flow.zeros(3), flow.zeros(2))


def test_subsets_and_concatenations():
    """Indices go through; sums of datasets are one after the other; negative indices count from the end."""
    both = Squares(3) + Squares(2)
    assert [both[i] for i in range(len(both))] == [0, 1, 4, 0, 1] and both[-2] == 0
    with pytest.raises(IndexRangeError, match="5 is out of range"):
        both[5]
    part = Subset(both, [2, 4])
    assert [part[i] for i in range(len(part))] == [4, 1]
    with pytest.raises(ValueRangeError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(ValueRangeError, match="IterableDataset"):
        ConcatDataset([IterableDataset()])


@pytest.mark.parametrize("lengths", [[7, 2, 1], [0.7, 0.2, 0.1], [0.75, 0.25]])
def test_random_splits_are_parts_of_the_whole(lengths):
    """Every item is in exactly one part; the same generator gives the same parts."""
    parts = random_split(Squares(10), lengths, flow.Generator().manual_seed(3))
    again = random_split(Squares(10), lengths, flow.Generator().manual_seed(3))
    indices = [i for part in parts for i in part.indices]
    assert sorted(indices) == list(range(10)) and indices != list(range(10))
    assert [p.indices for p in parts] == [p.indices for p in again]
    if len(lengths) == 3:
        assert [len(p) for p in parts] == [7, 2, 1]
    else:
        assert sorted(len(p) for p in parts) == [2, 8]
    with pytest.raises(ValueRangeError, match="add up to 9"):
        random_split(Squares(10), [5, 4])


def test_bases_say_what_to_define():
    """A dataset without its methods says which is missing."""
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(IterableDataset())
    assert np.asarray(Squares(3)[2]) == 4
