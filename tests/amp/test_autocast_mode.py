"""autocast: blocks, decorators, and whole training steps in them."""

import threading

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.amp import autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
from ddpflow.errors import ValueRangeError
from ddpflow.nn import functional as F


def test_autocast_blocks():
    """Blocks nest, belong to a kind of device and to a thread, can be switched off, and decorate."""
    assert not is_autocast_enabled("cpu")
    with autocast("cpu", dtype=ddpflow.float16):
        assert is_autocast_enabled("cpu") and not is_autocast_enabled("cuda")
        assert get_autocast_dtype("cpu") == ddpflow.float16
        with autocast("cpu", enabled=False):
            assert not is_autocast_enabled("cpu")
        assert is_autocast_enabled("cpu")
    assert autocast("cuda:1")(lambda: is_autocast_enabled("cuda"))()
    assert get_autocast_dtype("cuda") == ddpflow.float16 and get_autocast_dtype("cpu") == ddpflow.bfloat16
    assert is_autocast_available("cpu") and not is_autocast_available("tpu")
    with pytest.raises(ValueRangeError, match="tpu"):
        autocast("tpu")
    with pytest.raises(ValueRangeError, match="float32"):
        autocast("cpu", dtype=ddpflow.float32)


def test_a_training_step_in_a_block():
    """Layers give halves, the loss float32, and gradients have their parameters' dtype and nearly the exact values."""
    ddpflow.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x, target = ddpflow.randn(5, 8), ddpflow.tensor([0, 1, 2, 3, 0])
    F.cross_entropy(model(x), target).backward()
    exact = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with autocast("cpu", dtype=ddpflow.float16):
        out = model(x)
        loss = F.cross_entropy(out, target)
    assert out.dtype == ddpflow.float16 and loss.dtype == ddpflow.float32
    loss.backward()
    for p, g in zip(model.parameters(), exact, strict=True):
        assert p.grad.dtype == ddpflow.float32
        np.testing.assert_allclose(p.grad.numpy(), g.numpy(), atol=2e-3)


@pytest.mark.parametrize("dtype", [ddpflow.float16, ddpflow.bfloat16])
def test_a_convolutional_step_in_a_block(dtype):
    """Convolution, batch norm and loss each take what the one before gives; parameters get float32 gradients."""
    ddpflow.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 2, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    x, target = ddpflow.randn(5, 1, 8, 8), ddpflow.tensor([0, 1, 2, 2, 0])
    with autocast("cpu", dtype=dtype):
        out = model(x)
        loss = F.cross_entropy(out, target)
    loss.backward()
    assert out.dtype == dtype and loss.dtype == ddpflow.float32
    assert {p.grad.dtype for p in model.parameters()} == {ddpflow.float32}
    assert model[1].running_mean.dtype == ddpflow.float32
    halves = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    F.cross_entropy(model(x), target).backward()
    for p, half in zip(model.parameters(), halves, strict=True):
        np.testing.assert_allclose(half.numpy(), p.grad.numpy(), atol=0.05)


def test_blocks_belong_to_their_thread():
    """Another thread is not in this thread's block."""
    found = []
    with autocast("cpu"):
        other = threading.Thread(target=lambda: found.append(is_autocast_enabled("cpu")))
        other.start()
        other.join()
        assert is_autocast_enabled("cpu")
    assert found == [False]


def test_a_block_ends_with_an_exception():
    """What was in force before is so again."""
    with pytest.raises(RuntimeError, match="in the middle"), autocast("cpu"):
        raise RuntimeError("in the middle")
    assert not is_autocast_enabled("cpu")
