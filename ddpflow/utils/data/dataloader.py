"""DataLoader: batches of a dataset, in the order of a sampler, in this process or from worker processes."""

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ddpflow.comm.world import process_context
from ddpflow.device import usable_cupy
from ddpflow.errors import ValueRangeError
from ddpflow.random import Generator, default_generator, stream
from ddpflow.utils.data.collate import default_collate
from ddpflow.utils.data.dataset import IterableDataset
from ddpflow.utils.data.pinning import pin_batch
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
        num_workers: Processes that fetch and collate ahead of time; 0 does it here. Their random streams (``random``,
            NumPy's, ours) are seeded by this pass, this rank and their number, so no two draw alike.
        collate_fn: Makes a batch of a list of items; `default_collate` when None.
        pin_memory: Put each batch's tensors into pinned memory, from which ``to("cuda", non_blocking=True)`` copies
            while the host goes on. Without a GPU that can be used it changes nothing.
        drop_last: Leave out a last batch that is not full.
        timeout: Seconds to wait for a worker's batch; 0 for as long as it takes.
        worker_init_fn: Called in each worker with its number, after seeding.
        multiprocessing_context: How workers are started; None forks on Linux.
        generator: Random numbers for ``shuffle`` and for the workers' seeds.
        prefetch_factor: Batches that each worker prepares ahead; 2 when None.
        persistent_workers: Keep the workers from pass to pass.
        pin_memory_device: As in PyTorch.
        in_order: As in PyTorch; batches always come in order.

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
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        iterable = isinstance(dataset, IterableDataset)
        if num_workers < 0:
            raise ValueRangeError(
                "num_workers option should be non-negative; use num_workers=0 to load in this process"
            )
        if timeout < 0:
            raise ValueRangeError("timeout option should be non-negative")
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers or timeout):
            raise ValueRangeError(
                "prefetch_factor, persistent_workers and timeout need worker processes: num_workers > 0"
            )
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
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.persistent_workers = persistent_workers
        self.drop_last = drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        if not iterable and batch_sampler is None:
            if sampler is None:
                self.sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        collates = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if collates else None)
        self._pool: Any = None
        self._given = 0  # batches of the pass under way
        self._start: dict[str, Any] = {}  # what that pass started from
        self._resume: dict[str, Any] | None = None

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            size = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return size
            return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        resume, self._resume = self._resume, None
        skip, now = 0, None
        if resume is not None:
            skip, now = resume["batches"], resume.get("now")
            if not self._own_order():
                self._set_generator(resume["generator"])
            if resume["sampler"] is not None:
                self.sampler.load_state_dict(resume["sampler"])
        self._start = self._state_now()
        self._given = skip
        pin = self.pin_memory and usable_cupy() is not None
        for batch in self._batches(skip, now):
            self._given += 1
            yield pin_batch(batch) if pin else batch
        self._given = 0
        self._start = {}

    def _batches(self, skip: int, now: Any) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            fetch, requests = _Iterating(self.batch_size, self.collate_fn, self.drop_last), itertools.repeat(None)
        else:
            fetch = _Fetching(self.batch_sampler is not None, self.collate_fn)  # type: ignore[assignment]
            requests = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        if not self.num_workers:
            get = fetch(self.dataset)
            try:
                for request in itertools.islice(requests, skip):
                    if isinstance(self.dataset, IterableDataset):
                        get(request)
                self._set_generator(now)
                for request in requests:
                    yield get(request)
            except StopIteration:
                pass
            return
        # Each rank's workers differ from the other ranks', though all ranks may have been seeded alike.
        base = int(stream(generator=self.generator).integers(0, 1 << 62))
        mixed = np.random.SeedSequence([base, process_context().rank]).generate_state(self.num_workers, np.uint64)
        seeds = [int(seed) >> 1 for seed in mixed]
        pool = self._pool
        if pool is None:
            pool = importlib.import_module("ddpflow.utils.data.workers").Pool(
                self.dataset,
                fetch,
                self.num_workers,
                self.prefetch_factor,
                self.worker_init_fn,
                self.timeout,
                self.multiprocessing_context,
            )
        if self.persistent_workers:
            self._pool = pool
        iterable = isinstance(self.dataset, IterableDataset)
        if not iterable:
            for _ in itertools.islice(requests, skip):
                pass
        self._set_generator(now)
        wanted = requests
        failed = True
        try:
            yield from itertools.islice(pool.run(wanted, seeds), skip if iterable else 0, None)
            failed = False
        except GeneratorExit:  # the loop was left early
            failed = False
            raise
        finally:
            if failed or not self.persistent_workers:
                self._pool = None
                pool.close()

    # --- stopping and going on ----------------------------------------------------------------------------------------

    def _own_order(self) -> bool:
        """True when the order does not depend on the generator: then ranks may load one rank's state."""
        return hasattr(self.sampler, "state_after")

    def _set_generator(self, state: list[int] | None) -> None:
        if state is not None:
            (self.generator or default_generator()).set_state(np.array(state, np.uint8))

    def _state_now(self) -> dict[str, Any]:
        state = (self.generator or default_generator()).get_state()
        sampler = self.sampler.state_dict() if hasattr(self.sampler, "state_dict") else None
        return {"generator": np.asarray(getattr(state, "array", state)).tolist(), "sampler": sampler}

    def state_dict(self) -> dict[str, Any]:
        """Where the pass under way is, as plain values; between passes, where the next will start.

        With a `DistributedSampler` it can be loaded by another number of ranks, once all ranks have given equally many
        batches.
        """
        here = self._state_now()
        if not self._start:
            return {**here, "batches": 0}
        if self._own_order() and self.batch_size is not None:
            sampler = self.sampler.state_after(self._start["sampler"], self._given * self.batch_size)
            return {**self._start, "sampler": sampler, "batches": 0}
        # From the start the same order is drawn again; then the random numbers go on from where they are.
        return {**self._start, "batches": self._given, "now": None if self._own_order() else here["generator"]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next pass go on where `state_dict` was taken: it gives the rest of the same order."""
        self._resume = dict(state_dict)


class _Fetching:
    """How items are fetched by index; picklable, for workers that are not forked."""

    def __init__(self, batched: bool, collate: Callable[[Any], Any] | None) -> None:
        self.batched = batched
        self.collate = collate

    def __call__(self, dataset: Any) -> Callable[[Any], Any]:
        """A function from indices, or an index, to a batch, or an item."""
        many, collate = getattr(dataset, "__getitems__", None), self.collate

        def get(request: Any) -> Any:
            if not self.batched:
                data = dataset[request]
            else:
                data = many(request) if many is not None else [dataset[i] for i in request]
            return data if collate is None else collate(data)

        return get


class _Iterating:
    """How an iterable dataset is read; picklable."""

    def __init__(self, batch_size: int | None, collate: Callable[[Any], Any] | None, drop_last: bool) -> None:
        self.batch_size = batch_size
        self.collate = collate
        self.drop_last = drop_last

    def __call__(self, dataset: Any) -> Callable[[Any], Any]:
        """A function that gives the next batch, or item, whatever it is called with."""
        items, collate, size = iter(dataset), self.collate, self.batch_size

        def get(request: Any) -> Any:
            if size is None:
                data = next(items)
            else:
                data = list(itertools.islice(items, size))
                if not data or (self.drop_last and len(data) < size):
                    raise StopIteration
            return data if collate is None else collate(data)

        return get
