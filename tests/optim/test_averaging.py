"""Averages of models and shared optimizer state."""

import pytest

import ddpflow as flow
from ddpflow import nn
from ddpflow.errors import ValueRangeError
from ddpflow.optim.averaging import PeriodicModelAverager, average_parameters, broadcast_optimizer_state
from ddpflow.testing import run_ranks


class _Tied(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.a = nn.Parameter(flow.tensor([value, 10.0 * value]))
        self.b = self.a
        self.c = nn.Parameter(flow.tensor(value, dtype=flow.float64))


def _average(rank):
    net = _Tied(1.0 + 2.0 * rank)
    average_parameters(net)
    return net.a.tolist(), net.b is net.a, net.c.item()


def test_tied_weights_are_averaged_once():
    """Ranks with 1 and 3 hold 2 under both names, which still are one tensor."""
    assert run_ranks(_average, 2) == [([2.0, 20.0], True, 2.0)] * 2


def _periodic(rank):
    p = nn.Parameter(flow.zeros(1))
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    found = []
    for _ in range(5):
        p.data.add_(1.0 + rank)
        averager.average_parameters([{"params": [p]}])
        found.append(p.item())
    return found


def test_averages_come_every_period_after_the_warmup():
    """Steps 1, 3 of five are averaged; in between the ranks go their own ways."""
    assert run_ranks(_periodic, 2) == [[1.0, 3.0, 4.0, 6.0, 7.0], [2.0, 3.0, 5.0, 6.0, 8.0]]


def _resume(rank):
    net = nn.Linear(2, 2)
    for p in net.parameters():
        nn.init.constant_(p, 1.0)
    optimizer = flow.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    if rank == 0:
        net(flow.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 1e-3
        net.zero_grad()
    broadcast_optimizer_state(optimizer)
    average_parameters(net)
    for _ in range(3):
        optimizer.zero_grad()
        net(flow.ones(1, 2)).sum().backward()
        optimizer.step()
    return optimizer.param_groups[0]["lr"], [p.tolist() for p in net.parameters()]


def test_all_ranks_resume_with_one_ranks_optimizer():
    """The rate and the momentum of rank 0 reach rank 1: three more steps leave the weights equal."""
    first, second = run_ranks(_resume, 2)
    assert first == second and first[0] == 1e-3


@pytest.mark.parametrize("options", [{"period": 0}, {"period": 1, "warmup_steps": -1}])
def test_periods_are_checked(options):
    """A period below 1 and a negative warm-up make no sense."""
    with pytest.raises(ValueRangeError):
        PeriodicModelAverager(**options)
