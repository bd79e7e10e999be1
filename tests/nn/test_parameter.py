"""Parameters and buffers."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn import Buffer, Parameter


def test_parameter_is_a_leaf_on_the_same_memory():
    """A parameter shares its tensor's memory, is a leaf and wants a gradient."""
    data = ddpflow.tensor([1.0, 2.0])
    parameter = Parameter(data)
    data[0] = 5.0
    assert parameter.tolist() == [5.0, 2.0]
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert isinstance(parameter, ddpflow.Tensor)


def test_parameter_of_a_result_is_cut_from_the_graph():
    """A parameter made of a computed tensor is a leaf all the same."""
    source = ddpflow.tensor([1.0], requires_grad=True)
    parameter = Parameter(source * 2)
    assert parameter.is_leaf
    (parameter * 3).sum().backward()
    assert source.grad is None
    assert parameter.grad.tolist() == [3.0]


def test_parameter_wants_a_gradient_also_under_no_grad():
    """no_grad does not change a parameter's default."""
    with ddpflow.no_grad():
        assert Parameter(ddpflow.tensor([1.0])).requires_grad
    assert not Parameter(ddpflow.tensor([1.0]), requires_grad=False).requires_grad


def test_empty_parameter():
    """Without data a parameter has no elements, of the default dtype."""
    assert Parameter().shape == (0,)
    assert Parameter().dtype is ddpflow.get_default_dtype()


def test_parameter_carries_attributes():
    """A parameter has a __dict__, which copies and pickles keep."""
    parameter = Parameter(ddpflow.tensor([1.0]))
    parameter.tag = "embedding"
    assert copy.deepcopy(parameter).tag == "embedding"
    loaded = pickle.loads(pickle.dumps(parameter))
    assert isinstance(loaded, Parameter)
    assert loaded.tag == "embedding"
    assert loaded.requires_grad


def test_deepcopy_copies_memory_and_gradient():
    """A deep copy has memory of its own, and the gradient's values."""
    parameter = Parameter(ddpflow.tensor([1.0, 2.0]))
    (parameter * parameter).sum().backward()
    other = copy.deepcopy(parameter)
    with ddpflow.no_grad():
        parameter.zero_()
    assert other.tolist() == [1.0, 2.0]
    assert other.grad.tolist() == [2.0, 4.0]
    assert other.requires_grad


def test_repr():
    """A parameter says what it is before its values."""
    assert repr(Parameter(ddpflow.tensor([1.0]))) == "Parameter containing:\ntensor([1.], requires_grad=True)"


@pytest.mark.parametrize("kind", [Parameter, Buffer])
def test_needs_a_tensor(kind):
    """What is not a tensor is refused with its type."""
    with pytest.raises(TypeError, match=r"takes a tensor, not list"):
        kind([1.0, 2.0])


def test_integers_cannot_require_grad():
    """An integer parameter must say requires_grad=False."""
    with pytest.raises(RuntimeError, match="floating"):
        Parameter(ddpflow.tensor([1, 2]))
    assert Parameter(ddpflow.tensor([1, 2]), requires_grad=False).tolist() == [1, 2]


def test_buffer_assigned_to_a_module():
    """A Buffer assigned to an attribute is registered, persistent or not."""
    module = ddpflow.nn.Module()
    module.kept = Buffer(ddpflow.tensor([1.0]))
    module.scratch = Buffer(ddpflow.tensor([2.0]), persistent=False)
    assert [name for name, _ in module.named_buffers()] == ["kept", "scratch"]
    assert list(module.state_dict()) == ["kept"]
    assert not module.kept.requires_grad
    np.testing.assert_array_equal(module.scratch.numpy(), [2.0])


def test_uninitialized_parameter():
    """It has a dtype but no shape; with its data it is a parameter, the same object."""
    p = nn.UninitializedParameter(ddpflow.empty(0, dtype=ddpflow.float64))
    assert p.dtype is ddpflow.float64 and p.requires_grad and isinstance(p, nn.Parameter)
    with pytest.raises(RuntimeError, match="no shape yet"):
        _ = p.shape
    p.materialize(ddpflow.ones(2, 3))
    assert type(p) is nn.Parameter and p.shape == (2, 3) and p.is_leaf
