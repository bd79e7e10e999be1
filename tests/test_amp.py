"""Mixed precision under PyTorch's names."""

import numpy as np
import pytest

import ddpflow
from ddpflow.amp import GradScaler, autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
from ddpflow.errors import AutogradError, ValueRangeError


class Steps:
    """An optimizer that counts its steps."""

    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]
        self.steps = 0

    def step(self):
        """Count."""
        self.steps += 1
        return self.steps


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
    model = ddpflow.nn.Sequential(ddpflow.nn.Linear(8, 16), ddpflow.nn.ReLU(), ddpflow.nn.Linear(16, 4))
    x, target = ddpflow.randn(5, 8), ddpflow.tensor([0, 1, 2, 3, 0])
    ddpflow.nn.functional.cross_entropy(model(x), target).backward()
    exact = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with autocast("cpu", dtype=ddpflow.float16):
        out = model(x)
        loss = ddpflow.nn.functional.cross_entropy(out, target)
    assert out.dtype == ddpflow.float16 and loss.dtype == ddpflow.float32
    loss.backward()
    for p, g in zip(model.parameters(), exact, strict=True):
        assert p.grad.dtype == ddpflow.float32
        np.testing.assert_allclose(p.grad.numpy(), g.numpy(), atol=2e-3)


def test_a_good_step_unscales():
    """Gradients of the scaled loss come back to their size before the step."""
    w = ddpflow.tensor([1.0, 2.0], requires_grad=True)
    scaler, optimizer = GradScaler(init_scale=8.0), Steps(w)
    scaler.scale((w * 3).sum()).backward()
    assert w.grad.tolist() == [24, 24]
    assert scaler.step(optimizer) == 1
    scaler.update()
    assert w.grad.tolist() == [3, 3] and scaler.get_scale() == 8


def test_an_overflow_skips_the_step_and_halves_the_scale():
    """Until the gradients are finite again; growth comes after the interval."""
    w = ddpflow.tensor([1.0], requires_grad=True)
    scaler, optimizer = GradScaler(init_scale=16.0, growth_interval=2), Steps(w)
    w.grad = ddpflow.tensor([np.inf])
    assert scaler.step(optimizer) is None and optimizer.steps == 0
    scaler.update()
    assert scaler.get_scale() == 8
    for _ in range(2):
        w.grad = ddpflow.tensor([8.0])
        scaler.unscale_(optimizer)
        assert w.grad.tolist() == [1.0]
        with pytest.raises(AutogradError, match="already"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.steps == 2 and scaler.get_scale() == 16
    scaler.update(new_scale=4.0)
    other = GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4


def test_switched_off():
    """Everything passes through."""
    scaler, optimizer = GradScaler(enabled=False), Steps()
    loss = ddpflow.tensor(2.0)
    assert scaler.scale(loss) is loss and scaler.step(optimizer) == 1 and scaler.get_scale() == 1
    scaler.unscale_(optimizer)
    scaler.update()
    scaler.load_state_dict(scaler.state_dict())
    assert scaler.state_dict() == {} and not scaler.is_enabled()
    assert [t.item() for t in GradScaler(init_scale=2.0).scale([loss, loss])] == [4, 4]
    with pytest.raises(ValueRangeError):
        GradScaler(growth_factor=1.0)
