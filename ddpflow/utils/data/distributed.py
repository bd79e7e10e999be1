"""Sharing out a dataset among ranks."""

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from ddpflow.comm.world import current_group, installed_world
from ddpflow.errors import MismatchError, ValueRangeError
from ddpflow.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler):
    """Gives each rank its own part of a dataset; together the parts are one pass.

    All ranks permute alike, by seed and epoch, and rank r takes every N-th index from the r-th on. A full pass moves on
    to the next epoch by itself, unless `set_epoch` was called; so each epoch has another order in any case.

    Args:
        dataset: What to share out.
        num_replicas: Number of ranks; the current group's size when None.
        rank: Which part; this rank's place in the current group when None.
        shuffle: Permute anew each epoch; else keep the order.
        seed: Of the permutation; must be the same on all ranks.
        drop_last: Leave out the last few, so that all parts have one length.
        pad: Without ``drop_last``, repeat the first few, so that all parts have one length. False: every item exactly
            once, and parts that may differ by one; right for evaluation.

    Raises:
        ValueRangeError: Naming the argument and its value.
        MismatchError: When another rank made this sampler with another seed.

    Example:
        >>> [list(DistributedSampler(range(5), 2, r, shuffle=False)) for r in (0, 1)]
        [[0, 2, 4], [1, 3, 0]]
        >>> [list(DistributedSampler(range(5), 2, r, shuffle=False, pad=False)) for r in (0, 1)]
        [[0, 2, 4], [1, 3]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        pad: bool = True,
    ) -> None:
        own = num_replicas is None and rank is None
        if num_replicas is None:
            num_replicas = current_group().size()
        if rank is None:
            rank = current_group().rank()
        for name, value in (("num_replicas", num_replicas), ("rank", rank), ("seed", seed)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ValueRangeError(f"{name} must be an integer, not {value!r}")
        if num_replicas < 1:
            raise ValueRangeError(f"num_replicas must be at least 1, not {num_replicas}")
        if not 0 <= rank < num_replicas:
            raise ValueRangeError(f"rank must be in the range 0 to num_replicas - 1 = {num_replicas - 1}, not {rank}")
        if len(dataset) == 0:
            raise ValueRangeError("dataset is empty: there is nothing to share out")
        self.dataset = dataset
        self.num_replicas = int(num_replicas)
        self.rank = int(rank)
        self.shuffle = shuffle
        self.seed = int(seed)
        self.drop_last = drop_last
        self.pad = pad and not drop_last
        self.epoch = 0
        self._told_epoch = False
        self._done = 0  # indices of the whole dataset that all ranks together have given out in this epoch
        if own and self.num_replicas > 1:
            self._compare_seed()

    @property
    def total_size(self) -> int:
        """How many indices all ranks together give in one pass."""
        size, n = len(self.dataset), self.num_replicas
        if self.drop_last:
            return size // n * n
        return -(-size // n) * n if self.pad else size

    @property
    def num_samples(self) -> int:
        """How many indices this rank gives in one pass."""
        return len(range(self.rank, self.total_size, self.num_replicas))

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        size, total = len(self.dataset), self.total_size
        order = np.arange(size)
        if self.shuffle:
            # A stream for each pair: by seed + epoch, (seed 0, epoch 1) and (seed 1, epoch 0) would have one order.
            order = np.random.default_rng([self.seed, self.epoch]).permutation(size)
        if total > size:
            order = np.resize(order, total)
        start, self._done = self._done, 0
        for done, index in enumerate(order[start + self.rank : total : self.num_replicas].tolist(), 1):
            self._done = min(start + done * self.num_replicas, total)
            yield index
        self._done = 0
        if not self._told_epoch:
            self.epoch += 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next pass has; from now on the caller counts epochs."""
        self._told_epoch = True
        if epoch != self.epoch:
            self.epoch = int(epoch)
            self._done = 0

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: valid for any number of ranks, once all have given equally many indices."""
        return {"seed": self.seed, "epoch": self.epoch, "done": self._done, "told_epoch": self._told_epoch}

    def state_after(self, state: dict[str, Any], count: int) -> dict[str, Any]:
        """A state of `state_dict` moved on by ``count`` indices of each rank, as a loader that works ahead needs it."""
        return {**state, "done": min(state["done"] + count * self.num_replicas, self.total_size)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`: the next pass gives what is left of that epoch, shared among today's ranks."""
        self.seed, self.epoch = state_dict["seed"], state_dict["epoch"]
        self._done, self._told_epoch = state_dict["done"], state_dict["told_epoch"]

    def _compare_seed(self) -> None:
        """Compare the seed with what other ranks have posted for their sampler of the same number; never waits."""
        world = installed_world()
        if world is None or world.group is None:
            return
        count = world.calls["DistributedSampler"] = world.calls.get("DistributedSampler", 0) + 1
        key = f"DistributedSampler/{count}/seed"
        posted = world.store.compare_set(key, b"", str(self.seed).encode())
        if posted != str(self.seed).encode():
            raise MismatchError(
                f"rank {world.rank}: this DistributedSampler has seed {self.seed}, another rank's {posted.decode()}: "
                "the parts would overlap; use one seed on all ranks"
            )
