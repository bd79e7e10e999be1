"""The loader: batches in order, with and without workers, seeds, failures, stopping and going on."""

import os
import random
import signal

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.errors import ValueRangeError, WorkerError
from ddpflow.testing import run_ranks
from ddpflow.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset
from ddpflow.utils.data.worker_info import get_worker_info


class Items(Dataset):
    """Pairs of an index and an array of it, large enough to travel through shared memory."""

    def __init__(self, n, size=2000):
        self.n, self.size = n, size

    def __getitem__(self, index):
        """Returns the index and an array filled with it."""
        return index, flow.full((self.size,), float(index))

    def __len__(self):
        return self.n


class Stream(IterableDataset):
    """The numbers 0 to n - 1, shared out among workers."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.n, step))


class Draws(Dataset):
    """The first random numbers of every stream in whichever process fetches it."""

    def __getitem__(self, index):
        """Returns draws of random, NumPy and ddpflow, and the worker's number."""
        return random.random(), float(np.random.random()), flow.rand(1).item(), get_worker_info().id

    def __len__(self):
        return 4


class Failing(Dataset):
    """Fails at index 5 in some way."""

    def __init__(self, how):
        self.how = how

    def __getitem__(self, index):
        """Returns the index, unless it is 5."""
        if index == 5:
            if self.how == "raise":
                raise KeyError("bad item")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(3)
            signal.pause()
        return index

    def __len__(self):
        return 8


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_order_with_any_number_of_workers(workers):
    """Ten items in batches of four; values, dtypes and the short last batch."""
    loader = DataLoader(Items(10), batch_size=4, num_workers=workers)
    for _ in range(2):
        batches = list(loader)
        assert [i.tolist() for i, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        for i, x in batches:
            assert x.shape == (len(i), 2000)
            np.testing.assert_array_equal(x.numpy(), np.repeat(i.numpy()[:, None], 2000, 1))
            x += 1  # a batch may be changed in place
    assert len(loader) == 3 and len(DataLoader(Items(10), 4, drop_last=True)) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffling_follows_the_seed(workers):
    """Another order in each pass; the same again from the same seed, with workers as without."""
    orders = []
    for _ in range(2):
        flow.manual_seed(3)
        loader = DataLoader(Items(12, 1), 3, shuffle=True, num_workers=workers)
        orders.append([[i.tolist() for i, _ in loader] for _ in range(2)])
    assert orders[0] == orders[1] and orders[0][0] != orders[0][1]
    assert sorted(sum(orders[0][0], [])) == list(range(12))


def test_single_items_own_collation_and_batch_samplers():
    """batch_size=None gives items; collate_fn and batch_sampler are used; __getitems__ is preferred."""
    assert [i for i, _ in DataLoader(Items(3), batch_size=None)] == [0, 1, 2]
    loader = DataLoader(range(6), batch_sampler=[[5, 0], [3]], collate_fn=lambda items: tuple(items))
    assert list(loader) == [(5, 0), (3,)]

    class Many(Items):
        def __getitems__(self, indices):
            return [i * 10 for i in indices]

    assert [b.tolist() for b in DataLoader(Many(4), 2)] == [[0, 10], [20, 30]]
    x, y = next(iter(DataLoader(TensorDataset(flow.arange(4), flow.arange(4) * 2), 4)))
    assert x.tolist() == [0, 1, 2, 3] and y.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_iterable_datasets(workers):
    """Items are taken as they come; workers share them out by get_worker_info; each is given once."""
    batches = [b.tolist() for b in DataLoader(Stream(7), 2, num_workers=workers)]
    assert sorted(sum(batches, [])) == list(range(7))
    if workers < 2:
        assert batches == [[0, 1], [2, 3], [4, 5], [6]]
    dropped = [b.tolist() for b in DataLoader(Stream(7), 2, num_workers=workers, drop_last=True)]
    assert all(len(b) == 2 for b in dropped)
    assert list(DataLoader(Stream(3), None)) == [0, 1, 2]


def _first_draws(rank):
    flow.manual_seed(0)  # all ranks alike, as models want it
    loader = DataLoader(Draws(), 1, num_workers=2)
    found = []
    for _ in range(2):
        firsts = {}
        for a, b, c, worker in loader:
            firsts.setdefault(worker.item(), (a.item(), b.item(), round(c.item(), 12)))
        found += [firsts[0], firsts[1]]
    return found


def test_no_two_workers_draw_alike_on_any_rank_in_any_pass():
    """Two ranks, two workers, two passes: eight different first draws of each stream; a rerun gives the same."""
    draws = [d for rank in run_ranks(_first_draws, 2, "shm") for d in rank]
    for stream in range(3):
        assert len({d[stream] for d in draws}) == 8
    assert [d for rank in run_ranks(_first_draws, 2, "shm") for d in rank] == draws


def test_workers_stay_when_they_should():
    """Persistent workers are the same processes in each pass, also after one that was left early."""

    class Pids(Dataset):
        def __getitem__(self, index):
            return os.getpid()

        def __len__(self):
            return 8

    loader = DataLoader(Pids(), 1, num_workers=2, persistent_workers=True)
    first = {b.item() for b in loader}
    for batch in loader:
        assert batch.item() in first
        break
    second = [b.item() for b in loader]
    assert first == set(second) and len(second) == 8 and os.getpid() not in first
    passing = DataLoader(Pids(), 1, num_workers=2)
    assert not {b.item() for b in passing} & {b.item() for b in passing}


def test_worker_init_fn_runs_in_each_worker_after_seeding():
    """It is called with the worker's number and may change what was seeded."""

    def init(worker):
        random.seed(100 + worker)

    found = {w.item(): a.item() for a, _, _, w in DataLoader(Draws(), 1, num_workers=2, worker_init_fn=init)}
    assert set(found) == {0, 1}


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("raise", KeyError, "bad item"),
        ("kill", WorkerError, r"worker \d \(pid \d+\) was killed by SIGKILL"),
        ("exit", WorkerError, r"worker \d \(pid \d+\) exited with code 3"),
    ],
)
def test_a_failing_worker_is_told_by_its_error_or_its_end(how, error, text):
    """The batches before it arrive; an exception keeps its type and brings the worker's traceback."""
    loader = DataLoader(Failing(how), 1, num_workers=2)
    seen = []
    with pytest.raises(error, match=text) as caught:
        for batch in loader:
            seen.append(batch.item())
    assert seen == list(range(len(seen))) and len(seen) <= 5
    if how == "raise":
        assert seen == [0, 1, 2, 3, 4]
        assert "in DataLoader worker 1" in caught.value.__notes__[0] and "__getitem__" in caught.value.__notes__[0]


