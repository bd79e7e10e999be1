"""Making a communicator: who does not come is named, and missing libraries are told."""

import sys

import pytest

import ddpflow.comm as dist
from ddpflow.comm.backends.nccl_communicator import load_nccl
from ddpflow.errors import CollectiveTimeout
from tests.doubles.fake_cupy import installed
from tests.doubles.nccl import NcclCommunicator
from tests.doubles.worlds import run_gpu_ranks


def test_a_rank_that_does_not_come():
    """The first operation on a device, which makes the communicator, names who is missing."""

    def body(rank):
        import cupy

        if rank != 1:
            dist.all_reduce(cupy.zeros(1), timeout=0.3)

    errors = run_gpu_ranks(body, 3, return_exceptions=True)
    for rank in (0, 2):
        assert isinstance(errors[rank], CollectiveTimeout)
        assert "all_reduce #1, the first on this device, got no answer from rank 1 in 0.3 s" in str(errors[rank])


def test_each_group_has_its_own():
    """Sub-groups make communicators of their own, lazily."""

    def body(rank):
        import cupy

        pair = dist.new_group([0, 2])
        x = cupy.full(2, rank + 1.0)
        if rank != 1:
            dist.all_reduce(x, group=pair)
        dist.all_reduce(x)
        return x.get().tolist(), len(dist.current_group()._made)

    assert run_gpu_ranks(body, 3) == [([10.0, 10.0], 1)] * 3


def test_without_the_library(monkeypatch):
    """CuPy without libnccl: which wheel to install; CuPy without the module: which extra."""
    with installed():
        module = sys.modules["cupy.cuda.nccl"]
        assert load_nccl() == (module, None)
        monkeypatch.setattr(module, "available", False)
        assert "nvidia-nccl-cu13" in load_nccl()[1]
        monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", None)
        monkeypatch.delattr(sys.modules["cupy.cuda"], "nccl", raising=False)
        assert "ddpflow[cuda13]" in load_nccl()[1]


@pytest.mark.parametrize("n", [2])
def test_the_stream_is_its_own(n):
    """Communication has a stream of high priority that does not wait for the default stream by itself."""

    def body(rank):
        import cupy

        dist.all_reduce(cupy.zeros(1))
        (made,) = dist.current_group()._made["cuda"]._communicators.values()
        return made.stream.is_non_blocking, made.stream.priority, made.device

    assert run_gpu_ranks(body, n) == [(True, -1, r) for r in range(n)]


@pytest.mark.parametrize(("refused", "error"), [((bytes,), TypeError), ((bytes, "signed"), OverflowError)])
def test_an_older_cupy(monkeypatch, refused, error):
    """Where CuPy does not take bytes it gets a tuple, of numbers with or without a sign."""
    made = NcclCommunicator.__init__

    def picky(self, ndev, commId, rank, config=None):
        if isinstance(commId, bytes):
            raise TypeError("Argument 'commId' has incorrect type")
        if "signed" in refused and min(commId) < 0:
            raise error("can't convert negative value to char")
        made(self, ndev, bytes(value & 0xFF for value in commId), rank)

    def body(rank):
        import cupy

        x = cupy.full(1, rank + 1.0)
        dist.all_reduce(x)
        return float(x[0])

    monkeypatch.setattr(NcclCommunicator, "__init__", picky)
    assert run_gpu_ranks(body, 2) == [3.0, 3.0]
