"""Samplers: in which order a loader asks a dataset for its items."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from ddpflow.errors import ValueRangeError
from ddpflow.random import Generator, stream

__all__ = [
    "BatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value <= 0:
        raise ValueRangeError(f"{name} should be a positive integer value, but got {name}={value}")
    return int(value)


class Sampler:
    """The base of all samplers: iterating gives indices."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler):
    """All indices in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """All indices in random order, or with replacement.

    Args:
        data_source: The dataset.
        replacement: Draw each index anew.
        num_samples: How many to give; the dataset's length when None.
        generator: Draw from this one.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = None if num_samples is None else _positive("num_samples", num_samples)
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices one pass gives."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, left = len(self.data_source), self.num_samples
        source = stream(generator=self.generator)
        if self.replacement:
            yield from source.integers(0, size, left).tolist()
            return
        while left > 0:
            part = source.permutation(size)[:left].tolist()
            left -= len(part)
            yield from part

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in stream(generator=self.generator).permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn with probabilities in proportion to weights.

    Args:
        weights: One for each index; they need not add up to 1.
        num_samples: How many to draw.
        replacement: Draw with replacement.
        generator: Draw from this one.

    Raises:
        ValueRangeError: When weights are negative, all zero, or too few for a draw without replacement.
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.num_samples = _positive("num_samples", num_samples)
        self.weights = np.asarray(getattr(weights, "array", weights), np.float64)
        if self.weights.ndim != 1 or (self.weights < 0).any() or not self.weights.sum() > 0:
            raise ValueRangeError("weights should be a 1-d sequence of non-negative numbers with a positive sum")
        if not replacement and np.count_nonzero(self.weights) < num_samples:
            raise ValueRangeError(f"cannot draw {num_samples} without replacement from fewer positive weights")
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        source = stream(generator=self.generator)
        odds = self.weights / self.weights.sum()
        return iter(source.choice(len(odds), self.num_samples, replace=self.replacement, p=odds).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of ``batch_size`` indices of another sampler.

    Args:
        sampler: Gives indices.
        batch_size: How many make a batch.
        drop_last: Leave out a last batch that is not full.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.batch_size = _positive("batch_size", batch_size)
        self.drop_last = bool(drop_last)

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
