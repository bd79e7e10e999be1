"""Parameters and buffers that each rank keeps for itself."""

from ddpflow import nn
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from ddpflow.nn.parallel.managed import managed_buffers, managed_parameters
from tests.nn.parallel.models import Weights, grads, tensor, total


def test_ignored_names_are_left_out():
    """Only those on the list, by their full names."""
    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["0.bias", "1.running_mean"])
    assert [n for n, _ in managed_parameters(net)] == ["0.weight", "1.weight", "1.bias"]
    assert [n for n, _ in managed_buffers(net)] == ["1.running_var", "1.num_batches_tracked"]


def _ignoring(rank):
    module = Weights(1.0, [2.0] * (rank + 1))
    module.register_buffer("own", tensor(float(rank)))
    DDP._set_params_and_buffers_to_ignore_for_model(module, ["w1", "own"])
    ddp = DDP(module)
    total(ddp(tensor(rank + 1.0))).backward()
    ddp.check_consistency()
    return grads(module), module.own.item()


def test_ignored_ones_may_differ(world):
    """They are neither compared, nor copied, nor averaged, nor missed by the consistency check."""
    assert world(_ignoring) == [({"w0": 2.5, "w1": [1.0]}, 0.0), ({"w0": 2.5, "w1": [2.0, 2.0]}, 1.0)]
