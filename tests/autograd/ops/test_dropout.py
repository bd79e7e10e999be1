"""Dropout: shares, scales, channels, evaluation."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import dropout as ops


def test_keeps_the_mean_and_drops_its_share():
    """A quarter is dropped, the rest is scaled by 4/3; the gradient goes the same way."""
    x = ddpflow.ones(200, 200, requires_grad=True)
    y = ops.dropout(x, 0.25)
    values = y.detach().numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(4 / 3)}
    assert abs((values == 0).mean() - 0.25) < 0.01
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)


def test_the_same_seed_drops_the_same():
    """And the next draw another."""
    draws = []
    for _ in range(2):
        ddpflow.manual_seed(5)
        draws += [ops.dropout(ddpflow.ones(50)).tolist() for _ in range(2)]
    assert draws[0] == draws[2] and draws[1] == draws[3] and draws[0] != draws[1]


@pytest.mark.parametrize(
    ("function", "shape", "shared"),
    [
        (ops.dropout1d, (20, 30, 4), (2,)),
        (ops.dropout2d, (20, 30, 2, 3), (2, 3)),
        (ops.dropout3d, (20, 30, 1, 2, 3), (2, 3, 4)),
    ],
)
def test_whole_channels_fall(function, shape, shared):
    """All values of a channel share one fate."""
    y = function(ddpflow.ones(*shape)).numpy()
    np.testing.assert_array_equal(y.min(shared), y.max(shared))
    assert 0.3 < (y == 0).mean() < 0.7


def test_nothing_happens_in_evaluation_or_with_p_0():
    """Values stay; with p = 1 nothing is left."""
    x = ddpflow.tensor([1.0, 2.0, 3.0])
    assert ops.dropout(x, 0.9, training=False).tolist() == [1.0, 2.0, 3.0]
    assert ops.dropout(x, 0.0).tolist() == [1.0, 2.0, 3.0]
    assert ops.dropout(x, 1.0).tolist() == [0.0, 0.0, 0.0]


def test_in_place_writes_into_the_input():
    """The same tensor comes back, changed."""
    x = ddpflow.ones(100)
    assert ops.dropout(x, 0.5, inplace=True) is x
    assert set(x.tolist()) == {0.0, 2.0}


def test_alpha_dropout_keeps_mean_and_variance():
    """Of a standard normal input."""
    x = ddpflow.randn(300, 300)
    for function in (ops.alpha_dropout, ops.feature_alpha_dropout):
        y = function(x, 0.3, training=True).numpy()
        assert abs(y.mean()) < 0.05 and abs(y.var() - 1) < 0.05


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_a_probability_outside_0_to_1_is_refused(p):
    """A ValueError that holds it."""
    with pytest.raises(ValueError, match=str(p)):
        ops.dropout(ddpflow.ones(2), p)
    with pytest.raises(ValueError, match=str(p)):
        ops.alpha_dropout(ddpflow.ones(2), p)
