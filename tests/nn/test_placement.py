"""Casting and moving modules."""

import pytest

import ddpflow
from ddpflow import nn


def make():
    """Returns a module with floating and integer state."""
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


def test_casts_floating_state_in_place():
    """double() casts parameters, gradients and floating buffers; integers and the objects stay."""
    net = make()
    weight = net[0].weight
    net(ddpflow.randn(3, 2)).sum().backward()
    assert net.double() is net
    assert net[0].weight is weight
    assert weight.dtype is ddpflow.float64
    assert weight.grad.dtype is ddpflow.float64
    assert net[1].running_mean.dtype is ddpflow.float64
    assert net[1].running_mean is net[1]._buffers["running_mean"]
    assert net[1].num_batches_tracked.dtype is ddpflow.int64
    assert net(ddpflow.randn(3, 2).double()).dtype is ddpflow.float64
    assert net.float()[0].bias.dtype is ddpflow.float32
    assert net.half()[0].bias.dtype is ddpflow.float16


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((ddpflow.float64,), {}),
        (("cpu", ddpflow.float64), {}),
        ((), {"dtype": ddpflow.float64, "device": "cpu", "non_blocking": True}),
        ((ddpflow.ones(1).double(),), {}),
        ((ddpflow.device("cpu"), ddpflow.float64), {}),
    ],
)
def test_forms_of_to(args, kwargs):
    """to() takes a dtype, a device, both, or a tensor to be like."""
    assert make().to(*args, **kwargs)[0].weight.dtype is ddpflow.float64


def test_to_keeps_ties_and_requires_grad():
    """Casting keeps shared parameters shared and frozen ones frozen."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net[0].bias.requires_grad_(False)
    net.to(ddpflow.float64)
    assert net[0].weight is net[1].weight
    assert not net[0].bias.requires_grad
    assert net[0].weight.requires_grad


def test_nothing_to_do_keeps_the_memory():
    """Casting to the same dtype copies nothing."""
    net = make()
    memory = net[0].weight.array
    assert net.float().cpu()[0].weight.array is memory


def test_type_casts_everything():
    """type() casts integers too."""
    net = make().type(ddpflow.float64)
    assert net[1].num_batches_tracked.dtype is ddpflow.float64


def test_refused_dtypes_and_arguments():
    """Integer dtypes and unknown arguments are TypeErrors."""
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        make().to(ddpflow.int64)
    with pytest.raises(TypeError, match="unexpected arguments: speed"):
        make().to(speed=1)


def test_bfloat16():
    """bfloat16() casts to bfloat16."""
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs the package ml_dtypes")
    assert make().bfloat16()[0].weight.dtype is ddpflow.bfloat16


@pytest.mark.gpu
def test_cuda_moves_everything():
    """cuda() moves parameters and buffers, cpu() brings them back."""
    net = make().cuda()
    assert all(tensor.is_cuda for tensor in net.state_dict().values())
    assert not any(tensor.is_cuda for tensor in net.cpu().state_dict().values())
