"""ParameterList and ParameterDict."""

import pytest

import ddpflow
from ddpflow import nn


def test_list_registers_parameters():
    """Tensors become parameters, with their places as names; other objects are kept as they are."""
    values = nn.ParameterList([ddpflow.ones(2), nn.Parameter(ddpflow.zeros(3)), "text"])
    assert [name for name, _ in values.named_parameters()] == ["0", "1"]
    assert isinstance(values[0], nn.Parameter)
    assert values[2] == "text"
    assert values[-1] == "text"
    assert len(values) == 3
    assert [type(value).__name__ for value in values] == ["Parameter", "Parameter", "str"]


def test_list_methods():
    """append, extend, +=, slices and assignment are a list's."""
    values = nn.ParameterList()
    values.append(ddpflow.ones(1)).extend([ddpflow.ones(2)])
    values += [ddpflow.ones(3)]
    values[1] = ddpflow.ones(5)
    assert [value.numel() for value in values] == [1, 5, 3]
    part = values[1:]
    assert isinstance(part, nn.ParameterList)
    assert part[0] is values[1]
    with pytest.raises(IndexError, match="index 3 is out of range"):
        values[3]
    with pytest.raises(TypeError, match="takes an iterable of values, not Tensor"):
        values.extend(ddpflow.ones(2))
    with pytest.raises(RuntimeError, match="should not be called"):
        values()


def test_dict_methods():
    """A ParameterDict has a dictionary's methods; tensors become parameters."""
    values = nn.ParameterDict({"left": ddpflow.ones(2), "right": ddpflow.zeros(3)})
    assert [name for name, _ in values.named_parameters()] == ["left", "right"]
    values["extra"] = 5
    assert values.get("extra") == 5
    assert values.get("absent", 7) == 7
    assert values.setdefault("new", ddpflow.ones(1)) is values["new"]
    assert list(values) == list(values.keys()) == ["left", "right", "extra", "new"]
    assert list(reversed(values)) == ["new", "extra", "right", "left"]
    assert [key for key, _ in values.items()] == list(values)
    assert len(values.values()) == len(values) == 4
    assert values.popitem()[0] == "new"
    assert values.pop("extra") == 5
    assert "extra" not in values
    other = values | nn.ParameterDict({"left": ddpflow.ones(9)})
    assert other["left"].numel() == 9
    assert values["left"].numel() == 2
    values |= nn.ParameterDict({"up": ddpflow.ones(1)})
    assert "up" in values
    assert values.copy()["up"] is values["up"]
    assert values.fromkeys(["a", "b"], 3)["b"] == 3
    values.clear()
    assert len(values) == 0
    with pytest.raises(KeyError):
        values["left"]
    with pytest.raises(TypeError, match="strings as keys, not int"):
        values[1] = ddpflow.ones(1)
    with pytest.raises(RuntimeError, match="should not be called"):
        values()


def test_repr():
    """Each value is printed with its kind, dtype and size."""
    values = nn.ParameterList([ddpflow.ones(2, 3), "x"])
    assert repr(values) == (
        "ParameterList(\n    (0): Parameter containing: [ddpflow.float32 of size 2x3]\n    (1): Object of type: str\n)"
    )


def test_state_dict_round_trip():
    """Both save and load like any module."""
    values = nn.ParameterDict({"w": ddpflow.tensor([1.0, 2.0])})
    other = nn.ParameterDict({"w": ddpflow.zeros(2)})
    other.load_state_dict(values.state_dict())
    assert other["w"].tolist() == [1.0, 2.0]
