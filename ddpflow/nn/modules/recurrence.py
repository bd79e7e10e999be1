"""The arithmetic of recurrent layers: one step, and a run over a packed batch in either direction."""

from collections.abc import Callable
from typing import Any

from ddpflow.autograd.ops.joining import cat
from ddpflow.autograd.ops.recurrent import gru_sequence, lstm_sequence, rnn_sequence
from ddpflow.nn import functional as F

__all__ = ["STEPS", "State", "run"]

State = tuple[Any, ...]  # the hidden state of each sequence, and the LSTM's cell state


def _rnn_tanh(projected: Any, state: State, weight: Any, bias: Any, weight_hr: Any) -> State:
    return (F.tanh(projected + F.linear(state[0], weight, bias)),)


def _rnn_relu(projected: Any, state: State, weight: Any, bias: Any, weight_hr: Any) -> State:
    return (F.relu(projected + F.linear(state[0], weight, bias)),)


def _lstm(projected: Any, state: State, weight: Any, bias: Any, weight_hr: Any) -> State:
    hidden, cell = state
    enter, forget, content, leave = (projected + F.linear(hidden, weight, bias)).chunk(4, -1)
    cell = F.sigmoid(forget) * cell + F.sigmoid(enter) * F.tanh(content)
    hidden = F.sigmoid(leave) * F.tanh(cell)
    return (hidden if weight_hr is None else F.linear(hidden, weight_hr)), cell


def _gru(projected: Any, state: State, weight: Any, bias: Any, weight_hr: Any) -> State:
    (hidden,) = state
    reset_x, update_x, new_x = projected.chunk(3, -1)
    reset_h, update_h, new_h = F.linear(hidden, weight, bias).chunk(3, -1)
    new = F.tanh(new_x + F.sigmoid(reset_x + reset_h) * new_h)
    return (new + F.sigmoid(update_x + update_h) * (hidden - new),)


# What a mode's step is: the state after it, from the projected input, the state before, the recurrent weight and bias,
# and for an LSTM the projection of the hidden state.
STEPS: dict[str, Callable[[Any, State, Any, Any, Any], State]] = {
    "RNN_TANH": _rnn_tanh,
    "RNN_RELU": _rnn_relu,
    "LSTM": _lstm,
    "GRU": _gru,
}


def run(
    mode: str, data: Any, batch_sizes: list[int], state: State, weights: tuple[Any, ...], reverse: bool
) -> tuple[Any, State]:
    """One layer in one direction over a packed batch.

    Args:
        mode: A key of `STEPS`.
        data: All steps' inputs, ``(sum of batch_sizes, features)``.
        batch_sizes: How many sequences have each step, falling.
        state: The state before the first step of every sequence.
        weights: ``weight_ih, weight_hh, bias_ih, bias_hh, weight_hr``; None for those the layer has not.
        reverse: Run from each sequence's last step to its first.

    Returns:
        The hidden states in the order of the input, and the state after each sequence's last step.
    """
    weight_ih, weight_hh, bias_ih, bias_hh, weight_hr = weights
    if batch_sizes[0] == batch_sizes[-1] and weight_hr is None:
        return _run_whole(mode, data, len(batch_sizes), state, weights, reverse)
    step = STEPS[mode]
    projected = F.linear(data, weight_ih, bias_ih).split(batch_sizes)  # all steps' inputs in one product
    outputs: list[Any] = []
    if reverse:
        before, state = state, tuple(part[: batch_sizes[-1]] for part in state)
        count = batch_sizes[-1]
        for place in range(len(batch_sizes) - 1, -1, -1):
            size = batch_sizes[place]
            if size > count:  # more sequences begin, from their ends
                state = tuple(cat([part, start[count:size]]) for part, start in zip(state, before, strict=True))
                count = size
            state = step(projected[place], state, weight_hh, bias_hh, weight_hr)
            outputs.append(state[0])
        outputs.reverse()
        return cat(outputs), state
    finished: list[State] = []
    count = batch_sizes[0]
    for place, size in enumerate(batch_sizes):
        if size < count:  # the shortest sequences have ended
            finished.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
            count = size
        state = step(projected[place], state, weight_hh, bias_hh, weight_hr)
        outputs.append(state[0])
    if finished:
        finished.append(state)
        state = tuple(cat(list(parts)) for parts in zip(*reversed(finished), strict=True))
    return cat(outputs), state


def _run_whole(
    mode: str, data: Any, steps: int, state: State, weights: tuple[Any, ...], reverse: bool
) -> tuple[Any, State]:
    """`run` for sequences of one length: all steps in one operation."""
    weight_ih, weight_hh, bias_ih, bias_hh, _ = weights
    if mode != "GRU" and bias_ih is not None:
        bias_ih = bias_ih + bias_hh
    batch = data.shape[0] // steps
    projected = F.linear(data, weight_ih, bias_ih).reshape(steps, batch, weight_hh.shape[0])
    cells: State = ()
    if mode == "LSTM":
        outputs, cell = lstm_sequence(projected, *state, weight_hh, reverse)
        cells = (cell,)
    elif mode == "GRU":
        outputs = gru_sequence(projected, *state, weight_hh, bias_hh, reverse)
    else:
        outputs = rnn_sequence(projected, *state, weight_hh, mode == "RNN_RELU", reverse)
    last = outputs[0 if reverse else -1]
    return outputs.reshape(data.shape[0], last.shape[-1]), (last, *cells)
