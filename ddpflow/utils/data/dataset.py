"""Datasets: things with an item for each index, or things to iterate over."""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import IndexRangeError, ShapeError, ValueRangeError
from ddpflow.random import Generator, stream

__all__ = ["ConcatDataset", "Dataset", "IterableDataset", "Subset", "TensorDataset", "random_split"]


class Dataset:
    """Something with ``dataset[index]`` and, nearly always, ``len(dataset)``; derive your own from it.

    ``__getitems__(indices)``, if defined, gives a list of items at once; the loader then calls that.
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: "Dataset") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """A dataset that is only iterated over: derive from it and define ``__iter__``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class TensorDataset(Dataset):
    """Items are tuples: the rows of some tensors at the same index.

    Raises:
        ShapeError: When the tensors have different numbers of rows.
    """

    def __init__(self, *tensors: Tensor) -> None:
        rows = {t.shape[0] for t in tensors}
        if len(rows) > 1:
            raise ShapeError(f"the tensors of a TensorDataset must have one number of rows, not {sorted(rows)}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class Subset(Dataset):
    """The items of a dataset at some indices."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (list, tuple)):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Datasets one after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueRangeError("ConcatDataset needs at least one dataset")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise ValueRangeError("ConcatDataset takes datasets with indices, not an IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        size = len(self)
        if not -size <= index < size:
            raise IndexRangeError(f"index {index} is out of range for a dataset of {size} items")
        index %= size
        part = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[part][index - (self.cumulative_sizes[part - 1] if part else 0)]


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset]:
    """Split a dataset at random into parts of the given lengths, or of the given fractions (which add up to 1).

    Raises:
        ValueRangeError: When the lengths do not add up to the dataset's.
    """
    size = len(dataset)
    if lengths and math.isclose(sum(lengths), 1) and all(0 <= f <= 1 for f in lengths):
        counts = [math.floor(size * f) for f in lengths]
        for i in range(size - sum(counts)):  # what rounding left over goes round
            counts[i % len(counts)] += 1
    else:
        counts = [int(n) for n in lengths]
    if sum(counts) != size:
        raise ValueRangeError(f"the lengths {list(lengths)} add up to {sum(counts)}, but the dataset has {size} items")
    order = stream(generator=generator).permutation(size).tolist()
    ends = list(itertools.accumulate(counts))
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, counts, strict=True)]
