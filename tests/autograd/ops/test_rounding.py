"""Rounding."""

import pytest

import ddpflow
from ddpflow.factories import tensor


def test_values():
    """Down, up, towards zero, to the nearest even, and what is cut off."""
    x = tensor([-1.5, -0.5, 0.5, 1.5, 2.5, 2.7])
    assert x.floor().tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0, 2.0]
    assert x.ceil().tolist() == [-1.0, -0.0, 1.0, 2.0, 3.0, 3.0]
    assert x.trunc().tolist() == ddpflow.fix(x).tolist() == [-1.0, -0.0, 0.0, 1.0, 2.0, 2.0]
    assert x.round().tolist() == [-2.0, -0.0, 0.0, 2.0, 2.0, 3.0]
    assert tensor([-1.75, 1.75]).frac().tolist() == [-0.75, 0.75]


def test_decimals():
    """Round takes decimals, negative ones too."""
    assert ddpflow.round(tensor([1.2345, 149.6], dtype="float64"), decimals=2).tolist() == [1.23, 149.6]
    assert ddpflow.round(tensor([149.6], dtype="float64"), decimals=-2).tolist() == [100.0]


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_gradients_are_zero(name):
    """The functions are flat: their gradient is 0, not absent."""
    x = tensor([0.25, -1.75], requires_grad=True)
    getattr(x, name)().sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_integers_stay():
    """Integers are their own rounding."""
    assert tensor([3, -2]).floor().tolist() == [3, -2]
    assert tensor([3, -2]).round().dtype is ddpflow.int64
