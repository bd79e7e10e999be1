"""GradScaler: scaling, overflows, PyTorch's rules of use, and agreement of ranks."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.amp import GradScaler, autocast
from ddpflow.errors import AutogradError, ValueRangeError
from ddpflow.testing import run_ranks


class Steps:
    """An optimizer that counts its steps."""

    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]
        self.steps = 0

    def step(self):
        """Count."""
        self.steps += 1
        return self.steps


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
    scaler.update(new_scale=ddpflow.tensor(4.0))
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


def test_rules_of_use():
    """One unscale_ before one step before one update, as in PyTorch; what would lose gradients is refused."""
    w = ddpflow.tensor([1.0], requires_grad=True)
    w.grad = ddpflow.tensor([4.0])
    scaler, optimizer = GradScaler(init_scale=2.0), Steps(w)
    with pytest.raises(AutogradError, match="No inf checks"):
        scaler.update()
    scaler.step(optimizer)
    with pytest.raises(AutogradError, match="already been called"):
        scaler.step(optimizer)
    with pytest.raises(AutogradError, match="after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(AutogradError, match="Closure"):
        scaler.step(optimizer, closure=None)
    half = ddpflow.tensor([1.0], dtype=ddpflow.float16, requires_grad=True)
    half.grad = ddpflow.tensor([1.0], dtype=ddpflow.float16)
    with pytest.raises(ValueRangeError, match="FP16"):
        scaler.unscale_(Steps(half))
    with pytest.raises(AutogradError, match="empty"):
        scaler.load_state_dict({})


def test_settings_can_be_changed():
    """PyTorch's getters and setters."""
    scaler = GradScaler()
    for name, value in {"growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7}.items():
        getattr(scaler, f"set_{name}")(value)
        assert getattr(scaler, f"get_{name}")() == value
        assert scaler.state_dict()[name] == value


def test_several_optimizers_share_a_scale():
    """An overflow in one skips only its step, and shrinks the scale for both."""
    a, b = (ddpflow.tensor([1.0], requires_grad=True) for _ in range(2))
    a.grad, b.grad = ddpflow.tensor([np.nan]), ddpflow.tensor([2.0])
    scaler, first, second = GradScaler(init_scale=4.0), Steps(a), Steps(b)
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (first.steps, second.steps, scaler.get_scale()) == (0, 1, 2.0)


def _train(rank):
    """Step 1 overflows, on rank 1 only."""
    ddpflow.manual_seed(3)
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
    optimizer = ddpflow.optim.SGD(ddp.parameters(), lr=0.1)
    scaler = GradScaler(init_scale=256.0, growth_interval=2)
    scales, weights = [], []
    for step in range(4):
        optimizer.zero_grad()
        x = ddpflow.arange(8.0).reshape(2, 4) * (rank + 1) / 8
        with autocast("cpu", dtype=ddpflow.float16):
            loss = ddp(x).square().sum()
        if step == 1 and rank == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        weights.append(ddp.module.weight.detach().clone().tolist())
    return scales, weights


@pytest.mark.parametrize("backend", ["thread", "shm"])
def test_ranks_decide_alike(backend):
    """An overflow on one rank is in everybody's mean: all skip that step, and go on with the same scale and weights."""
    found = run_ranks(_train, 2, backend=backend)
    assert found[0] == found[1]
    scales, weights = found[0]
    assert scales == [256, 128, 128, 256]
    assert weights[0] == weights[1] != weights[2] != weights[3]
