"""DataParallel on one device."""

import pytest

import ddpflow
from ddpflow import nn


def test_calls_the_module():
    """The wrapper passes everything on, and its state has PyTorch's prefix."""
    layer = nn.Linear(2, 3)
    net = nn.DataParallel(layer, device_ids=[0])
    x = ddpflow.randn(4, 2)
    assert net(x).tolist() == layer(x).tolist()
    assert list(net.state_dict()) == ["module.weight", "module.bias"]
    assert net.module is layer


def test_several_devices_are_refused():
    """More than one device is refused with the way that works."""
    with pytest.raises(RuntimeError, match="use DistributedDataParallel"):
        nn.DataParallel(nn.Identity(), device_ids=[0, 1])
