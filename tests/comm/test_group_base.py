"""Argument checks of a group."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm import registry
from ddpflow.comm.backend import GroupSpec
from ddpflow.comm.backends.solo import SoloBackend
from ddpflow.comm.env import ProcessContext
from ddpflow.comm.failure import FailureWatch
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.store import HashStore
from ddpflow.comm.work import ChainedWork
from ddpflow.errors import DeviceError, DtypeError, PeerError, ShapeError, ValueRangeError
from ddpflow.testing import run_ranks


def checks(rank: int) -> None:
    """Each wrong argument is named."""
    group = dist.current_group()
    other = 1 - rank
    for tag in (-1, 1 << 30, 1.5, True, "x"):
        with pytest.raises(ValueRangeError, match="tag must be an integer"):
            group.send(np.zeros(1), other, tag)
    for peer in (2, -1, None, "0", 0.5):
        with pytest.raises(ValueRangeError, match=r"is not in group world \(its ranks: 0, 1\)"):
            group.send(np.zeros(1), peer)
    with pytest.raises(ValueRangeError, match="itself"):
        group.recv(np.zeros(1), rank)
    with pytest.raises(ValueRangeError, match="rank 0 must give the list" if rank == 0 else "only rank 0 may give"):
        group.gather(np.zeros(1), None if rank == 0 else [np.zeros(1)] * 2, 0)
    with pytest.raises(DtypeError, match="float32 and float64"):
        group.all_to_all_single(np.zeros(2, "f4"), np.zeros(2))
    with pytest.raises(ShapeError, match="3 rows of the input cannot be shared equally by 2 ranks"):
        group.all_to_all_single(np.zeros(3), np.zeros(3))
    with pytest.raises(ShapeError, match="add up to 3 rows"):
        group.all_to_all_single(np.zeros(2), np.zeros(3), None, [4, -1])
    with pytest.raises(ShapeError, match="one array per rank"):
        group.all_to_all([np.zeros(1)], [np.zeros(1)] * 2)


def test_checks():
    """Wrong arguments are refused on their own rank."""
    run_ranks(checks, 2)


def test_empty():
    """Communication memory has the asked length and dtype."""
    group = dist.current_group()
    for n, dtype in ((0, "f4"), (7, np.float64), (3, np.dtype("i8"))):
        array = group.empty(n, dtype)
        assert array.shape == (n,) and array.dtype == np.dtype(dtype) and array.flags.carray


class DeviceArray:
    """As little of an array on a GPU as a group touches."""

    def __init__(self, values):
        self.host = np.asarray(values)

    def __getattr__(self, name):
        return getattr(self.host, name)

    def reshape(self, *shape):
        """Returns this array: it is flat already."""
        return self


class DeviceBackend(SoloBackend):
    """A transport of GPU arrays alone, which notes what it carries."""

    devices = ("cuda",)
    seen: list[str] = []

    def all_reduce(self, array, op, call):
        """Notes the call."""
        assert isinstance(array, DeviceArray)
        self.seen.append(str(call))
        return super().all_reduce(array, op, call)


def test_a_transport_for_each_device(monkeypatch):
    """CPU arrays go to the main transport; the other is made when its first array comes, and counts alike."""
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=DeviceArray))
    monkeypatch.setattr(registry, "_TARGETS", {**registry._TARGETS, "gpu": f"{__name__}:DeviceBackend"})
    spec = GroupSpec("world", (0,), 0, HashStore(), ProcessContext(), FailureWatch(0), 1.0, 1.0)

    class HostBackend(SoloBackend):
        devices = ("cpu",)

    group = ProcessGroup(spec, HostBackend(spec), {"cuda": "gpu"})
    group.all_reduce(np.zeros(3))
    assert len(group._transports()) == 1
    group.all_reduce(DeviceArray([1.0, 2.0]))
    assert DeviceBackend.seen == ["all_reduce #2"] and len(group._transports()) == 2
    group._transports()[1].failure = PeerError("rank 1 is gone")
    for array in (DeviceArray([1.0]), DeviceArray([1.0, 2.0])):
        with pytest.raises(PeerError, match="rank 1 is gone"):
            group.all_reduce(array)
    with pytest.raises(PeerError, match="barrier cannot run"):
        group.barrier()
    only_host = ProcessGroup(spec, HostBackend(spec))
    with pytest.raises(DeviceError, match="carries cpu arrays, not cuda ones"):
        only_host.all_reduce(DeviceArray([1.0]))


def test_beside():
    """On the CPU there is no other place to compute: a launch is called, and its Work handed on untouched."""
    spec = GroupSpec("world", (0,), 0, HashStore(), ProcessContext(), FailureWatch(0), 1.0, 1.0)
    group = ProcessGroup(spec, SoloBackend(spec))
    x, steps = np.arange(3.0), []

    def launch():
        x[...] *= 2
        return ChainedWork(group.all_reduce(x, async_op=True), lambda: steps.append(x.sum()))

    work = group.beside(x, launch)
    assert x.tolist() == [0, 2, 4] and steps == []
    work.wait()
    assert steps == [6]
