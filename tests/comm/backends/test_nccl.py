"""The NCCL transport on the CuPy stand-in: the conformance checks, and what is its own.

It proves nothing about CUDA; with a GPU there is tests/gpu.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm import ReduceOp
from ddpflow.comm.work import ChainedWork
from ddpflow.errors import CollectiveTimeout, CommError, MismatchError, PeerError
from tests.comm import bodies, faults
from tests.comm.conformance import Conformance
from tests.comm.reference import DTYPES, dtype_of, is_defined, reduced, values
from tests.doubles.nccl import NcclCommunicator, NcclError
from tests.doubles.timeline import StreamOrderError
from tests.doubles.worlds import ALONE, BOTH, run_gpu_ranks


class TestNccl(Conformance):
    """NumPy arrays through the (pretended) GPU, so that every check of the other transports runs here too."""

    backend: ClassVar[str] = ALONE
    checks_calls: ClassVar[bool] = False
    # These go through the store alone, and are checked with the other transports.
    test_monitored_barrier = test_new_group_names_who_did_not_call = test_differing_groups = None

    def run(self, fn: Callable[..., Any], n: int, *args: Any, **options: Any) -> list[Any]:
        """Runs a body on n ranks with a device each."""
        return run_gpu_ranks(fn, n, self.backend, args=args, **options)

    @pytest.mark.parametrize("n", [2, 3, 4])
    def test_reductions(self, n):
        """As for other transports; NCCL divides the parts of complex numbers, which rounds otherwise for n = 3."""
        names = tuple(name for name in DTYPES if n != 3 or not name.startswith("complex"))
        self.run(bodies.reductions, n, names, timeout_s=60)

    @pytest.mark.parametrize("n", [2])
    def test_messages(self, n):
        """Messages of a pair arrive in order; tags, and receiving from any sender, are refused with the reason."""
        assert self.run(messages, n) == [None, [4.0, 7.0]]

    def test_late_rank(self):
        """A rank that comes after the others' deadline gets an error too, which names who gave up."""
        first, second = self.run(faults.late, 2)
        assert first[0].startswith("CollectiveTimeout: rank 0: all_reduce #2 got no answer from rank 1 in 0.4 s")
        assert second[0].startswith("PeerError: rank 1: all_reduce cannot run")
        assert "rank 0 gave up waiting in all_reduce #2" in second[0]

    def test_wrong_message(self):
        """NCCL does not tell the receiver of a wrong length: the deadline does."""
        broken: list[str] = []
        errors = self.failures(faults.wrong_message, 2, group_timeout_s=0.5, violations=broken.extend)
        assert any(isinstance(error, CollectiveTimeout) for error in errors)
        assert all(isinstance(error, CommError) for error in errors) and "message differs" in broken[0]

    @pytest.mark.parametrize(
        ("what", "shown"),
        [
            ("dtype", ["float32[4]", "float64[4]", "differ in dtype"]),
            ("count", ["float32[4]", "float32[5]", "differ in count"]),
            ("copy", ["all_reduce #1", "broadcast #1", "operation"]),
            ("reduce op", ["op=SUM", "op=MAX", "differ in reduce op"]),
            ("root", ["root=0", "root=1", "differ in root"]),
            ("order", ["all_reduce #1", "all_gather #1"]),
        ],
    )
    @pytest.mark.parametrize("n", [2])
    def test_mismatch(self, n, what, shown):
        """Ranks that make different calls wait for each other; at the deadline they compare what they have called."""
        errors = self.failures(faults.mismatch, n, what, group_timeout_s=0.4, violations=lambda broken: None)
        assert any(isinstance(error, MismatchError) for error in errors), errors
        for error in errors:
            assert isinstance(error, MismatchError | PeerError), error
            if isinstance(error, MismatchError):
                assert all(text in str(error) for text in shown), str(error)


def messages(rank):
    """What NCCL's messages can do and what not."""
    if rank == 0:
        dist.send(np.array([4.0]), 1)
        dist.send(np.array([7.0]), 1)
        with pytest.raises(CommError, match="no tags"):
            dist.send(np.array([7.0]), 1, tag=3)
        return None
    found = []
    for _ in range(2):
        x = np.zeros(1)
        dist.recv(x, 0)
        found.append(float(x[0]))
    with pytest.raises(CommError, match="any rank"):
        dist.recv(np.zeros(1))
    return found


def on_the_device(rank):
    """Every dtype and reduce op, and every copying collective, with CuPy arrays."""
    import cupy

    n = dist.get_world_size()
    for name in DTYPES:
        for op in ReduceOp:
            if not is_defined(name, op):
                continue
            x = cupy.asarray(values(name, rank))
            dist.all_reduce(x, op)
            expected = reduced([values(name, r) for r in range(n)], op)
            np.testing.assert_array_equal(x.get(), expected)
            out = cupy.empty(3, dtype_of(name))
            dist.reduce_scatter_tensor(out, cupy.asarray(values(name, rank, (n, 3))), op)
            expected = reduced([values(name, r, (n, 3)) for r in range(n)], op)[rank]
            np.testing.assert_array_equal(out.get(), expected)
        mine, everyone = values(name, rank, (2, 3)), [values(name, r, (2, 3)) for r in range(n)]
        outs = [cupy.empty((2, 3), mine.dtype) for _ in range(n)]
        dist.all_gather(outs, cupy.asarray(mine))
        for out, expected in zip(outs, everyone, strict=True):
            np.testing.assert_array_equal(out.get(), expected)
        strided = cupy.asarray(mine.T.copy()).T
        dist.broadcast(strided, 1)
        np.testing.assert_array_equal(strided.get(), everyone[1])
        got = [cupy.empty((2, 3), mine.dtype) for _ in range(n)] if rank == 0 else None
        dist.gather(cupy.asarray(mine), got, 0)
        if got is not None:
            np.testing.assert_array_equal(np.stack([g.get() for g in got]), np.stack(everyone))
        part = cupy.empty((2, 3), mine.dtype)
        dist.scatter(part, [cupy.asarray(e) for e in everyone] if rank == 1 else None, 1)
        np.testing.assert_array_equal(part.get(), mine)
        rows = cupy.empty((n, 2), mine.dtype)
        dist.all_to_all_single(rows, cupy.asarray(values(name, rank, (n, 2))))
        np.testing.assert_array_equal(rows.get(), np.stack([values(name, r, (n, 2))[rank] for r in range(n)]))


