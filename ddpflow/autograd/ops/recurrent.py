"""Recurrent layers over whole sequences of equal length, from the inputs' projections."""

from ddpflow.autograd.kernels import recurrent as kernels
from ddpflow.autograd.op import op

__all__ = ["gru_sequence", "lstm_sequence", "rnn_sequence"]


def _steps(projected, reverse):
    """The steps' projections in the order in which they are run."""
    steps = list(projected)  # taken apart once: indexing step by step would give each a gradient of the whole
    return steps[::-1] if reverse else steps


def _sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


def _stacked(xp, rows, reverse):
    return xp.stack(rows[::-1] if reverse else rows)


def _lstm_composite(xp, projected, hidden, cell, weight, reverse=False):
    width = hidden.shape[-1]
    rows = []
    for given in _steps(projected, reverse):
        gates = given + hidden @ weight.T
        enter, forget, content, leave = (gates[:, i * width : (i + 1) * width] for i in range(4))
        cell = _sigmoid(xp, forget) * cell + _sigmoid(xp, enter) * xp.tanh(content)
        hidden = _sigmoid(xp, leave) * xp.tanh(cell)
        rows.append(hidden)
    return _stacked(xp, rows, reverse), cell


@op(
    samples=[((3, 2, 8), (2, 2), (2, 2), (8, 2)), ((2, 1, 4), (1, 1), (1, 1), (4, 1), True)],
    tensors=4,
    composite=_lstm_composite,
)
def lstm_sequence(xp, projected, hidden, cell, weight, reverse=False):
    """The hidden states of all steps of an LSTM ``(T, B, H)``, and the cell state after the last one.

    Args:
        projected: The inputs times their weight, with both biases, ``(T, B, 4 H)``.
        hidden: The hidden state before the first step, ``(B, H)``.
        cell: The cell state before it.
        weight: The recurrent weight, ``(4 H, H)``.
        reverse: Run from the last step to the first.
    """
    saved = kernels.lstm(xp, projected, hidden, cell, weight, reverse)

    def vjp(g_out, g_cell):
        return kernels.lstm_backward(xp, g_out, g_cell, saved, hidden, cell, weight, reverse)

    return (saved[0], saved[1][0 if reverse else -1].copy()), vjp


def _gru_composite(xp, projected, hidden, weight, bias, reverse=False):
    width = hidden.shape[-1]
    rows = []
    for given in _steps(projected, reverse):
        inner = hidden @ weight.T + (0 if bias is None else bias)
        reset = _sigmoid(xp, given[:, :width] + inner[:, :width])
        update = _sigmoid(xp, given[:, width : 2 * width] + inner[:, width : 2 * width])
        new = xp.tanh(given[:, 2 * width :] + reset * inner[:, 2 * width :])
        hidden = new + update * (hidden - new)
        rows.append(hidden)
    return _stacked(xp, rows, reverse)


@op(
    samples=[((3, 2, 6), (2, 2), (6, 2), (6,)), ((2, 1, 3), (1, 1), (3, 1), None, True)],
    tensors=4,
    composite=_gru_composite,
)
def gru_sequence(xp, projected, hidden, weight, bias, reverse=False):
    """The hidden states of all steps of a GRU, ``(T, B, H)``.

    Args:
        projected: The inputs times their weight, with their bias, ``(T, B, 3 H)``.
        hidden: The state before the first step, ``(B, H)``.
        weight: The recurrent weight, ``(3 H, H)``.
        bias: The recurrent bias, or None.
        reverse: Run from the last step to the first.
    """
    saved = kernels.gru(xp, projected, hidden, weight, bias, reverse)

    def vjp(g):
        return kernels.gru_backward(xp, g, saved, hidden, weight, reverse)

    return saved[0], vjp


def _rnn_composite(xp, projected, hidden, weight, relu=False, reverse=False):
    rows = []
    for given in _steps(projected, reverse):
        now = given + hidden @ weight.T
        hidden = xp.maximum(now, 0) if relu else xp.tanh(now)
        rows.append(hidden)
    return _stacked(xp, rows, reverse)


@op(
    samples=[((3, 2, 2), (2, 2), (2, 2)), ((3, 2, 2), (2, 2), (2, 2), True, True)],
    tensors=3,
    composite=_rnn_composite,
)
def rnn_sequence(xp, projected, hidden, weight, relu=False, reverse=False):
    """The hidden states of all steps of a plain recurrent layer, ``(T, B, H)``.

    Args:
        projected: The inputs times their weight, with both biases, ``(T, B, H)``.
        hidden: The state before the first step, ``(B, H)``.
        weight: The recurrent weight, ``(H, H)``.
        relu: Rectify, instead of tanh.
        reverse: Run from the last step to the first.
    """
    outputs = kernels.plain(xp, projected, hidden, weight, relu, reverse)

    def vjp(g):
        return kernels.plain_backward(xp, g, outputs, hidden, weight, relu, reverse)

    return outputs, vjp
