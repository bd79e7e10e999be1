"""DataLoader: batches of a dataset, in the order of a sampler."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ddpflow.errors import ValueRangeError
from ddpflow.random import Generator
from ddpflow.utils.data.collate import default_collate
from ddpflow.utils.data.dataset import IterableDataset
from ddpflow.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

__all__ = ["DataLoader"]


class DataLoader:
    """Iterates over a dataset in batches.

    Args:
        dataset: With ``dataset[index]`` and a length, or an `IterableDataset`.
        batch_size: Items in a batch; None gives single items, uncollated.
        shuffle: Another random order in each pass.
        sampler: Gives the order instead of ``shuffle``.
        batch_sampler: Gives lists of indices instead of ``batch_size``, ``shuffle``, ``sampler`` and ``drop_last``.
        collate_fn: Makes a batch of a list of items; `default_collate` when None.
        drop_last: Leave out a last batch that is not full.
        generator: Random numbers for ``shuffle``.

    Raises:
        ValueRangeError: When options contradict each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        generator: Generator | None = None,
    ) -> None:
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueRangeError("an IterableDataset has its own order: leave shuffle, sampler and batch_sampler out")
        if sampler is not None and shuffle:
            raise ValueRangeError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueRangeError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if batch_size is None and drop_last:
            raise ValueRangeError("drop_last needs a batch_size")
        self.dataset = dataset
        self.generator = generator
        self.drop_last = drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        if not iterable and batch_sampler is None:
            if sampler is None:
                self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self.collate_fn = collate_fn or (
            default_collate if batch_size is not None or batch_sampler is not None else None
        )

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            size = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return size
            return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            return self._iterate()
        return self._fetch()

    def _fetch(self) -> Iterator[Any]:
        dataset, collate = self.dataset, self.collate_fn
        if self.batch_sampler is None:
            for index in self.sampler:
                yield dataset[index] if collate is None else collate(dataset[index])
            return
        many = getattr(dataset, "__getitems__", None)
        assert collate is not None
        for indices in self.batch_sampler:
            yield collate(many(indices) if many is not None else [dataset[i] for i in indices])

    def _iterate(self) -> Iterator[Any]:
        collate = self.collate_fn
        if self.batch_size is None:
            for item in self.dataset:
                yield item if collate is None else collate(item)
            return
        assert collate is not None
        batch: list[Any] = []
        for item in self.dataset:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield collate(batch)
                batch = []
        if batch and not self.drop_last:
            yield collate(batch)
