"""Module: registration, traversal, modes, printing, copying."""

import copy
import pickle

import pytest

import ddpflow
from ddpflow import nn


class Pair(nn.Module):
    """Two layers and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2, bias=False)
        self.register_buffer("scale", ddpflow.tensor([2.0]))

    def forward(self, x):
        """Returns both layers' output, scaled."""
        return self.second(self.first(x)) * self.scale


class Passing(nn.Module):
    """Passes unknown attributes on to the module inside."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


def test_parts_in_order_of_assignment():
    """Parameters, buffers and modules come with dotted paths, in the order of assignment."""
    net = Pair()
    assert [name for name, _ in net.named_parameters()] == ["first.weight", "first.bias", "second.weight"]
    assert [name for name, _ in net.named_buffers()] == ["scale"]
    assert [name for name, _ in net.named_modules()] == ["", "first", "second"]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert list(net.parameters())[0] is net.first.weight
    assert list(net.buffers())[0] is net.scale
    assert list(net.children()) == [net.first, net.second]
    assert [name for name, _ in net.named_parameters(prefix="net", recurse=False)] == []
    assert [name for name, _ in net.first.named_parameters(prefix="layer")] == ["layer.weight", "layer.bias"]


def test_shared_parts_come_once():
    """A module or parameter under two names is given once, unless duplicates are asked for."""
    net = nn.Module()
    net.a = nn.Linear(2, 2)
    net.b = net.a
    net.c = nn.Linear(2, 2, bias=False)
    net.c.weight = net.a.weight
    assert [name for name, _ in net.named_parameters()] == ["a.weight", "a.bias"]
    every = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert every == ["a.weight", "a.bias", "b.weight", "b.bias", "c.weight"]
    assert [name for name, _ in net.named_modules()] == ["", "a", "c"]
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "a", "b", "c"]


def test_attributes_and_registries_agree():
    """What is read by attribute is what is registered, through assignment, reassignment and deletion."""
    net = Pair()
    weight = nn.Parameter(ddpflow.ones(4, 3))
    net.first.weight = weight
    assert net.first.weight is weight is net.first._parameters["weight"]
    net.scale = ddpflow.tensor([3.0])
    assert net.scale is net._buffers["scale"]
    net.second = nn.Identity()
    assert net.second is net._modules["second"]
    del net.second
    assert not hasattr(net, "second")
    assert [name for name, _ in net.named_children()] == ["first"]
    net.first.bias = None
    assert net.first.bias is None
    assert [name for name, _ in net.first.named_parameters()] == ["weight"]


def test_assignment_moves_a_name_between_registries():
    """A name that held one kind of part takes another kind, and only that."""
    net = nn.Module()
    net.part = nn.Linear(2, 2)
    net.part = nn.Parameter(ddpflow.ones(2))
    assert list(net._modules) == []
    assert list(net._parameters) == ["part"]
    net.other = "text"
    net.other = nn.Linear(1, 1)
    assert list(net._modules) == ["other"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weight", ddpflow.ones(2), "cannot assign 'Tensor' as parameter 'weight'"),
        ("child", 3, "cannot assign 'int' as child module 'child'"),
        ("running", "text", "cannot assign 'str' as buffer 'running'"),
    ],
)
def test_assignment_of_another_type_is_refused(name, value, message):
    """A registered name takes only its own kind, or None."""
    net = nn.Module()
    net.weight = nn.Parameter(ddpflow.ones(2))
    net.child = nn.Identity()
    net.register_buffer("running", ddpflow.zeros(2))
    with pytest.raises(TypeError, match=message):
        setattr(net, name, value)


def test_parts_before_init_are_refused():
    """Assigning a part before super().__init__() says so."""

    class Early(nn.Module):
        def __init__(self, part):
            self.part = part

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__\(\) call"):
        Early(nn.Parameter(ddpflow.ones(1)))
    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Early(nn.Identity())


def test_register_checks_names_and_types():
    """Empty, dotted and taken names are KeyErrors; other types are TypeErrors."""
    net = nn.Module()
    net.taken = 1
    parameter = nn.Parameter(ddpflow.ones(1))
    with pytest.raises(KeyError, match="can't be empty"):
        net.register_parameter("", parameter)
    with pytest.raises(KeyError, match="can't contain"):
        net.register_buffer("a.b", ddpflow.ones(1))
    with pytest.raises(KeyError, match="attribute 'taken' already exists"):
        net.add_module("taken", nn.Identity())
    with pytest.raises(TypeError, match="should be a string"):
        net.register_parameter(1, parameter)
    with pytest.raises(TypeError, match=r"Parameter or None required.*wrap"):
        net.register_parameter("w", ddpflow.ones(1))
    with pytest.raises(TypeError, match="Tensor or None required"):
        net.register_buffer("b", [1.0])
    with pytest.raises(TypeError, match="is not a Module subclass"):
        net.add_module("m", 3)


def test_paths():
    """get_submodule, get_parameter and get_buffer follow dotted paths and name what is missing."""
    net = nn.Sequential(Pair())
    assert net.get_submodule("0.first") is net[0].first
    assert net.get_submodule("") is net
    assert net.get_parameter("0.second.weight") is net[0].second.weight
    assert net.get_buffer("0.scale") is net[0].scale
    with pytest.raises(AttributeError, match="Pair has no attribute `third`"):
        net.get_submodule("0.third")
    with pytest.raises(AttributeError, match="`training` is not an nn.Module"):
        net.get_submodule("0.training")
    with pytest.raises(AttributeError, match="Linear has no parameter `bias`"):
        net.get_parameter("0.second.bias")
    with pytest.raises(AttributeError, match="Pair has no buffer `shift`"):
        net.get_buffer("0.shift")


def test_missing_attribute():
    """An unknown attribute is an AttributeError with the class's name."""
    with pytest.raises(AttributeError, match="'Pair' object has no attribute 'nothing'"):
        _ = Pair().nothing


