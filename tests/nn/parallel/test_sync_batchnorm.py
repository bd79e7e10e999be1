"""Batch normalization over all ranks equals batch normalization of one process over the whole batch."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow import nn
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.nn.parallel.sync_batchnorm import SyncBatchNorm, convert_sync_batchnorm
from ddpflow.testing import run_ranks

SPLITS = {"equal": [3, 3], "uneven": [5, 1], "empty": [6, 0], "three": [1, 0, 5]}


def _data(shape=(6, 4, 3)):
    rng = np.random.default_rng(1)
    return rng.standard_normal(shape) * 3 + 2, rng.standard_normal(shape)


def _layer(cls, momentum):
    layer = cls(4, momentum=momentum).to(flow.float64)
    rng = np.random.default_rng(2)
    for t in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        t.data.copy_(flow.from_numpy(rng.random(4) + 0.5))
    return layer


def _steps(layer, x, w, scale=1.0):
    """Two training steps and an evaluation; what a user could see of them."""
    found = []
    for _ in range(2):
        layer.zero_grad()
        t = flow.from_numpy(x.copy()).requires_grad_()
        y = layer(t)
        (y * y * flow.from_numpy(w.copy()) * scale).sum().backward()
        found += [y.detach().numpy(), t.grad.numpy()]
        grads = [p.grad.numpy().copy() for p in layer.parameters()]
    state = [layer.running_mean.numpy().copy(), layer.running_var.numpy().copy(), layer.num_batches_tracked.item()]
    return found, grads, state, layer.eval()(flow.from_numpy(x)).detach().numpy()


def _on_ranks(rank, split, momentum):
    x, w = _data()
    start = sum(split[:rank])
    part = slice(start, start + split[rank])
    ddp = DDP(_layer(SyncBatchNorm, momentum))
    # DDP averages the ranks' parameter gradients: times the number of ranks, the mean is the sum.
    found, grads, state, evaluated = _steps(ddp.module, x[part], w[part])
    return found, [g * len(split) for g in grads], state, evaluated


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("split", list(SPLITS))
def test_unequal_and_empty_batches_equal_one_large_batch(world, split, momentum):
    """Outputs, gradients of input and parameters, running statistics and evaluation, in float64 to 1e-12."""
    sizes = SPLITS[split]
    x, w = _data()
    expected = _steps(_layer(nn.BatchNorm1d, momentum), x, w)
    results = world(_on_ranks, len(sizes), sizes, momentum)
    for i, whole in enumerate(expected[0]):
        np.testing.assert_allclose(np.concatenate([found[i] for found, *_ in results]), whole, rtol=1e-11, atol=1e-12)
    for _, grads, state, _ in results:
        for g, e in zip([*grads, *state], [*expected[1], *expected[2]], strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([e for *_, e in results]), expected[3], rtol=1e-11, atol=1e-12)


def _one_value(rank):
    SyncBatchNorm(2)(flow.ones(1 if rank == 0 else 0, 2))


def test_the_count_of_all_ranks_decides():
    """One value per channel on all ranks together is refused on every rank."""
    for error in run_ranks(_one_value, 2, return_exceptions=True):
        assert isinstance(error, ValueRangeError) and "got 1 on all ranks" in str(error)


def _bad_shape(rank):
    SyncBatchNorm(2)(flow.ones(3, 5))


def test_channels_must_fit():
    """A wrong number of channels is a ShapeError with the shape, before anything is sent."""
    assert all(
        isinstance(e, ShapeError) and "(3, 5)" in str(e) for e in run_ranks(_bad_shape, 2, return_exceptions=True)
    )


def test_conversion_keeps_parameters_statistics_and_mode():
    """Every batch norm in a tree becomes a SyncBatchNorm around the same tensors."""
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
    )
    net[2].eval()
    weight, mean = net[1].weight, net[1].running_mean
    keys = list(net.state_dict())
    assert convert_sync_batchnorm(net) is net
    assert type(net[1]) is SyncBatchNorm and type(net[2][1]) is SyncBatchNorm
    assert net[1].weight is weight and net[1].running_mean is mean
    assert net[1].training and not net[2][1].training
    assert list(net.state_dict()) == keys
    assert type(SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))) is SyncBatchNorm
