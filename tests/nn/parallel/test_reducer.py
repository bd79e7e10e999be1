"""The reducer's state machine: rounds, static graphs, nested backward, memory."""

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

from ddpflow.autograd.function import Function
from ddpflow.autograd.mode import enable_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.world import current_group
from ddpflow.nn import BatchNorm1d, Linear, Sequential
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from ddpflow.optim import SGD
from ddpflow.testing import run_ranks
from tests.nn.parallel.models import Weights, grads, tensor, total

OURS = [tracemalloc.Filter(True, "*/ddpflow/*")]


class Recompute(Function):
    """Runs a function without a graph, and again, with one, in backward: what activation checkpointing does."""

    @staticmethod
    def forward(ctx, run, x):
        """Remembers the input and returns ``run(x)``."""
        ctx.run = run
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    def backward(ctx, gradient):
        """Runs forward again and a backward inside this one."""
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with enable_grad():
            y = ctx.run(x)
        y.backward(gradient)
        return None, x.grad


def _checkpointed(rank, static_graph):
    module = Weights(2.0, 3.0, 5.0)
    ddp = DDP(module, static_graph=static_graph, bucket_cap_mb=1e-6)
    found = []
    for _ in range(3):
        module.zero_grad()
        x = tensor(rank + 1.0).requires_grad_()
        h = Recompute.apply(lambda h: h * module.w0 * module.w1, x)  # w1 here, and outside
        h = Recompute.apply(lambda h: h * module.w0, h)  # w0 twice
        total(h * module.w2 * module.w1).backward()
        found.append((list(grads(module).values()), x.grad.item()))
    return found, ddp._reducer.rounds


@pytest.mark.parametrize("backend", ["thread", "shm"])
@pytest.mark.parametrize("static_graph", [False, True])
def test_a_shared_block_recomputed_in_backward(backend, static_graph):
    """With y = x w0^2 w1^2 w2 through nested passes, the mean gradients are those of the plain product."""
    x = 1.5  # the mean of the inputs; y is linear in x
    w0, w1, w2 = 2.0, 3.0, 5.0
    expected = [2 * w0 * w1**2 * w2 * x, 2 * w1 * w0**2 * w2 * x, w0**2 * w1**2 * x]
    for rank, (found, rounds) in enumerate(run_ranks(_checkpointed, 2, backend, args=(static_graph,))):
        assert rounds == 3
        for gradients, dx in found:
            np.testing.assert_allclose(gradients, expected, rtol=1e-12)
            assert dx == w0**2 * w1**2 * w2, rank


def _collectives(rank):
    ddp = DDP(Weights(*[[1.0] * 10] * 300))
    counts = []
    for _ in range(3):
        start = current_group().seq
        total(ddp(tensor(np.ones(10)))).backward()
        counts.append(current_group().seq - start)
    return counts


def test_three_hundred_small_parameters_are_one_collective_a_step():
    """The default plan packs them all."""
    assert run_ranks(_collectives, 2) == [[1, 1, 1]] * 2


def _steady(rank):
    ddp = DDP(Weights([1.0, 2.0], [3.0, 4.0]))
    flats = [b.flat for b in ddp._reducer.buckets]
    where = []
    for _ in range(4):
        ddp.module.zero_grad()
        total(ddp(tensor([rank + 1.0, 1.0]))).backward()
        where.append([p.grad.data_ptr() for p in ddp.module.parameters()])
    return all(w == where[0] for w in where), all(b.flat is f for b, f in zip(ddp._reducer.buckets, flats, strict=True))


def test_gradients_stay_in_the_buckets_memory_from_step_to_step():
    """The address of every gradient is the same in each step: nothing is allocated for them."""
    assert run_ranks(_steady, 2, "shm") == [(True, True)] * 2


def _allocations(rank):
    ddp = DDP(Sequential(Linear(512, 512), Linear(512, 512), Linear(512, 2)), bucket_cap_mb=1.1)
    optimizer = SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    x = tensor(np.random.default_rng(rank).standard_normal((4, 512)), np.float32)

    def steps():
        for _ in range(10):
            optimizer.zero_grad()
            total(ddp(x)).backward()
            optimizer.step()
        gc.collect()

    steps()
    tracemalloc.start()
    try:
        steps()
        before = tracemalloc.take_snapshot().filter_traces(OURS)
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        steps()
        peak = tracemalloc.get_traced_memory()[1] - start
        after = tracemalloc.take_snapshot().filter_traces(OURS)
    finally:
        tracemalloc.stop()
    grown = [str(d) for d in after.compare_to(before, "lineno") if d.size_diff > 100]
    return len(ddp._reducer.buckets), grown, peak


def test_steps_take_no_memory_for_gradients_and_keep_none():
    """Ten steps take less than half a large gradient (1 MiB) at their peak, and keep nothing more than ten before."""
    for buckets, grown, peak in run_ranks(_allocations, 2, "shm"):
        assert buckets > 1
        assert grown == []
        assert peak < 512 << 10


def _dropped(rank):
    module = Weights(1.0, 2.0)
    gc.collect()
    gc.disable()
    try:
        ddp = DDP(module)
        total(ddp(tensor(rank + 1.0))).backward()
        alive = [weakref.ref(ddp), weakref.ref(ddp._reducer)]
        module_alive = weakref.ref(module)
        del ddp
        dead = [r() is None for r in alive]
        averaged = module.w0.grad.array
        module.zero_grad()
        total(module(tensor(rank + 1.0))).backward()
        local = module.w0.grad.item()
        dead.append(averaged.item() == 1.5)
        del module
        return dead, local, module_alive() is None
    finally:
        gc.enable()


def test_dropping_the_wrapper_frees_it_without_the_collector():
    """No cycle holds the wrapper, the reducer or the module; afterwards gradients are local and lie elsewhere."""
    assert run_ranks(_dropped, 2) == [([True, True, True], 1.0, True), ([True, True, True], 2.0, True)]


def _leaks(rank):
    module = Sequential(Linear(6, 5), BatchNorm1d(5), Linear(5, 2))
    ddp = DDP(module, unused="none")
    optimizer = SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    counts = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(60):
            optimizer.zero_grad()
            total(ddp(tensor(np.random.default_rng(rank).standard_normal((4, 6)), np.float32))).backward()
            optimizer.step()
            counts.append(sum(isinstance(o, Tensor) for o in gc.get_objects()))
    finally:
        gc.enable()
    return counts


@pytest.mark.parametrize("backend", ["thread", "shm"])
def test_steps_leave_nothing_behind(backend):
    """With the collector off, the number of live tensors is the same after every step: there are no cycles."""
    for counts in run_ranks(_leaks, 2 if backend == "shm" else 1, backend):
        assert len(set(counts[2:])) == 1