def test_train_and_eval():
    """Modes reach every module; another type of mode is refused."""
    net = nn.Sequential(Pair(), nn.Dropout())
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())
    with pytest.raises(ValueError, match="expected to be boolean"):
        net.train(1)


def test_apply_visits_children_first():
    """apply() calls its function on the children before the module."""
    seen = []
    net = Pair()
    assert net.apply(lambda module: seen.append(type(module).__name__)) is net
    assert seen == ["Linear", "Linear", "Pair"]


def test_requires_grad_and_zero_grad():
    """Freezing stops gradients; zero_grad drops them, or sets them to zero in place."""
    net = nn.Linear(2, 1)
    net(ddpflow.ones(1, 2)).sum().backward()
    gradient = net.weight.grad
    net.zero_grad(set_to_none=False)
    assert net.weight.grad is gradient
    assert gradient.tolist() == [[0.0, 0.0]]
    net.zero_grad()
    assert net.weight.grad is None
    net.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in net.parameters())


def test_call_runs_forward_with_all_arguments():
    """Calling a module passes positional and keyword arguments on."""

    class Echo(nn.Module):
        def forward(self, *args, **kwargs):
            return args, kwargs

    assert Echo()(1, 2, key=3) == ((1, 2), {"key": 3})


def test_forward_must_be_defined():
    """A module without forward says so when it is called."""
    with pytest.raises(NotImplementedError, match=r"Module \[Module\] is missing the required \"forward\" function"):
        nn.Module()()


def test_repr_like_pytorch():
    """A module is printed with its extra text and its children, indented."""
    assert repr(Pair()) == (
        "Pair(\n"
        "  (first): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (second): Linear(in_features=4, out_features=2, bias=False)\n"
        ")"
    )
    assert repr(nn.Sequential()) == "Sequential()"
    nested = nn.Sequential(nn.Sequential(nn.ReLU()))
    assert repr(nested) == "Sequential(\n  (0): Sequential(\n    (0): ReLU()\n  )\n)"
    net = nn.Module()
    net.absent = None
    net.add_module("none", None)
    assert repr(net) == "Module(\n  (none): None\n)"


def test_deepcopy_is_independent_and_keeps_ties():
    """A deep copy shares nothing with the original; tied parameters stay tied in it."""
    net = nn.Module()
    net.a, net.b = nn.Linear(2, 2), nn.Linear(2, 2)
    net.b.weight = net.a.weight
    other = copy.deepcopy(net)
    assert other.a.weight is other.b.weight is other.b._parameters["weight"]
    assert other.a.weight is not net.a.weight
    with ddpflow.no_grad():
        other.a.weight.zero_()
    assert net.a.weight.abs().sum().item() > 0


def test_pickle_round_trip():
    """A pickled module comes back with equal parameters, buffers and mode."""
    net = Pair().eval()
    other = pickle.loads(pickle.dumps(net))
    x = ddpflow.tensor([[1.0, -2.0, 3.0]])
    assert other(x).tolist() == net(x).tolist()
    assert other.first.weight is other.first._parameters["weight"]
    assert not other.training


def test_copies_of_a_module_that_passes_attributes_on():
    """A wrapper with the usual __getattr__ can be copied and pickled, and finds the inner module's attributes."""
    net = Passing(nn.Linear(2, 3))
    for other in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.in_features == 2
        assert other.inner.weight.tolist() == net.inner.weight.tolist()
    with pytest.raises(AttributeError, match="nothing"):
        _ = net.nothing


def test_compile_changes_nothing():
    """compile() is accepted and leaves the module as it is."""
    net = nn.Linear(2, 3)
    assert net.compile(mode="max-autotune") is None
    assert net(ddpflow.ones(1, 2)).shape == (1, 3)


def test_dir_lists_parts_but_not_numbers():
    """dir() has parameters and children, without names that are numbers."""
    names = dir(nn.Sequential(nn.Linear(1, 1)))
    assert "0" not in names
    assert "weight" in dir(nn.Linear(1, 1))


def test_gradients_reach_parameters():
    """Backward through a module fills the gradients of all its parameters."""
    net = Pair()
    x = ddpflow.tensor([[1.0, 2.0, 3.0]])
    net(x).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    hidden = net.first(x).detach().numpy()
    for row in net.second.weight.grad.numpy():
        assert row == pytest.approx(2.0 * hidden[0], rel=1e-5)
