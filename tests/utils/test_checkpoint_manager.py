"""Checkpoints: whole or not at all, the same on all ranks, no more than wanted, and nothing lost by a resume."""

import os
import random
import time

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.comm.world import current_group
from ddpflow.errors import MismatchError, SerializationError, ValueRangeError
from ddpflow.nn.parallel import DistributedDataParallel
from ddpflow.testing import run_ranks
from ddpflow.utils import CheckpointManager
from ddpflow.utils.data import DataLoader, DistributedSampler, TensorDataset


def _parts(rank, seed=0):
    """A model and an optimizer with momentum, which have taken a step."""
    ddpflow.manual_seed(seed)
    model = nn.Linear(3, 2)
    optimizer = ddpflow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(ddpflow.full((1, 3), rank + 1.0)).sum().backward()
    optimizer.step()
    return model, optimizer


def _weights(model):
    return [p.tolist() for p in model.parameters()]


def test_what_was_saved_comes_back(tmp_path):
    """Objects, plain values, tensors and the random streams; only as many files as wanted, and nothing half-written."""
    model, optimizer = _parts(0)
    manager = CheckpointManager(tmp_path / "new" / "folder", keep=2)
    assert manager.steps() == [] and manager.resume(model=model) is None
    for step in (3, 4, 20):
        manager.save(step, model=model, optimizer=optimizer, best=0.5, table={"a": [1, None]}, mean=ddpflow.ones(2))
    expected = ddpflow.rand(3).tolist(), float(np.random.rand()), random.random()
    assert sorted(os.listdir(manager.folder)) == ["step-0000000004.ckpt", "step-0000000020.ckpt"]
    fresh, other = _parts(1, seed=5)
    found = CheckpointManager(manager.folder).resume(model=fresh, optimizer=other)
    assert found.step == 20 and found.values.pop("mean").tolist() == [1, 1]
    assert found.values == {"best": 0.5, "table": {"a": [1, None]}}
    assert _weights(fresh) == _weights(model)
    assert (
        other.state[fresh.weight]["momentum_buffer"].tolist()
        == optimizer.state[model.weight]["momentum_buffer"].tolist()
    )
    assert (ddpflow.rand(3).tolist(), float(np.random.rand()), random.random()) == expected


def _damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[len(data) // 2 :]
    elif how == "flipped":
        data[-3] ^= 1
    elif how == "empty":
        data.clear()
    else:
        data[:] = b"something else"
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_newest_one_is_passed_over(tmp_path, how):
    """With a warning that names it; the one before is loaded, and nothing of the damaged one."""
    model, _ = _parts(0)
    manager = CheckpointManager(tmp_path)
    manager.save(1, model=model)
    before = _weights(model)
    with ddpflow.no_grad():
        model.weight.add_(1)
    manager.save(2, model=model)
    _damage(tmp_path / "step-0000000002.ckpt", how)
    with pytest.warns(UserWarning, match=r"passing over .*step-0000000002\.ckpt"):
        assert manager.resume(model=model).step == 1
    assert _weights(model) == before
    _damage(tmp_path / "step-0000000001.ckpt", how)
    with pytest.warns(UserWarning, match="passing over"):
        assert manager.resume(model=model) is None


def test_an_interrupted_save_leaves_nothing_that_counts(tmp_path, monkeypatch):
    """A half-written file is not taken for a checkpoint, and is removed once it is old."""
    manager = CheckpointManager(tmp_path)
    manager.save(1, value=1)
    half = tmp_path / ".step-0000000002.ckpt.123.0af1"
    half.write_bytes(b"half")
    manager.save(3, value=3)
    assert half.exists() and manager.steps() == [3, 1]
    os.utime(half, (time.time() - 7200,) * 2)
    manager.save(4, value=4)
    assert not half.exists() and manager.steps() == [4, 3, 1]

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SerializationError, match="step 5.*No space"):
        manager.save(5, value=5)
    assert manager.steps() == [4, 3, 1]


def test_what_cannot_be_saved_or_found_is_named(tmp_path):
    """Values that would have to be pickled, negative steps, names that are not there."""
    manager = CheckpointManager(tmp_path)
    with pytest.raises(SerializationError, match="rank 0: .*thing: .*plain"):
        manager.save(1, good=1, thing=object())
    with pytest.raises(ValueRangeError, match="-1"):
        manager.save(-1)
    with pytest.raises(ValueRangeError, match="keep"):
        CheckpointManager(tmp_path, keep=0)
    model, optimizer = _parts(0)
    manager.save(2, model=model, best=1.0)
    with pytest.raises(SerializationError, match=r"step 2 has no object 'optimizer'; it has model"):
        manager.resume(model=model, optimizer=optimizer)


