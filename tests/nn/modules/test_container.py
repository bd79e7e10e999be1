"""Sequential, ModuleList, ModuleDict."""

from collections import OrderedDict

import pytest

import ddpflow
from ddpflow import nn


class Add(nn.Module):
    """Adds a number."""

    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        """Returns the sum."""
        return x + self.n

    def extra_repr(self):
        """Returns the number."""
        return str(self.n)


def numbers(modules):
    """Returns the numbers of several Add modules."""
    return [module.n for module in modules]


def test_sequential_runs_in_order():
    """Each module's output is the next one's input."""
    net = nn.Sequential(Add(1), nn.ReLU(), Add(10))
    assert net(ddpflow.tensor([-5.0, 2.0])).tolist() == [10.0, 13.0]
    assert nn.Sequential()(3) == 3


def test_sequential_of_names():
    """An OrderedDict gives the modules names."""
    net = nn.Sequential(OrderedDict(first=Add(1), second=Add(2)))
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert net.first.n == 1
    assert list(nn.Sequential(Add(1), nn.Linear(1, 1)).state_dict()) == ["1.weight", "1.bias"]


@pytest.mark.parametrize("cls", [nn.Sequential, lambda *modules: nn.ModuleList(modules)])
def test_like_a_list(cls):
    """Indexing, slicing, assignment, deletion and iteration are a list's; names are renumbered."""
    net = cls(*map(Add, range(5)))
    assert len(net) == 5
    assert numbers(net) == [0, 1, 2, 3, 4]
    assert net[-1].n == 4
    assert numbers(net[1:3]) == [1, 2]
    assert type(net[1:3]) is type(net)
    net[1] = Add(10)
    net[-1] = Add(40)
    assert numbers(net) == [0, 10, 2, 3, 40]
    del net[0]
    assert numbers(net) == [10, 2, 3, 40]
    assert [name for name, _ in net.named_children()] == ["0", "1", "2", "3"]
    assert getattr(net, "0").n == 10
    assert not hasattr(net, "4")
    del net[1:3]
    assert numbers(net) == [10, 40]
    assert net.pop(0).n == 10
    net.append(Add(7)).extend([Add(8), Add(9)])
    net.insert(1, Add(6))
    assert numbers(net) == [40, 6, 7, 8, 9]
    assert [name for name, _ in net.named_children()] == ["0", "1", "2", "3", "4"]
    with pytest.raises(IndexError, match="index 9 is out of range"):
        net[9]
    with pytest.raises(IndexError, match="index -7 is out of range"):
        net[-7] = Add(1)
    with pytest.raises(IndexError, match="Index out of range"):
        net.insert(11, Add(1))
    with pytest.raises(TypeError, match="is not a Module subclass"):
        net.append(3)
    with pytest.raises(TypeError, match="takes an iterable"):
        net.extend(3)


def test_sequential_arithmetic():
    """Chains can be added, extended in place and repeated."""
    a, b = nn.Sequential(Add(1), Add(2)), nn.Sequential(Add(3))
    assert numbers(a + b) == [1, 2, 3]
    assert numbers(b * 3) == [3, 3, 3]
    assert numbers(2 * a) == [1, 2, 1, 2]
    a += b
    a *= 2
    assert numbers(a) == [1, 2, 3, 1, 2, 3]
    with pytest.raises(ValueError, match="only to a Sequential, not to list"):
        a + [Add(1)]
    with pytest.raises(ValueError, match="Non-positive"):
        b * 0
    with pytest.raises(TypeError, match="whole number"):
        b * 1.5


def test_module_list_arithmetic():
    """Lists take any iterable of modules."""
    modules = nn.ModuleList([Add(1)])
    modules += [Add(2)]
    assert numbers(modules + [Add(3)]) == [1, 2, 3]


def test_module_list_repr_counts_equal_neighbours():
    """Equal neighbours are printed once, with their number."""
    assert repr(nn.ModuleList([Add(1), Add(1), Add(2)])) == "ModuleList(\n  (0-1): 2 x Add(1)\n  (2): Add(2)\n)"
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_list_has_no_forward():
    """A list cannot be called."""
    with pytest.raises(NotImplementedError):
        nn.ModuleList()(1)


def test_module_dict():
    """A ModuleDict is a dictionary whose modules are registered."""
    modules = nn.ModuleDict({"b": Add(1), "a": Add(2)})
    modules["c"] = Add(3)
    modules.update([("a", Add(20)), ("d", Add(4))])
    assert list(modules) == ["b", "a", "c", "d"]
    assert list(modules.keys()) == ["b", "a", "c", "d"]
    assert numbers(modules.values()) == [1, 20, 3, 4]
    assert [name for name, _ in modules.items()] == [name for name, _ in modules.named_children()]
    assert "a" in modules
    assert len(modules) == 4
    assert modules.pop("a").n == 20
    del modules["b"]
    assert "b" not in modules
    assert not hasattr(modules, "b")
    modules.clear()
    assert len(modules) == 0


def test_module_dict_errors():
    """Keys that clash with attributes, and updates that are no pairs, are refused."""
    modules = nn.ModuleDict()
    with pytest.raises(KeyError, match="attribute 'keys' already exists"):
        modules["keys"] = Add(1)
    with pytest.raises(KeyError):
        modules["absent"]
    with pytest.raises(TypeError, match="takes a mapping or pairs"):
        modules.update(3)
    with pytest.raises(ValueError, match="element 0 has length 3"):
        modules.update([(1, 2, 3)])
    with pytest.raises(TypeError, match="element 0 should be a pair"):
        modules.update([1])