def test_a_worker_that_is_too_slow_is_named():
    """The timeout is per batch."""
    with pytest.raises(WorkerError, match=r"worker 1 .* gave no batch in 0.2 s"):
        list(DataLoader(Failing("hang"), 1, num_workers=2, timeout=0.2))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_pass_goes_on_where_it_was_saved(workers, shuffle):
    """After three of ten batches a fresh loader gives the other seven, in the same order, then whole passes."""
    flow.manual_seed(11)
    first = DataLoader(Items(10, 1), 1, shuffle=shuffle, num_workers=workers)
    batches = iter(first)
    given = [next(batches)[0].item() for _ in range(3)]
    state = first.state_dict()
    rest = [i.item() for i, _ in batches]
    following = [i.item() for i, _ in first]
    flow.manual_seed(99)
    second = DataLoader(Items(10, 1), 1, shuffle=shuffle, num_workers=workers)
    second.load_state_dict(state)
    assert [i.item() for i, _ in second] == rest
    assert sorted(given + rest) == list(range(10)) == sorted(following)


def test_resuming_on_another_number_of_ranks():
    """Two ranks stop after two batches of three; three ranks go on: every item once."""
    given = []
    for rank in range(2):
        sampler = DistributedSampler(range(30), 2, rank, pad=False)
        loader = DataLoader(range(30), 3, sampler=sampler, num_workers=rank)  # with and without working ahead
        batches = iter(loader)
        given += [i for _ in range(2) for i in next(batches).tolist()]
        state = loader.state_dict()
        batches.close()
    rest = []
    for rank in range(3):
        loader = DataLoader(range(30), 3, sampler=DistributedSampler(range(30), 3, rank, pad=False))
        loader.load_state_dict(state)
        rest += [i for b in loader for i in b.tolist()]
    assert sorted(given + rest) == list(range(30))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"prefetch_factor": 2}, "num_workers > 0"),
        ({"persistent_workers": True}, "num_workers > 0"),
        ({"timeout": -1, "num_workers": 1}, "timeout"),
        ({"sampler": [1], "shuffle": True}, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler option"),
        ({"batch_size": None, "drop_last": True}, "drop_last"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_options_that_contradict_are_refused(options, text):
    """Each with what is wrong."""
    with pytest.raises(ValueRangeError, match=text):
        DataLoader(Items(3), **options)
    with pytest.raises(ValueRangeError, match="own order"):
        DataLoader(Stream(3), shuffle=True)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_random_numbers_go_on_where_they_were(num_workers):
    """What is drawn beside the loader, as dropout does, is the same after a resume as without one."""

    def read(loader, seen, stop=None):
        for batch in loader:
            seen.append((batch[0].tolist(), flow.rand(1).item()))
            if len(seen) == stop:
                return loader.state_dict()
        return None

    def make():
        return DataLoader(TensorDataset(flow.arange(12)), batch_size=2, shuffle=True, num_workers=num_workers)

    whole, halves = [], []
    flow.manual_seed(4)
    for _ in range(2):
        read(make(), whole)
    flow.manual_seed(4)
    state = read(make(), halves, 4)
    flow.manual_seed(99)
    resumed = make()
    resumed.load_state_dict(state)
    read(resumed, halves)
    read(make(), halves)
    assert halves == whole and len(whole) == 12


def test_a_distributed_sampler_leaves_the_random_numbers_alone():
    """Its order has its own stream, so a rank that loads another rank's state keeps its own random numbers."""
    data = TensorDataset(flow.arange(8))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, 2, 0))
    next(iter(loader))
    state = loader.state_dict()
    flow.manual_seed(5)
    expected = flow.rand(2).tolist()
    flow.manual_seed(5)
    other = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, 2, 1))
    other.load_state_dict(state)
    assert len(list(other)) == 1 and flow.rand(2).tolist() == expected