class Own:
    """Each rank has its own."""

    def __init__(self, value):
        self.value = value

    def state_dict(self):
        """The value."""
        return {"value": self.value}

    def load_state_dict(self, state):
        """Take it back."""
        self.value = state["value"]


def _own_parts(rank, folder):
    manager = CheckpointManager(os.path.join(folder, str(rank)), per_rank=["own", "mine"])
    ddpflow.manual_seed(rank)
    np.random.seed(rank)
    manager.save(1, own=Own([rank] * 2), mine=rank * 10, shared=rank)
    expected = ddpflow.rand(2).tolist(), np.random.rand()
    own = Own(None)
    found = manager.resume(own=own)
    assert (ddpflow.rand(2).tolist(), np.random.rand()) == expected
    return found.values, own.value, os.path.exists(manager.folder)


def test_each_ranks_own_part(tmp_path):
    """Named parts and random streams are each rank's own; of the rest the first rank's counts; one has the files."""
    assert run_ranks(_own_parts, 2, backend="shm", args=(str(tmp_path),)) == [
        ({"mine": 0, "shared": 0}, [0, 0], True),
        ({"mine": 10, "shared": 0}, [1, 1], False),
    ]


def _fewer_ranks(rank, folder, saving):
    manager = CheckpointManager(folder, per_rank=["own"])
    if saving:
        return manager.save(3, own=Own(rank), model=_parts(0)[0])
    return manager.resume(model=_parts(1)[0]).step


def test_another_number_of_ranks(tmp_path):
    """What is alike on all ranks can be loaded by fewer; what each had for itself cannot, and the error says so."""
    run_ranks(_fewer_ranks, 3, args=(str(tmp_path), True))
    assert run_ranks(_fewer_ranks, 2, args=(str(tmp_path), False)) == [3, 3]
    with pytest.raises(SerializationError, match="'own' was saved by each of 3 ranks"):
        CheckpointManager(tmp_path).resume(own=Own(0))


def _bad_value(rank, folder):
    manager = CheckpointManager(folder, per_rank=["own"])
    manager.save(1, own=object() if rank == 1 else 1)


def test_one_ranks_problem_is_everybodys(world_folder):
    """The error of a rank's save is raised on all ranks, and nothing is written."""
    for error in run_ranks(_bad_value, 2, args=(world_folder,), return_exceptions=True):
        assert isinstance(error, SerializationError) and "rank 1: own" in str(error)
    assert os.listdir(world_folder) == []


@pytest.fixture
def world_folder(tmp_path):
    """A folder, as text for the ranks."""
    return str(tmp_path)


def _optimizers_meet(rank, folder, shared):
    model, optimizer = _parts(0)
    ddp = DistributedDataParallel(model)
    if rank == 0:
        optimizer.param_groups[0]["lr"] = 1e-3
    if shared:
        manager = CheckpointManager(folder)
        manager.save(1, model=ddp, optimizer=optimizer)
        manager.resume(model=ddp, optimizer=optimizer)
    ddp.check_consistency(optimizer)
    for step in range(3):
        optimizer.zero_grad()
        ddp(ddpflow.full((1, 3), rank + step + 1.0)).square().sum().backward()
        optimizer.step()
    ddp.check_consistency(optimizer)
    return _weights(model), optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("backend", ["thread", "shm"])
def test_all_ranks_take_over_the_optimizer(tmp_path, backend):
    """After a resume all ranks have the first one's rate and momentum; without, the check names the rate."""
    first, second = run_ranks(_optimizers_meet, 2, backend=backend, args=(str(tmp_path), True))
    assert first == second and first[1] == 1e-3
    for error in run_ranks(_optimizers_meet, 2, backend=backend, args=(str(tmp_path), False), return_exceptions=True):
        assert isinstance(error, MismatchError) and "lr" in str(error)


def _read(rank, folder, start, stop):
    data = TensorDataset(ddpflow.arange(20))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, seed=1))
    manager = CheckpointManager(folder)
    manager.resume(loader=loader)
    found = []
    for step, (batch,) in enumerate(loader, start + 1):
        found += batch.tolist()
        if step == stop:
            manager.save(step, loader=loader)
            break
    return found


def test_a_pass_that_is_resumed_twice_repeats_nothing(tmp_path):
    """Two ranks, 20 samples, stopped after 2 and again after 1 batches: together one pass, each index once."""
    seen = []
    for start, stop in ((0, 2), (2, 3), (3, None)):
        for part in run_ranks(_read, 2, args=(str(tmp_path), start, stop)):
            seen += part
    assert sorted(seen) == list(range(20))


def test_a_group_may_be_given(tmp_path):
    """As everywhere."""
    CheckpointManager(tmp_path, group=current_group(), keep=None).save(1, value=2)
    assert CheckpointManager(tmp_path).resume().values == {"value": 2}
