"""State dicts."""

from collections import OrderedDict

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def make():
    """Returns a module with parameters, persistent and other buffers, and a child."""
    net = nn.Module()
    net.fc = nn.Linear(2, 3)
    net.norm = nn.BatchNorm1d(3)
    net.register_buffer("kept", ddpflow.tensor([1.0, 2.0]))
    net.register_buffer("scratch", ddpflow.tensor([3.0]), persistent=False)
    return net


def test_names_and_order():
    """State dicts hold parameters and persistent buffers, own ones first, in the order of registration."""
    assert list(make().state_dict()) == [
        "kept",
        "fc.weight",
        "fc.bias",
        "norm.weight",
        "norm.bias",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    ]
    assert list(nn.Linear(1, 1).state_dict(prefix="a.")) == ["a.weight", "a.bias"]


def test_state_shares_memory_outside_the_graph():
    """The tensors of a state dict share the module's memory and want no gradient, unless keep_vars."""
    net = nn.Linear(2, 1)
    state = net.state_dict()
    assert not state["weight"].requires_grad
    with ddpflow.no_grad():
        net.weight.fill_(7.0)
    assert state["weight"].tolist() == [[7.0, 7.0]]
    assert net.state_dict(keep_vars=True)["weight"] is net.weight


def test_load_copies_in_place():
    """Loading writes into the parameters that exist: objects and memory stay the same."""
    net, other = make(), make()
    weight, memory = net.fc.weight, net.fc.weight.array
    result = net.load_state_dict(other.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert net.fc.weight is weight
    assert net.fc.weight.array is memory
    np.testing.assert_array_equal(net.fc.weight.detach().numpy(), other.fc.weight.detach().numpy())
    assert net.fc.weight.requires_grad


def test_load_casts_to_the_parameter_dtype():
    """A parameter keeps its dtype whatever the state dict's is."""
    net = nn.Linear(1, 1)
    net.load_state_dict({"weight": ddpflow.tensor([[1.5]], dtype=ddpflow.float64), "bias": ddpflow.tensor([2])})
    assert net.weight.dtype is ddpflow.float32
    assert (net.weight.item(), net.bias.item()) == (1.5, 2.0)


def test_strict_lists_every_difference():
    """Missing, unexpected and misshapen names are reported together, and raise a RuntimeError."""
    net = nn.Linear(2, 3)
    state = {"weight": ddpflow.ones(3, 5), "extra": ddpflow.ones(1)}
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith("Error(s) in loading state_dict for Linear:")
    assert 'Missing key(s) in state_dict: "bias".' in text
    assert 'Unexpected key(s) in state_dict: "extra".' in text
    assert "size mismatch for weight" in text
    assert "(3, 5)" in text
    assert "(3, 2)" in text


def test_not_strict_returns_the_differences():
    """Without strict, names that differ are returned, and the rest is loaded."""
    net = nn.Linear(1, 1)
    result = net.load_state_dict({"weight": ddpflow.tensor([[4.0]]), "extra": ddpflow.ones(1)}, strict=False)
    assert result.missing_keys == ["bias"]
    assert result.unexpected_keys == ["extra"]
    assert net.weight.item() == 4.0
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict({"weight": ddpflow.ones(2, 2)}, strict=False)


def test_unexpected_names_below_children():
    """Names under a child that does not exist, or that the child does not know, are unexpected."""
    net = nn.Sequential(nn.Linear(1, 1))
    state = dict(net.state_dict(), **{"1.weight": ddpflow.ones(1), "0.gain": ddpflow.ones(1)})
    result = net.load_state_dict(state, strict=False)
    assert sorted(result.unexpected_keys) == ["0.gain", "1.weight"]


def test_assign_takes_the_tensors():
    """assign=True puts the given tensors in, with the module's requires_grad."""
    net = nn.Linear(1, 1)
    net.bias.requires_grad_(False)
    weight = ddpflow.tensor([[2.0]], dtype=ddpflow.float64)
    net.load_state_dict({"weight": weight, "bias": ddpflow.tensor([1.0])}, assign=True)
    assert net.weight.dtype is ddpflow.float64
    assert isinstance(net.weight, nn.Parameter)
    assert net.weight.array is weight.array
    assert net.weight.requires_grad
    assert not net.bias.requires_grad


def test_one_element_loads_into_a_number():
    """A tensor of shape (1,) loads into a 0-d buffer."""
    net = nn.BatchNorm1d(2)
    state = dict(net.state_dict(), num_batches_tracked=ddpflow.tensor([7]))
    net.load_state_dict(state)
    assert net.num_batches_tracked.item() == 7


def test_bad_state_dicts():
    """What is no mapping, or holds no tensor, is refused."""
    net = nn.Linear(1, 1)
    with pytest.raises(TypeError, match="takes a dictionary, not list"):
        net.load_state_dict([1])
    with pytest.raises(RuntimeError, match="expected a tensor, but received ndarray"):
        net.load_state_dict({"weight": np.ones((1, 1)), "bias": ddpflow.ones(1)})


def test_extra_state():
    """get_extra_state and set_extra_state carry anything beside tensors."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    net, other = nn.Sequential(Counter()), nn.Sequential(Counter())
    net[0].count = 5
    state = net.state_dict()
    assert list(state) == ["0._extra_state"]
    other.load_state_dict(state)
    assert other[0].count == 5
    assert other.load_state_dict({}, strict=False).missing_keys == ["0._extra_state"]
    plain = nn.Sequential(nn.Identity())
    assert plain.load_state_dict(state, strict=False).unexpected_keys == ["0._extra_state"]


def test_hooks():
    """State dict hooks run before and after collecting and loading."""
    net, seen = nn.Linear(1, 1), []
    net.register_state_dict_pre_hook(lambda module, prefix, keep_vars: seen.append(prefix))
    net.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.update(added=1))
    state = nn.Sequential(net).state_dict()
    assert seen == ["0."]
    assert state["added"] == 1
    handle = net.register_load_state_dict_pre_hook(lambda module, state, *rest: state.pop("added"))
    net.register_load_state_dict_post_hook(lambda module, keys: seen.append(list(keys.missing_keys)))
    net.load_state_dict({"weight": ddpflow.ones(1, 1), "bias": ddpflow.ones(1), "added": 1})
    assert seen[-1] == []
    handle.remove()


def test_versions_travel_as_metadata():
    """A state dict holds each module's version, which loading hands back."""
    state = nn.Sequential(nn.BatchNorm1d(2)).state_dict()
    assert isinstance(state, OrderedDict)
    assert state._metadata["0"]["version"] == 2


def test_old_batch_norm_state_without_counter():
    """Batch norm state from before version 2, which had no counter, still loads."""
    net = nn.BatchNorm1d(2)
    state = {name: tensor for name, tensor in net.state_dict().items() if name != "num_batches_tracked"}
    assert repr(net.load_state_dict(state)) == "<All keys matched successfully>"
