"""Samplers: which indices, how often, in which order."""

from collections import Counter

import pytest

import ddpflow as flow
from ddpflow.errors import ValueRangeError
from ddpflow.utils.data import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def test_sequential_and_random_orders():
    """All indices once; a random order differs from pass to pass and repeats with its generator."""
    assert list(SequentialSampler(range(4))) == [0, 1, 2, 3]
    sampler = RandomSampler(range(20), generator=flow.Generator().manual_seed(1))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert list(RandomSampler(range(20), generator=flow.Generator().manual_seed(1))) == first
    flow.manual_seed(5)
    a = list(RandomSampler(range(20)))
    flow.manual_seed(5)
    assert list(RandomSampler(range(20))) == a


def test_numbers_of_samples():
    """More than there are: whole passes and a rest; with replacement any index may repeat."""
    counts = Counter(RandomSampler(range(5), num_samples=13))
    assert sum(counts.values()) == 13 and set(counts.values()) <= {2, 3}
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=50))
    assert len(drawn) == 50 and set(drawn) == {0, 1, 2}
    assert len(RandomSampler(range(5), num_samples=13)) == 13


def test_subsets_and_weights():
    """Only the given indices; in proportion to weights; never one of weight zero."""
    assert sorted(SubsetRandomSampler([3, 9, 27])) == [3, 9, 27]
    flow.manual_seed(0)
    counts = Counter(WeightedRandomSampler([1.0, 0.0, 3.0], 4000))
    assert counts[1] == 0 and 0.2 < counts[0] / 4000 < 0.3
    assert sorted(WeightedRandomSampler([1.0, 2.0, 0.0, 4.0], 3, replacement=False)) == [0, 1, 3]


@pytest.mark.parametrize(
    ("drop_last", "batches"), [(False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])]
)
def test_batches(drop_last, batches):
    """Runs of a sampler's indices; the length is that of the list."""
    sampler = BatchSampler(SequentialSampler(range(7)), 3, drop_last)
    assert list(sampler) == batches and len(sampler) == len(batches)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomSampler(range(3), num_samples=0), "num_samples=0"),
        (lambda: BatchSampler(SequentialSampler(range(3)), 0), "batch_size=0"),
        (lambda: BatchSampler(SequentialSampler(range(3)), True), "batch_size=True"),
        (lambda: WeightedRandomSampler([1.0, -1.0], 2), "weights"),
        (lambda: WeightedRandomSampler([0.0, 0.0], 2), "weights"),
        (lambda: WeightedRandomSampler([1.0, 0.0], 2, replacement=False), "without replacement"),
        (lambda: WeightedRandomSampler([1.0], 1.5), "num_samples=1.5"),
    ],
)
def test_bad_arguments_are_named(make, text):
    """Each with its value."""
    with pytest.raises(ValueRangeError, match=text):
        make()


def test_the_base_says_what_to_define():
    """A sampler without __iter__ says so."""
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(Sampler())