@pytest.mark.parametrize("backend", [BOTH, ALONE])
def test_arrays_on_the_device(backend):
    """All dtypes work: what NCCL lacks (16-bit integers, bitwise ops, complex products) is gathered and combined."""
    run_gpu_ranks(on_the_device, 2, backend, timeout_s=60)


def overlapped(rank):
    """A collective in flight while the current stream goes on."""
    import cupy

    from tests.doubles.timeline import state

    x = cupy.full(4, float(rank))
    dist.all_reduce(x)
    waited = len(state().syncs)
    works = []
    for k in range(3):
        x += 1
        works.append(dist.all_reduce(x.copy(), ReduceOp.AVG, async_op=True))
        other = cupy.arange(4.0) * k  # compute beside it
    for work in works:
        work.wait()
    results = [work.result()[0] for work in works]
    total = results[0] + results[1] + results[2] + other.sum() * 0
    assert [s for s in state().syncs[waited:] if s != "float"] == [], "the host waited"
    return float(total[0])


def test_the_host_does_not_wait():
    """Launching and waiting order the streams by events; the host never blocks, and no memory is freed too early."""
    assert run_gpu_ranks(overlapped, 2) == [2.0 + 3.0 + 4.0] * 2


def test_two_ranks_on_one_gpu_are_refused():
    """Before NCCL could hang, on all ranks, with both ranks, the GPU and the remedy."""

    def body(rank):
        import cupy

        dist.all_reduce(cupy.zeros(1))

    for error in run_gpu_ranks(body, 2, devices=1, return_exceptions=True):
        assert isinstance(error, CommError) and "rank 0 and rank 1 are both on GPU 0" in str(error), error
        assert "2 ranks of this host share 1 GPUs" in str(error)


def test_two_ranks_on_one_gpu_may_be_allowed(monkeypatch):
    """NCCL's own variable allows it."""
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")

    def body(rank):
        import cupy

        x = cupy.full(1, rank + 1.0)
        dist.all_reduce(x)
        return float(x[0])

    assert run_gpu_ranks(body, 2, devices=1) == [3.0, 3.0]


def test_a_keyerror_of_cupy_is_named(monkeypatch):
    """CuPy's KeyError(6) becomes a PeerError that says "remote error (6)" and where to look."""

    def broken(self, *args):
        raise NcclError(6)

    def body(rank):
        import cupy

        dist.all_reduce(cupy.zeros(1))

    monkeypatch.setattr(NcclCommunicator, "allReduce", broken)
    for error in run_gpu_ranks(body, 2, return_exceptions=True):
        assert isinstance(error, PeerError), error
    assert "remote error (6)" in str(error) and "first error" in str(error)


def test_a_lost_peer_ends_the_wait():
    """An error that NCCL finds in the background ends what is in flight, long before the deadline."""

    def body(rank):
        import cupy

        x = cupy.zeros(1)
        dist.all_reduce(x)
        if rank == 1:
            group = dist.current_group()
            (communicator,) = group._made["cuda"].communicators()
            communicator._room.lost = 6
            return
        work = dist.all_reduce(x, async_op=True)
        while work.exception() is None:
            work.progress()
        work.wait()

    first, _ = run_gpu_ranks(body, 2, return_exceptions=True)
    assert isinstance(first, PeerError) and "remote error (6)" in str(first)


def test_beside():
    """Steps around a collective run on the communication stream, behind what the current stream was given so far."""

    def body(rank):
        import cupy

        group, x = dist.current_group(), cupy.arange(3.0) + rank
        seen = []

        def launch():
            seen.append(cupy.cuda.get_current_stream())
            doubled = x * 2
            work = group.all_reduce(doubled, async_op=True)
            return ChainedWork(work, lambda: x.__setitem__(..., doubled + 1))

        work = group.beside(x, launch, "a test")
        with pytest.raises(StreamOrderError, match="without waiting"):
            x + 1
        work.wait()
        (communicator,) = group._transport(x)._communicators.values()
        assert seen == [communicator.stream] and work.call.tag == "a test" and work.result() is x
        numpy_arrays = group.beside(np.ones(1), lambda: group.all_reduce(np.ones(1), async_op=True))
        assert numpy_arrays.wait()
        return x.get().tolist()

    assert run_gpu_ranks(body, 2, ALONE) == [[3.0, 7.0, 11.0]] * 2


def test_without_cupy(monkeypatch):
    """A machine without CuPy is told which extra to install."""
    from ddpflow.comm.registry import load_backend

    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(CommError, match=r"pip install 'ddpflow\[cuda13\]'"):
        load_backend("nccl")
