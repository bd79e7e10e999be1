"""Recurrent kernels: against their definitions in NumPy, one step at a time."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import recurrent

RNG = np.random.default_rng(0)
STEPS, BATCH, WIDTH = 4, 3, 2


def arrays(gates):
    """Returns projections, first state, first cell and recurrent weight."""
    shapes = ((STEPS, BATCH, gates * WIDTH), (BATCH, WIDTH), (BATCH, WIDTH), (gates * WIDTH, WIDTH))
    return [RNG.standard_normal(shape) for shape in shapes]


def sigmoid(x):
    """Returns the logistic function."""
    return 1 / (1 + np.exp(-x))


def test_previous():
    """The state before each step is the first one, then the steps' own, moved on by one."""
    states, first = np.arange(6.0).reshape(3, 2, 1), np.array([[-1.0], [-2.0]])
    assert recurrent.previous(np, states, first, False)[:, 0, 0].tolist() == [-1, 0, 2]
    assert recurrent.previous(np, states, first, True)[:, 0, 0].tolist() == [2, 4, -1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lstm_steps(dtype, reverse):
    """Each step of the LSTM is the definition's, in the dtype of the input, and the inputs stay as they are."""
    given = [x.astype(dtype) for x in arrays(4)]
    copies = [x.copy() for x in given]
    outputs, cells, gates, _ = recurrent.lstm(np, *given, reverse)
    projected, hidden, cell, weight = copies
    for t in reversed(range(STEPS)) if reverse else range(STEPS):
        i, f, g, o = np.split(projected[t] + hidden @ weight.T, 4, 1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        hidden = sigmoid(o) * np.tanh(cell)
        np.testing.assert_allclose(outputs[t], hidden, rtol=1e-5)
        np.testing.assert_allclose(cells[t], cell, rtol=1e-5)
    assert outputs.dtype == gates.dtype == dtype
    for x, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(x, copy)


def test_lstm_backward_without_one_gradient():
    """A gradient of only the outputs, or only the last cell, equals the other being zero."""
    projected, hidden, cell, weight = arrays(4)
    saved = recurrent.lstm(np, projected, hidden, cell, weight, False)
    g_out, g_cell = RNG.standard_normal((STEPS, BATCH, WIDTH)), RNG.standard_normal((BATCH, WIDTH))
    zeros = np.zeros_like

    def back(g_out, g_cell):
        return recurrent.lstm_backward(np, g_out, g_cell, saved, hidden, cell, weight, False)

    for one, both in (
        (back(g_out, None), back(g_out, zeros(g_cell))),
        (back(None, g_cell), back(zeros(g_out), g_cell)),
    ):
        for a, b in zip(one, both, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("with_bias", [False, True])
def test_gru_steps(with_bias):
    """Each step of the GRU is the definition's, with and without the recurrent bias."""
    projected, hidden, _, weight = arrays(3)
    bias = RNG.standard_normal(3 * WIDTH) if with_bias else None
    outputs, _, _ = recurrent.gru(np, projected, hidden, weight, bias, False)
    for t in range(STEPS):
        rx, zx, nx = np.split(projected[t], 3, 1)
        rh, zh, nh = np.split(hidden @ weight.T + (0 if bias is None else bias), 3, 1)
        new, update = np.tanh(nx + sigmoid(rx + rh) * nh), sigmoid(zx + zh)
        hidden = (1 - update) * new + update * hidden
        np.testing.assert_allclose(outputs[t], hidden, rtol=1e-12)


@pytest.mark.parametrize("relu", [False, True])
def test_plain_steps(relu):
    """Each step of a plain layer is tanh, or the positive part, of both products."""
    projected, hidden, _, weight = arrays(1)
    outputs = recurrent.plain(np, projected, hidden, weight, relu, False)
    for t in range(STEPS):
        now = projected[t] + hidden @ weight.T
        hidden = np.maximum(now, 0) if relu else np.tanh(now)
        np.testing.assert_allclose(outputs[t], hidden, rtol=1e-12)


def test_large_inputs_saturate():
    """Gates far out are 0 and 1 without a warning."""
    projected, hidden, cell, weight = arrays(4)
    with np.errstate(all="raise", under="ignore"):
        outputs, _, gates, _ = recurrent.lstm(np, projected * 1e4, hidden, cell, weight, False)
    assert np.isfinite(outputs).all()
    assert gates.min() >= -1
    assert gates.max() <= 1
