"""One layer in one direction over a packed batch."""

import numpy as np
import pytest

import ddpflow
from ddpflow.nn.modules.recurrence import STEPS, run


@pytest.mark.parametrize("reverse", [False, True])
def test_sum_of_inputs(reverse):
    """With unit weights and relu the state counts the inputs so far, each sequence for itself."""
    one = ddpflow.ones(1, 1)
    data = ddpflow.tensor([[1.0], [10.0], [100.0], [2.0], [20.0], [3.0]])  # sequences 1 2 3, 10 20, 100
    start = (ddpflow.tensor([[0.5], [0.25], [0.125]]),)
    out, (final,) = run("RNN_RELU", data, [3, 2, 1], start, (one, one, None, None, None), reverse)
    totals = [[6.5], [30.25], [100.125]]
    np.testing.assert_allclose(final.numpy(), totals)
    if reverse:
        np.testing.assert_allclose(out.numpy().ravel(), [6.5, 30.25, 100.125, 5.5, 20.25, 3.5])
    else:
        np.testing.assert_allclose(out.numpy().ravel(), [1.5, 10.25, 100.125, 3.5, 30.25, 6.5])


def test_steps_know_all_modes():
    """There is a step for each kind of layer."""
    assert sorted(STEPS) == ["GRU", "LSTM", "RNN_RELU", "RNN_TANH"]
