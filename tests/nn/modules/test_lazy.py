"""Lazy layers: after the first input they are the plain layers."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

LAYERS = [  # the lazy layer's name, its arguments, an input's shape, and the size that it takes from it
    ("Linear", (2,), (4, 3), 3),
    ("Conv1d", (4, 3), (2, 6, 5), 6),
    ("Conv2d", (4, 3, 2, 1, 1, 2), (2, 6, 5, 5), 6),
    ("Conv3d", (4, 2), (6, 5, 4, 3), 6),
    ("ConvTranspose1d", (4, 3), (2, 6, 5), 6),
    ("ConvTranspose2d", (4, 3, 2, 1, 0, 2), (2, 6, 5, 5), 6),
    ("ConvTranspose3d", (4, 2), (6, 5, 4, 3), 6),
    ("BatchNorm1d", (1e-3,), (4, 3), 3),
    ("BatchNorm2d", (), (4, 3, 2, 2), 3),
    ("BatchNorm3d", (1e-5, 0.2), (4, 3, 2, 2, 2), 3),
    ("InstanceNorm1d", (), (4, 3, 6), 3),
    ("InstanceNorm2d", (), (3, 6, 5), 3),
    ("InstanceNorm3d", (), (4, 3, 2, 2, 2), 3),
]
CASES = [pytest.param(*case, id=case[0]) for case in LAYERS]


@pytest.mark.parametrize(("name", "arguments", "shape", "size"), CASES)
def test_becomes_the_plain_layer(name, arguments, shape, size):
    """The class, the attributes, the numbers drawn and the results are those of the layer made with the size."""
    kind, x = getattr(nn, name), ddpflow.randn(*shape)
    lazy = getattr(nn, f"Lazy{name}")(*arguments)
    parameters = list(lazy.parameters())
    assert isinstance(lazy, kind) and all(isinstance(p, nn.UninitializedParameter) for p in parameters)
    ddpflow.manual_seed(5)
    found = lazy(x)
    ddpflow.manual_seed(5)
    options = {"affine": True, "track_running_stats": True} if name.startswith("Instance") else {}
    plain = kind(size, *arguments, **options)
    assert type(lazy) is kind and repr(lazy) == repr(plain)
    assert all(a is b and type(a) is nn.Parameter for a, b in zip(parameters, lazy.parameters(), strict=True))
    np.testing.assert_array_equal(found.detach().numpy(), plain(x).detach().numpy())
    assert list(lazy.state_dict()) == list(plain.state_dict())
    assert set(vars(lazy)) == set(vars(plain)) and not lazy._forward_pre_hooks
    found.sum().backward()
    assert all(p.grad.shape == p.shape for p in lazy.parameters())


@pytest.mark.parametrize(("name", "arguments", "shape", "size"), CASES)
def test_takes_its_size_from_a_state(name, arguments, shape, size):
    """Loading the state of a plain layer completes a lazy one."""
    options = {"affine": True, "track_running_stats": True} if name.startswith("Instance") else {}
    plain = getattr(nn, name)(size, *arguments, **options)
    holder = nn.Sequential(getattr(nn, f"Lazy{name}")(*arguments))
    holder.load_state_dict({f"0.{key}": value for key, value in plain.state_dict().items()})
    x = ddpflow.randn(*shape)
    assert type(holder[0]) is type(plain)
    np.testing.assert_array_equal(holder(x).detach().numpy(), plain(x).detach().numpy())


def test_dtype_mode_hooks_and_optimizer_stay():
    """What is done to a lazy layer before its first input holds for the layer that it becomes."""
    model = nn.Sequential(nn.LazyLinear(3, bias=False), nn.LazyBatchNorm1d()).double().eval()
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    optimizer = ddpflow.optim.SGD(model.parameters(), lr=0.5)
    model(ddpflow.randn(4, 2, dtype=ddpflow.float64)).sum().backward()
    assert seen == [(4, 3)] and not model.training and not model[1].training
    assert {p.dtype for p in model.parameters()} == {ddpflow.float64} and model[1].running_var.dtype is ddpflow.float64
    before = model[0].weight.detach().clone()
    optimizer.step()
    np.testing.assert_allclose((before - model[0].weight).detach().numpy(), 0.5 * model[0].weight.grad.numpy())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_are_lazy_too(copied):
    """A copy of a lazy layer takes a size of its own; a shape cannot be asked for before."""
    layer = nn.LazyLinear(2)
    other = copied(layer)
    with pytest.raises(RuntimeError, match="first input"):
        _ = other.weight.shape
    layer(ddpflow.ones(1, 3))
    other(ddpflow.ones(1, 4))
    assert layer.weight.shape == (2, 3) and other.weight.shape == (2, 4)
