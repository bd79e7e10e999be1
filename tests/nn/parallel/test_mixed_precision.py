"""Computing in a smaller type, averaging in another, parameters in their own."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.errors import DtypeError
from ddpflow.nn.parallel import MixedPrecision, compression
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from ddpflow.utils.checkpoint import checkpoint

pytest.importorskip("ml_dtypes", reason="bfloat16 needs the extra bf16")


class Net(nn.Module):
    """Convolution, batch norm, tied weights; notes the types that it computes in."""

    def __init__(self, checkpointed=False):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.inner = nn.Linear(16, 16)
        self.tied = nn.Linear(16, 16)
        self.tied.weight = self.inner.weight
        self.out = nn.Linear(16, 3)
        self.checkpointed = checkpointed
        self.seen = set()

    def _body(self, h):
        self.seen |= {h.dtype, self.inner.weight.dtype}
        return self.tied(self.inner(h).relu()) + nn.functional.linear(h, self.inner.weight)

    def forward(self, x, labels):
        """Returns logits; labels must arrive as they are."""
        assert labels.dtype == ddpflow.int64
        h = self.norm(self.conv(x)).relu().flatten(1)
        h = checkpoint(self._body, h) if self.checkpointed else self._body(h)
        return self.out(h)


def _train(rank, precision, steps=6, checkpointed=False):
    ddpflow.manual_seed(7 + rank)
    ddp = DDP(Net(checkpointed), mixed_precision=precision, bucket_cap_mb=0.001)
    optimizer = ddpflow.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        generator = np.random.default_rng([step, rank])
        x = ddpflow.tensor(generator.normal(size=(4, 1, 4, 4)).astype(np.float32))
        labels = ddpflow.tensor(generator.integers(0, 3, 4))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x, labels).float(), labels)
        loss.backward()
        optimizer.step()
    types = {p.dtype.name for p in ddp.parameters()} | {p.grad.dtype.name for p in ddp.parameters()}
    types |= {v.dtype.name for s in optimizer.state.values() for v in s.values() if hasattr(v, "dtype")}
    buffers = {b.dtype.name for b in ddp.buffers() if b.is_floating_point()}
    weights = {n: p.detach().numpy().copy() for n, p in ddp.module.named_parameters()}
    return weights, types, buffers, {d.name for d in ddp.module.seen}


KINDS = {
    "half": MixedPrecision(ddpflow.float16, ddpflow.float16, ddpflow.float16),
    "bfloat16 averaged in float32": MixedPrecision(ddpflow.bfloat16, ddpflow.float32),
    "bfloat16": MixedPrecision(param_dtype=ddpflow.bfloat16),
    "only averages": MixedPrecision(reduce_dtype=ddpflow.float16),
    "averaged in float64": MixedPrecision(reduce_dtype=ddpflow.float64),
}


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_near_float32s_and_equal_on_all_ranks(world, kind):
    """Parameters, gradients and optimizer state stay float32, equal bits on all ranks, close to plain training."""
    precision = KINDS[kind]
    (weights, types, buffers, seen), *others = world(_train, 2, precision)
    plain, *_ = world(_train, 2, None)[0]
    assert types == {"float32"}
    assert seen == {(precision.param_dtype or ddpflow.float32).name}
    assert buffers == {(precision.buffer_dtype or ddpflow.float32).name}
    for name, value in weights.items():
        for other in others:
            np.testing.assert_array_equal(value, other[0][name])
        np.testing.assert_allclose(value, plain[name], atol=0.03)
    if precision.param_dtype is not None:
        assert any((value != plain[name]).any() for name, value in weights.items())


def test_checkpointed_parts_run_on_copies_again(world):
    """What backward runs again has the types, and so the bits, of the first run."""
    precision = KINDS["bfloat16 averaged in float32"]
    (plain, *_), (again, _, _, seen) = (world(_train, 2, precision, 3, way)[0] for way in (False, True))
    assert seen == {"bfloat16"}
    for name, value in plain.items():
        np.testing.assert_allclose(again[name], value, atol=1e-3)


def _everything(rank, unused, hook):
    ddpflow.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    ddp = DDP(
        nn.parallel.convert_sync_batchnorm(net),
        mixed_precision=MixedPrecision(ddpflow.bfloat16, ddpflow.float32),
        unused=unused,
        comm_hook=hook,
    )
    optimizer = ddpflow.optim.SGD(ddp.parameters(), lr=0.1)
    with ddp.join():
        for _ in range(3 + rank):
            optimizer.zero_grad()
            ddp(ddpflow.rand(3, 4)).float().square().mean().backward()
            optimizer.step()
    with ddp.no_sync():
        ddp(ddpflow.rand(3, 4)).sum().backward()
    ddp.sync_gradients()
    ddp.check_consistency(optimizer)
    return [p.grad.tolist() for p in ddp.parameters()]


@pytest.mark.parametrize(("unused", "hook"), [("zero", None), ("none", compression.fp16_compress_hook)])
def test_it_goes_with_the_rest(world, unused, hook):
    """Uneven work, SyncBatchNorm, local gradients, hooks that compress, both ways with unused parameters."""
    first, second = world(_everything, 2, unused, hook)
    assert first == second and any(g != 0 for g in first[-1])


def _scaled(rank):
    ddpflow.manual_seed(1)
    ddp = DDP(nn.Linear(4, 2), mixed_precision=MixedPrecision(ddpflow.float16))
    optimizer = ddpflow.optim.SGD(ddp.parameters(), lr=0.1)
    scaler, scales = ddpflow.amp.GradScaler(init_scale=2.0**17), []
    for _ in range(4):
        optimizer.zero_grad()
        loss = ddp(ddpflow.full((2, 4), rank + 1.0)).float().square().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, [p.tolist() for p in ddp.parameters()]


def test_a_scaler_finds_its_scale(world):
    """Gradients that overflow float16 are left out on all ranks alike, until the scale fits."""
    first, second = world(_scaled)
    assert first == second
    scales, weights = first
    assert scales[0] < 2.0**17 and np.isfinite(weights[0]).all()


def _reduced(rank):
    ddp = DDP(nn.Linear(2, 1, bias=False), mixed_precision=MixedPrecision(reduce_dtype=ddpflow.float16))
    x = ddpflow.tensor([[1.0 + rank * 2.0**-9, 1e-3]])
    ddp(x).sum().backward()
    return ddp.module.weight.grad.tolist()


def test_gradients_are_averaged_in_the_reduce_type(world):
    """The mean is the half type's nearest number; it lands in float32."""
    expected = np.array([(1.0 + (1.0 + 2.0**-9)) / 2, np.float16(1e-3)], np.float16)
    assert world(_reduced) == [[expected.astype(np.float32).tolist()]] * 2


def test_alone_it_computes_in_the_type_too():
    """A world of one computes on copies, also without gradients; afterwards the module holds its parameters."""
    net = nn.Linear(2, 2)
    before = dict(net.named_parameters())
    ddp = DDP(net, mixed_precision=MixedPrecision(ddpflow.float16))
    x = ddpflow.ones(1, 2)
    assert ddp(x).dtype == ddpflow.float16
    with ddpflow.no_grad():
        assert ddp({"x": x}["x"]).dtype == ddpflow.float16
    assert net.weight is before["weight"] and net._parameters["bias"] is before["bias"]
    with pytest.raises(RuntimeError):
        ddp(ddpflow.ones(1, 3))
    assert net.weight is before["weight"]
    for twin in (copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp))):
        assert twin(x).dtype == ddpflow.float16 and twin.mixed_precision == ddp.mixed_precision


def test_types_are_checked():
    """Only floating types, and only a MixedPrecision."""
    with pytest.raises(DtypeError, match="reduce_dtype"):
        MixedPrecision(reduce_dtype=ddpflow.int32)
    with pytest.raises(DtypeError, match="MixedPrecision"):
        DDP(nn.Linear(1, 1), mixed_precision=ddpflow.float16)
