"""Activation checkpointing gives the gradients of the plain computation."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow import nn
from ddpflow.nn import functional as F
from ddpflow.utils.checkpoint import checkpoint, checkpoint_sequential


def _net():
    flow.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).to(flow.float64)


def _grads(net, x, run):
    net.zero_grad()
    x = x.detach().requires_grad_()
    run(net, x).square().sum().backward()
    return [x.grad, *[p.grad for p in net.parameters()]]


@pytest.mark.parametrize(
    "run",
    [
        lambda net, x: checkpoint(net, x),
        lambda net, x: checkpoint(net, x, use_reentrant=False),
        lambda net, x: checkpoint_sequential(net, 2, x),
        lambda net, x: checkpoint_sequential(list(net), 3, x),
        lambda net, x: net[4](checkpoint(lambda a, scale: net[:4](a * scale), x, scale=1.0)),
        lambda net, x: checkpoint(lambda a: checkpoint(net, a), x),
    ],
)
def test_gradients_equal_the_plain_ones(run):
    """For input and parameters, whole, in segments, with keywords, and nested."""
    net, x = _net(), flow.from_numpy(np.random.default_rng(0).standard_normal((5, 3)))
    for a, b in zip(_grads(net, x, run), _grads(net, x, lambda net, x: net(x)), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_parameters_get_gradients_when_no_input_wants_one():
    """Data that requires no grad may be the only argument."""
    net, x = _net(), flow.ones(2, 3, dtype=flow.float64)
    checkpoint(net, x).sum().backward()
    checked = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    net(x).sum().backward()
    for a, p in zip(checked, net.parameters(), strict=True):
        np.testing.assert_array_equal(a, p.grad.numpy())


def test_dropout_draws_the_same_numbers_again():
    """The gradient is that of the mask that forward used, and the stream goes on as if run once."""
    x = flow.ones(1000, requires_grad=True)
    flow.manual_seed(3)
    y = checkpoint(lambda t: F.dropout(t, 0.5), x)
    after = flow.rand(1).item()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    flow.manual_seed(3)
    F.dropout(flow.ones(1000), 0.5)
    assert flow.rand(1).item() == after


def test_several_outputs_and_unused_ones():
    """A tuple comes back as a tuple; an output that the loss does not use gives nothing."""
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    a, b, n = checkpoint(lambda t: (t * 3, t * t, 7), x)
    assert n == 7
    b.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_without_recording_it_is_a_plain_call():
    """Under no_grad nothing is kept."""
    with flow.no_grad():
        assert checkpoint(lambda t: t * 2, flow.ones(2, requires_grad=True)).grad_fn is None
