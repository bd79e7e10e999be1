"""The shared-memory transport: the conformance checks, and what is its own."""

import gc
import os
import signal
import threading
from typing import ClassVar

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm.backend import rank_list
from ddpflow.comm.backends import shm
from ddpflow.comm.backends.shm import ShmBackend
from ddpflow.comm.failure import FailureRecord, FailureWatch
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Kind
from ddpflow.comm.store import HashStore
from ddpflow.errors import BackendUnavailable, CollectiveTimeout, CommError, PeerError
from ddpflow.testing import run_ranks
from tests.comm.backends.shm_programs import run_program
from tests.comm.backends.shm_world import at_once, call, make_spec, make_world
from tests.comm.conformance import Conformance


class TestShm(Conformance):
    """Ranks that are processes of one host."""

    backend: ClassVar[str] = "shm"


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_random_programs(n, small):
    """Random operations in flight, registered or not, waited for in any order, all give what they should."""
    results = run_ranks(run_program, n, "shm", args=(10 * n + small, 200, small), init=False, timeout_s=60)
    assert results == ["done"] * n


def test_ranks_of_several_hosts_are_refused(monkeypatch):
    """All ranks are told which of them are on one host, and what to use instead."""
    hosts = threading.local()
    monkeypatch.setattr(shm, "host_identity", lambda: hosts.name)
    store = HashStore()

    def create(rank, host):
        hosts.name = host
        return ShmBackend.create(make_spec(rank, 3, store))

    errors = at_once(*[lambda r=r, h=h: create(r, h) for r, h in enumerate("ABA")])
    for error in errors:
        assert isinstance(error, BackendUnavailable)
        assert "ranks 0, 2 on one; rank 1 on one" in str(error)
        assert "'mpi'" in str(error)


def test_a_group_on_one_of_several_hosts(monkeypatch):
    """Only the members of the group have to be on one host."""
    monkeypatch.setattr(shm, "host_identity", lambda: "A")
    store = HashStore()
    specs = [make_spec(r, 4, store, ranks=(1, 3), group_rank=i, name="pair") for i, r in enumerate((1, 3))]
    first, second = at_once(*[lambda s=s: ShmBackend.create(s) for s in specs])
    gather = call(1, Kind.ALL_GATHER)
    works = [b.all_gather(np.empty(2), np.array([b.spec.rank + 0.5]), gather) for b in (first, second)]
    at_once(*[work.wait for work in works])
    assert works[0].result().tolist() == works[1].result().tolist() == [1.5, 3.5]


@pytest.mark.parametrize("present", [[0], [1], [0, 2]])
def test_ranks_that_do_not_join_are_named(present):
    """Whoever comes names exactly the ranks that did not, after the group's time."""
    store = HashStore()
    specs = [make_spec(r, 3, store, timeout_s=0.8) for r in present]
    missing = [r for r in range(3) if r not in present]
    for error in at_once(*[lambda s=s: ShmBackend.create(s) for s in specs]):
        assert isinstance(error, CollectiveTimeout)
        assert f"{rank_list(missing)} did not join group world in 0.8 s" in str(error)


def test_a_failure_elsewhere_ends_the_joining(tmp_path):
    """A rank that fails before it joins ends the others' wait with its reason."""
    FailureRecord(1, type="ImportError", message="no module named model").write(str(tmp_path))
    spec = make_spec(0, 2, HashStore(), watch=FailureWatch(0, str(tmp_path)))
    spec.store.on_idle = spec.watch.check
    with pytest.raises(PeerError, match="rank 1 raised ImportError: no module named model"):
        ShmBackend.create(spec)


def test_versions_that_lay_memory_out_differently():
    """Ranks whose layouts differ find out when they join, before anything is written."""
    store = HashStore()

    def create(rank, ring):
        cls = type("Versioned", (ShmBackend,), {"layout_options": {"ring": ring}})
        return cls.create(make_spec(rank, 2, store, timeout_s=2))

    results = at_once(*[lambda r=r, ring=ring: create(r, ring) for r, ring in enumerate((16, 512))])
    assert "different versions" in str(results[1])


def test_no_memory_for_the_group(monkeypatch):
    """A host without shared memory is an error at creation that says so."""
    monkeypatch.setattr(os, "posix_fallocate", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(CommError, match="no shared memory for group world"):
        make_world(2)


def test_groups_give_everything_back():
    """Making, using and closing groups leaves no descriptor, no mapping and no thread behind."""

    def count():
        gc.collect()
        with open("/proc/self/maps") as maps:
            mapped = sum("memfd:ddpflow" in line for line in maps)
        return len(os.listdir("/proc/self/fd")), mapped, threading.active_count()

    before = count()
    for _ in range(3):
        world = make_world(3)
        arrays = [backend.empty(100_000, np.dtype(float)) for backend in world]
        for seq in (1, 2):
            works = [b.all_reduce(a, ReduceOp.MAX, call(seq)) for b, a in zip(world, arrays, strict=True)]
            at_once(*[work.wait for work in works])
        for backend in world:
            backend.close(1)
        del world, arrays, works, backend
    assert count() == before


def killed(rank):
    """Holds registered memory, and is killed."""
    group = dist.current_group()
    array = group.empty(1 << 20, np.float32)
    group.all_reduce(array)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group.all_reduce(array)


def test_nothing_is_left_after_a_kill():
    """Killed ranks leave no file in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    run_ranks(killed, 2, "shm", return_exceptions=True)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "ddpflow" in name]


def test_it_says_why_it_is_not_available(monkeypatch):
    """Systems other than Linux get the reason and a way out."""
    assert ShmBackend.unavailable_reason() is None
    monkeypatch.setattr("sys.platform", "darwin")
    assert "Linux" in (ShmBackend.unavailable_reason() or "")
