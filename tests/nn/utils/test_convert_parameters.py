"""Parameters as a vector, and back."""

import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils import parameters_to_vector, vector_to_parameters


def test_round_trip():
    """The vector holds the parameters one after another, and gives them back to another model."""
    net, other = nn.Linear(2, 3), nn.Linear(2, 3)
    vector = parameters_to_vector(net.parameters())
    assert vector.tolist() == net.weight.flatten().tolist() + net.bias.tolist()
    vector_to_parameters(vector.detach(), other.parameters())
    assert other.weight.tolist() == net.weight.tolist()
    assert other.bias.tolist() == net.bias.tolist()
    assert isinstance(other.weight, nn.Parameter)


def test_gradients_flow_back():
    """A loss on the vector reaches the parameters."""
    net = nn.Linear(2, 1)
    (parameters_to_vector(net.parameters()) * ddpflow.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert net.weight.grad.tolist() == [[1.0, 2.0]]
    assert net.bias.grad.tolist() == [3.0]


def test_errors():
    """What is no tensor is a TypeError; too short a vector says how many elements are needed."""
    net = nn.Linear(2, 1)
    with pytest.raises(TypeError, match="takes a tensor, not list"):
        vector_to_parameters([1.0], net.parameters())
    with pytest.raises(RuntimeError, match=r"\(2,\) has too few elements: parameters need 3"):
        vector_to_parameters(ddpflow.ones(2), net.parameters())
