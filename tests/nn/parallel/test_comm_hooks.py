"""Communication hooks: the ready-made ones, and every form in which a user's hook may give its result."""

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import DtypeError, ModelError
from ddpflow.nn.parallel import comm_hooks
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from tests.nn.parallel.models import Weights, grads, tensor, total


def _run(rank, name, dtype=np.float32):
    ddp = DDP(
        Weights([1.0, 2.0], 3.0, dtype=dtype),
        bucket_cap_mb=1e-6,
        comm_hook=getattr(comm_hooks, name),
    )
    for _ in range(2):
        ddp.module.zero_grad()
        total(ddp(tensor([rank + 1.0, 0.1 * (rank + 1)], dtype))).backward()
    return grads(ddp.module)


@pytest.mark.parametrize(
    ("name", "w0", "w1"),
    [
        ("allreduce_hook", [1.5, 0.15], 1.65),
        ("sum_hook", [3.0, 0.3], 3.3),
    ],
)
def test_ready_made_hooks(world, name, w0, w1):
    """The mean and the sum; equal bits on both ranks."""
    first, second = world(_run, 2, name)
    assert first == second
    np.testing.assert_allclose(first["w0"], w0, rtol=1e-6)
    np.testing.assert_allclose(first["w1"], w1, rtol=1e-6)


def test_the_noop_hook_leaves_local_gradients(world):
    """Nothing is sent."""
    assert [g["w0"][0] for g in world(_run, 2, "noop_hook")] == [1.0, 2.0]


def _forms(rank, form):
    ddp = DDP(Weights([1.0, 2.0], 5.0), bucket_cap_mb=1e-6)
    facts = []

    def hook(state, bucket):
        facts.append((bucket.index(), bucket.is_last(), [tuple(g.shape) for g in bucket.gradients()]))
        assert all(p is not None for p in bucket.parameters())
        if form == "work":
            return dist.all_reduce(bucket.buffer(), async_op=True)
        if form == "future":
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        if form == "then":
            future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
            return future.then(lambda f: f.value()[0] / state["divisor"]).then(lambda f: [f.value() * 2.0])
        if form == "tensor":
            dist.all_reduce(bucket.buffer())
            return bucket.buffer() * 3.0
        bucket.set_buffer(Tensor(np.full(bucket.buffer().shape, 7.0)))
        return bucket.buffer().numpy()

    ddp.register_comm_hook({"divisor": 4.0}, hook)
    total(ddp(tensor([rank + 1.0, 10.0]))).backward()
    return grads(ddp.module), facts


@pytest.mark.parametrize(
    ("form", "factor"), [("work", 1.0), ("future", 1.0), ("then", 0.5), ("tensor", 3.0), ("array", None)]
)
def test_every_form_of_result(world, form, factor):
    """A Work, a future, a chain of steps, a tensor and an array."""
    for gradients, facts in world(_forms, 2, form):
        expected = {"w0": [7.0, 7.0], "w1": 7.0}
        if factor is not None:
            expected = {"w0": [3.0 * factor, 20.0 * factor], "w1": 23.0 * factor}
        assert gradients == expected
        assert facts == [(0, False, [()]), (1, True, [(2,)])]


def _bad_result(rank):
    ddp = DDP(Weights(1.0), comm_hook=lambda state, bucket: "done")
    total(ddp(tensor(1.0))).backward()


def test_another_result_is_refused(world):
    """The error says what a hook may give."""
    for error in world(_bad_result, 2, return_exceptions=True):
        assert isinstance(error, DtypeError) and "must give a Work, a Future" in str(error)


def test_hooks_are_checked_when_registered():
    """Something that cannot be called, and a second hook, are refused."""
    ddp = DDP(Weights(1.0))
    with pytest.raises(DtypeError, match="must be callable"):
        ddp.register_comm_hook(None, 3)
    ddp.register_comm_hook(None, comm_hooks.sum_hook)
    with pytest.raises(ModelError, match="once only"):
        ddp.register_comm_hook(None, comm_hooks.sum_hook)
