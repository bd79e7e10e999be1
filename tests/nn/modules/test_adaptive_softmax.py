"""Adaptive softmax against the probabilities of all classes."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


@pytest.fixture
def layer():
    """A layer over 12 classes in a shortlist of 3 and clusters of 4 and 5."""
    ddpflow.manual_seed(3)
    return nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0, head_bias=True)


def test_forward_is_what_log_prob_says(layer):
    """Every class of a target, in the shortlist and in each cluster; the probabilities of all classes sum up to 1."""
    input, target = ddpflow.randn(5, 6), ddpflow.tensor([2, 11, 4, 0, 7])
    everything = layer.log_prob(input)
    np.testing.assert_allclose(everything.exp().sum(1).detach().numpy(), np.ones(5), rtol=1e-5)
    output, loss = layer(input, target)
    expected = everything.gather(1, target.unsqueeze(1)).squeeze(1)
    np.testing.assert_allclose(output.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
    assert loss.item() == pytest.approx(-expected.mean().item())
    assert [tuple(p.shape) for p in layer.parameters()] == [(5, 6), (5,), (3, 6), (4, 3), (1, 6), (5, 1)]


def test_gradients_are_those_of_log_prob(layer):
    """The parameters get what the plain computation over all classes gives them."""
    input, target = ddpflow.randn(5, 6), ddpflow.tensor([2, 11, 4, 0, 7])
    layer(input, target).loss.backward()
    found = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    (-layer.log_prob(input).gather(1, target.unsqueeze(1)).mean()).backward()
    for own, p in zip(found, layer.parameters(), strict=True):
        np.testing.assert_allclose(own.numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_one_sample_and_prediction(layer):
    """A sample without a batch gives a scalar; where the head prefers a shortlisted class, that is the prediction."""
    input = ddpflow.randn(40, 6)
    assert layer(input[0], ddpflow.tensor(5)).output.shape == ()
    head, best = layer.head(input).argmax(1), layer.log_prob(input).argmax(1)
    found = layer.predict(input)
    assert found.shape == (40,) and (head >= 3).any() and (head < 3).any()
    assert found.tolist() == ddpflow.where(head < 3, head, best).tolist()
    before = layer.head.weight.clone()
    layer.reset_parameters()
    assert not ddpflow.equal(before, layer.head.weight)


def test_refuses():
    """Cutoffs out of order, targets that are no class, and shapes that do not match."""
    for cutoffs in ([], [5, 3], [3, 3], [0, 4], [4, 10], [2.5]):
        with pytest.raises(ValueError, match="cutoffs"):
            nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs)
    layer = nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5])
    with pytest.raises(RuntimeError, match="range"):
        layer(ddpflow.ones(2, 4), ddpflow.tensor([1, 10]))
    with pytest.raises(RuntimeError, match="does not go with"):
        layer(ddpflow.ones(2, 4), ddpflow.tensor([1]))
    assert "cutoffs=[5]" in repr(layer)
