"""Flatten and Unflatten."""

import pytest

import ddpflow
from ddpflow import nn


def test_flatten():
    """A range of dimensions becomes one; by default all but the first."""
    x = ddpflow.arange(120).reshape(2, 3, 4, 5)
    assert nn.Flatten()(x).shape == (2, 60)
    assert nn.Flatten(0)(x).tolist() == list(range(120))
    assert nn.Flatten(1, 2)(x).shape == (2, 12, 5)


def test_unflatten():
    """One dimension becomes several; one length may be left open."""
    x = ddpflow.arange(24).reshape(2, 12)
    y = nn.Unflatten(1, (3, -1))(x)
    assert y.shape == (2, 3, 4)
    assert nn.Flatten()(y).tolist() == x.tolist()


def test_bad_sizes():
    """Sizes that are no integers are TypeErrors; sizes that do not fit are RuntimeErrors."""
    with pytest.raises(TypeError, match="found element of type str at pos 1"):
        nn.Unflatten(1, (2, "a"))
    with pytest.raises(TypeError, match="must be a tuple of ints"):
        nn.Unflatten(1, 6)
    with pytest.raises(RuntimeError):
        nn.Unflatten(1, (5, 2))(ddpflow.ones(2, 12))


def test_repr():
    """The dimensions are printed."""
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"
    assert repr(nn.Unflatten(1, (2, 3))) == "Unflatten(dim=1, unflattened_size=(2, 3))"
