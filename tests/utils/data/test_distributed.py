"""Sharing out a dataset: exact parts, epochs, resuming, and arguments blamed by name."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.errors import MismatchError, ValueRangeError
from ddpflow.testing import run_ranks
from ddpflow.utils.data import DistributedSampler


def _parts(n, size, **options):
    return [list(DistributedSampler(range(n), size, r, **options)) for r in range(size)]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("n", [1, 5, 12, 21])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_parts_make_one_pass(n, size, shuffle):
    """Padded parts have one length and repeat the first few; exact ones hold each item once; dropped none twice."""
    padded = _parts(n, size, shuffle=shuffle)
    assert {len(p) for p in padded} == {-(-n // size)}
    assert set(sum(padded, [])) == set(range(n))
    exact = _parts(n, size, shuffle=shuffle, pad=False)
    assert sorted(sum(exact, [])) == list(range(n))
    assert max(map(len, exact)) - min(map(len, exact)) <= 1
    dropped = _parts(n, size, shuffle=shuffle, drop_last=True)
    assert {len(p) for p in dropped} == {n // size}
    assert len(set(sum(dropped, []))) == n // size * size
    for options in ({}, {"pad": False}, {"drop_last": True}):
        for r, part in enumerate(_parts(n, size, shuffle=shuffle, **options)):
            assert len(DistributedSampler(range(n), size, r, shuffle=shuffle, **options)) == len(part)


def test_each_epoch_has_another_order_also_when_it_is_not_told():
    """Three passes without set_epoch differ; set_epoch repeats; all ranks stay in step."""
    samplers = [DistributedSampler(range(30), 3, r) for r in range(3)]
    orders = []
    for _ in range(3):
        parts = [list(s) for s in samplers]
        assert sorted(sum(parts, [])) == list(range(30))
        orders.append(parts)
    assert orders[0] != orders[1] != orders[2]
    told = DistributedSampler(range(30), 3, 0)
    told.set_epoch(1)
    assert list(told) == list(told) == orders[1][0]


def test_seeds_and_epochs_are_not_added_up():
    """Seed 0 in epoch 1 is another order than seed 1 in epoch 0."""
    a, b = DistributedSampler(range(50), 1, 0, seed=0), DistributedSampler(range(50), 1, 0, seed=1)
    a.set_epoch(1)
    b.set_epoch(0)
    assert list(a) != list(b)


@pytest.mark.parametrize("options", [{}, {"pad": False}, {"drop_last": True}])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (4, 1)])
def test_resuming_in_mid_epoch_with_another_number_of_ranks(before, after, options):
    """What was given and what is left make one pass, without repeats; the next epoch is whole."""
    samplers = [DistributedSampler(range(20), before, r, **options) for r in range(before)]
    for s in samplers:
        s.set_epoch(3)
    given = []
    for s in samplers:
        items = iter(s)
        given += [next(items) for _ in range(3)]
    state = samplers[0].state_dict()
    assert all(s.state_dict() == state for s in samplers)
    rest, following = [], []
    for r in range(after):
        s = DistributedSampler(range(20), after, r, **options)
        s.load_state_dict(state)
        rest += list(s)
        s.set_epoch(4)
        following += list(s)
    everything = given + rest
    assert set(everything) <= set(range(20)) and len(set(everything)) >= 20 // after * after - after
    if after in (1, 2) or options.get("pad") is False:
        assert sorted(set(everything)) == list(range(20)) and len(everything) == 20
    assert len(set(following)) >= 20 // after * after


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_replicas": 0, "rank": 0}, "num_replicas must be at least 1, not 0"),
        ({"num_replicas": -2, "rank": 0}, "num_replicas .* -2"),
        ({"num_replicas": 2.5, "rank": 0}, "num_replicas must be an integer, not 2.5"),
        ({"num_replicas": 2, "rank": 2}, "rank must be in the range 0 to num_replicas - 1 = 1, not 2"),
        ({"num_replicas": 2, "rank": -1}, "rank .* -1"),
        ({"num_replicas": 2, "rank": 0, "seed": "x"}, "seed must be an integer"),
    ],
)
def test_the_argument_that_is_wrong_is_named(options, text):
    """With its value, and no other."""
    with pytest.raises(ValueRangeError, match=text):
        DistributedSampler(range(4), **options)


def test_an_empty_dataset_is_refused():
    """There is nothing to share out."""
    with pytest.raises(ValueRangeError, match="dataset is empty"):
        DistributedSampler([], 2, 0)


def _own_place(rank, seeds):
    return list(DistributedSampler(range(7), shuffle=False, seed=seeds[rank], pad=False))


def test_rank_and_size_are_the_groups():
    """Without arguments the parts are those of the current group."""
    assert run_ranks(_own_place, 2, args=([0, 0],)) == [[0, 2, 4, 6], [1, 3, 5]]


def test_differing_seeds_are_an_error():
    """The parts would overlap: a rank that comes later says which seeds there are."""
    errors = run_ranks(_own_place, 2, args=([1, 2],), return_exceptions=True)
    told = [e for e in errors if isinstance(e, MismatchError)]
    assert told and "seed 1" in str(told[0]) + str(errors) and "2" in str(told[0])


def _exact_accuracy(rank, n):
    right = np.random.default_rng(0).integers(0, 2, n)
    sums = flow.zeros(2, dtype=flow.int64)
    for i in DistributedSampler(range(n), shuffle=False, pad=False):
        sums += flow.tensor([int(right[i]), 1])
    flow.comm.all_reduce(sums)
    return sums.tolist()


@pytest.mark.parametrize("size", [2, 4])
def test_evaluation_counts_every_item_once(size):
    """21 items on 2 and 4 ranks: the sums of one process."""
    right = np.random.default_rng(0).integers(0, 2, 21)
    assert run_ranks(_exact_accuracy, size, args=(21,)) == [[int(right.sum()), 21]] * size
