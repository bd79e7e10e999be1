"""init_process_group and destroy_process_group."""

import os
import socket
import threading
import time
from datetime import timedelta

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm.default import abandon_world
from ddpflow.errors import CommError, ConfigError, MismatchError, ValueRangeError
from ddpflow.testing import run_ranks


@pytest.fixture(autouse=True)
def no_world_left():
    """Every test ends without a world."""
    yield
    dist.destroy_process_group()
    assert not dist.is_initialized()


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_world_of_one():
    """Without a launcher the same script runs alone, again and again, with PyTorch's arguments."""
    for timeout in (None, 5, timedelta(minutes=1)):
        dist.init_process_group(backend=None, init_method="env://", timeout=timeout)
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "solo")
        dist.barrier()
        dist.destroy_process_group()
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "gloo"}, "no backend 'gloo'"),
        ({"init_method": "env://", "store": dist.HashStore()}, "not both"),
        ({"init_method": "carrier://pigeon", "rank": 0, "world_size": 1}, "not understood"),
        ({"pg_options": {}}, "pg_options"),
        ({"store": dist.HashStore()}, "both rank and world_size"),
        ({"store": dist.HashStore(), "rank": 3, "world_size": 2}, "rank=3 must be below"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_wrong_arguments(options, text):
    """Each is one ValueError, and no world is left half made."""
    with pytest.raises(ValueError, match=text):
        dist.init_process_group(**options)
    assert not dist.is_initialized()


def test_twice():
    """A second call is refused, and the first world goes on."""
    dist.init_process_group()
    with pytest.raises(ConfigError, match="called twice"):
        dist.init_process_group()
    dist.barrier()


def test_contradictory_variables(monkeypatch):
    """All problems of the environment are in one error."""
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="LOCAL_RANK, MASTER_ADDR, MASTER_PORT not set.*RANK=5 must be below"):
        dist.init_process_group()


def by_address(rank: int, method: str) -> float:
    """Joins over a given method, with rank and size as arguments."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    dist.init_process_group("shm", method, rank=rank, world_size=2, timeout=15)
    x = np.array([rank + 1.0])
    dist.all_reduce(x)
    dist.destroy_process_group()
    return float(x[0])


def test_tcp_method():
    """tcp:// meets at an address, without any variable."""
    method = f"tcp://127.0.0.1:{free_port()}"
    assert run_ranks(by_address, 2, "shm", args=(method,), init=False) == [3.0, 3.0]


def test_file_method(tmp_path):
    """file:// meets at a file, which is gone afterwards or can be removed."""
    assert run_ranks(by_address, 2, "shm", args=(f"file://{tmp_path}/meeting",), init=False) == [3.0, 3.0]


def by_variables(rank: int, port: int) -> float:
    """Joins with rank and size as arguments and the address in the environment, as PyTorch's tutorial does."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DDPFLOW_STORE_FD"):
        os.environ.pop(name, None)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    dist.init_process_group("shm", rank=rank, world_size=2, timeout=15)
    x = np.array([rank + 1.0])
    dist.all_reduce(x)
    return float(x[0])


def test_arguments_and_variables():
    """Rank and size as arguments, MASTER_ADDR and MASTER_PORT in the environment."""
    assert run_ranks(by_variables, 2, "shm", args=(free_port(),), init=False) == [3.0, 3.0]


def twins(rank: int, port: int, size_of_one: int) -> None:
    """Both processes say that they are rank 0, or they disagree about the world's size."""
    for name in ("DDPFLOW_STORE_FD", "LOCAL_WORLD_SIZE", "DDPFLOW_RUN_ID"):
        os.environ.pop(name, None)
    os.environ.update(MASTER_PORT=str(port), WORLD_SIZE="2")
    if size_of_one == 2:
        os.environ.update(RANK="0", LOCAL_RANK="0")
    elif rank == 1:
        os.environ.update(WORLD_SIZE=str(size_of_one))
    dist.init_process_group("shm", timeout=60)


def test_a_rank_that_two_processes_have():
    """Both are told at once, long before the deadline."""
    start = time.monotonic()
    errors = run_ranks(twins, 2, "shm", args=(free_port(), 2), init=False, return_exceptions=True)
    assert all(isinstance(e, ConfigError) and "rank 0 was claimed twice" in str(e) for e in errors), errors
    assert time.monotonic() - start < 20


def test_processes_of_differing_sizes():
    """Both are told both sizes at once."""
    errors = run_ranks(twins, 2, "shm", args=(free_port(), 3), init=False, return_exceptions=True)
    assert all(isinstance(e, MismatchError) for e in errors), errors
    assert all("world_size=2" in str(e) and "world_size=3" in str(e) for e in errors)


def again_and_again(rank: int) -> list[float]:
    """One process joins several worlds one after the other, at the same address."""
    sums = []
    for k in range(3):
        dist.init_process_group("shm", timeout=15)
        x = np.array([rank + float(k)])
        dist.all_reduce(x)
        sums.append(float(x[0]))
        dist.destroy_process_group()
    return sums


def test_joining_again():
    """Destroy and init can be repeated."""
    assert run_ranks(again_and_again, 2, "shm", init=False) == [[1.0, 3.0, 5.0]] * 2


def test_differing_sizes():
    """Ranks that disagree about the world's size are told both, on all ranks."""
    store = dist.HashStore(5)
    errors: list[Exception] = []

    def join(rank: int, size: int) -> None:
        try:
            dist.init_process_group("thread", store=store, rank=rank, world_size=size, timeout=5)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=join, args=(r, 2 + r)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 2 and all(isinstance(e, MismatchError) for e in errors)
    assert all("world_size=2" in str(e) and "world_size=3" in str(e) for e in errors)


def destroyed(rank: int) -> None:
    """After destroy there is no world, and old groups say so."""
    group = dist.current_group()
    part = dist.new_group([0, 1])
    dist.destroy_process_group(part)
    with pytest.raises(CommError, match="it was destroyed"):
        dist.all_reduce(np.zeros(1), group=part)
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    with pytest.raises(CommError, match="it was destroyed"):
        group.barrier()


def test_destroy():
    """Groups can be left one by one or all together."""
    run_ranks(destroyed, 2)


def test_abandon_without_a_world():
    """Nothing to give up is no error."""
    abandon_world(ValueError("x"))
    with pytest.raises(ValueRangeError):
        dist.destroy_process_group(timeout=-1)
