"""Recurrent layers over whole sequences: a matrix product and few passes a step, and the rest for all steps at once.

A sigmoid is ``tanh(x / 2) / 2 + 1 / 2``, so that all gates of a step go through one tanh; the halves are multiplied
into the projections and the weight beforehand. Beside the same steps as recorded operations, a training pass takes half
the time where products dominate, and a tenth where calls do (``benchmarks/kernels.py --only lstm,gru,rnn``).

Arrays are ``(T, B, features)``.
"""

from typing import Any

import numpy as np

__all__ = ["gru", "gru_backward", "lstm", "lstm_backward", "plain", "plain_backward", "previous"]


def previous(xp: Any, states: Any, first: Any, reverse: bool) -> Any:
    """For each step the state before it: those of all steps, moved on by one."""
    parts = [states[1:], first[None]] if reverse else [first[None], states[:-1]]
    return xp.concatenate(parts)


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _halves(xp: Any, width: int, whole: slice, dtype: Any) -> tuple[Any, Any]:
    """What a tanh is multiplied by and added to for a sigmoid; 1 and 0 for the features that stay a tanh."""
    scale = np.full(width, 0.5, dtype)
    scale[whole] = 1.0
    return xp.asarray(scale), xp.asarray(1 - scale)


def lstm(xp: Any, projected: Any, hidden: Any, cell: Any, weight: Any, reverse: bool) -> tuple[Any, Any, Any, Any]:
    """All steps of an LSTM: gates in the order enter, forget, content, leave.

    Returns:
        Hidden states, cell states, the gates' values and the cells' tanh, all for each step.
    """
    steps, batch, width = projected.shape
    h = width // 4
    scale, shift = _halves(xp, width, slice(2 * h, 3 * h), projected.dtype)
    gates = projected * scale
    recurrent = xp.ascontiguousarray((weight * scale[:, None]).T)
    states = xp.empty((3, steps, batch, h), projected.dtype)
    outputs, cells, squashed = states
    room, product = xp.empty((batch, width), projected.dtype), xp.empty((batch, h), projected.dtype)
    for t in _order(steps, reverse):
        gate, now = gates[t], cells[t]
        xp.matmul(hidden, recurrent, out=room)
        gate += room
        xp.tanh(gate, out=gate)
        gate *= scale
        gate += shift
        xp.multiply(gate[:, h : 2 * h], cell, out=now)
        xp.multiply(gate[:, :h], gate[:, 2 * h : 3 * h], out=product)
        now += product
        xp.tanh(now, out=squashed[t])
        hidden, cell = outputs[t], now
        xp.multiply(gate[:, 3 * h :], squashed[t], out=hidden)
    return outputs, cells, gates, squashed


def lstm_backward(
    xp: Any,
    g_out: Any,
    g_cell: Any,
    saved: tuple[Any, Any, Any, Any],
    hidden: Any,
    cell: Any,
    weight: Any,
    reverse: bool,
) -> tuple[Any, Any, Any, Any]:
    """Gradients of the projections, of both first states and of the weight; ``g_out`` or ``g_cell`` may be None."""
    outputs, cells, gates, squashed = saved
    steps, batch, width = gates.shape
    h = width // 4
    enter, forget, content, leave = (gates[..., i * h : (i + 1) * h] for i in range(4))
    before = previous(xp, cells, cell, reverse)
    slopes = xp.empty_like(gates)  # of the cell in its three gates, and of the output in the last one
    slopes[..., :h] = content * enter * (1 - enter)
    slopes[..., h : 2 * h] = before * forget * (1 - forget)
    slopes[..., 2 * h : 3 * h] = enter * (1 - content * content)
    slopes[..., 3 * h :] = squashed * leave * (1 - leave)
    through = leave * (1 - squashed * squashed)
    d_hidden = xp.zeros((batch, h), gates.dtype)
    d_cell = xp.zeros((batch, h), gates.dtype) if g_cell is None else g_cell.copy()
    for t in reversed(_order(steps, reverse)):
        if g_out is not None:
            d_hidden += g_out[t]
        d_cell += d_hidden * through[t]
        parts = slopes[t].reshape(batch, 4, h)
        parts[:, :3] *= d_cell[:, None]
        parts[:, 3] *= d_hidden
        d_cell *= forget[t]
        d_hidden = slopes[t] @ weight
    past = previous(xp, outputs, hidden, reverse)
    d_weight = slopes.reshape(-1, width).T @ past.reshape(-1, h)
    return slopes, d_hidden, d_cell, d_weight


def gru(xp: Any, projected: Any, hidden: Any, weight: Any, bias: Any, reverse: bool) -> tuple[Any, Any, Any]:
    """All steps of a GRU: gates in the order reset, update, new.

    Returns:
        Hidden states, the gates' values, and what the reset gate is multiplied with, all for each step.
    """
    steps, batch, width = projected.shape
    h = width // 3
    scale, shift = _halves(xp, width, slice(2 * h, 3 * h), projected.dtype)
    gates = projected * scale
    recurrent = xp.ascontiguousarray((weight * scale[:, None]).T)
    offset = None if bias is None else bias * scale
    outputs, news = xp.empty((2, steps, batch, h), projected.dtype)
    room = xp.empty((batch, width), projected.dtype)
    for t in _order(steps, reverse):
        gate, new = gates[t], gates[t][:, 2 * h :]
        xp.matmul(hidden, recurrent, out=room)
        if offset is not None:
            room += offset
        both = gate[:, : 2 * h]
        both += room[:, : 2 * h]
        xp.tanh(both, out=both)
        both *= scale[: 2 * h]
        both += shift[: 2 * h]
        news[t] = room[:, 2 * h :]
        new += both[:, :h] * news[t]
        xp.tanh(new, out=new)
        now = outputs[t]
        xp.subtract(hidden, new, out=now)
        now *= both[:, h:]
        now += new
        hidden = now
    return outputs, gates, news


def gru_backward(
    xp: Any, g_out: Any, saved: tuple[Any, Any, Any], hidden: Any, weight: Any, reverse: bool
) -> tuple[Any, Any, Any, Any]:
    """Gradients of the projections, of the first state, of the weight and of the bias."""
    outputs, gates, news = saved
    steps, batch, width = gates.shape
    h = width // 3
    reset, update, new = (gates[..., i * h : (i + 1) * h] for i in range(3))
    past = previous(xp, outputs, hidden, reverse)
    to_new = (1 - update) * (1 - new * new)
    to_update = (past - new) * update * (1 - update)
    to_reset = news * reset * (1 - reset)
    inner = xp.empty_like(gates)  # gradients of the recurrent product
    d_projected = xp.empty_like(gates)
    d_hidden = xp.zeros((batch, h), gates.dtype)
    for t in reversed(_order(steps, reverse)):
        d_hidden += g_out[t]
        d_new = d_hidden * to_new[t]
        grad = inner[t]
        xp.multiply(d_new, to_reset[t], out=grad[:, :h])
        xp.multiply(d_hidden, to_update[t], out=grad[:, h : 2 * h])
        xp.multiply(d_new, reset[t], out=grad[:, 2 * h :])
        d_projected[t, :, 2 * h :] = d_new
        d_hidden *= update[t]
        d_hidden += grad @ weight
    d_projected[..., : 2 * h] = inner[..., : 2 * h]
    flat = inner.reshape(-1, width)
    return d_projected, d_hidden, flat.T @ past.reshape(-1, h), flat.sum(0)


def plain(xp: Any, projected: Any, hidden: Any, weight: Any, relu: bool, reverse: bool) -> Any:
    """The hidden states of all steps of a plain recurrent layer."""
    outputs = xp.empty_like(projected)
    recurrent = xp.ascontiguousarray(weight.T)
    for t in _order(len(projected), reverse):
        now = outputs[t]
        xp.matmul(hidden, recurrent, out=now)
        now += projected[t]
        xp.maximum(now, 0, out=now) if relu else xp.tanh(now, out=now)
        hidden = now
    return outputs


def plain_backward(
    xp: Any, g_out: Any, outputs: Any, hidden: Any, weight: Any, relu: bool, reverse: bool
) -> tuple[Any, Any, Any]:
    """Gradients of the projections, of the first state and of the weight."""
    slopes = (outputs > 0).astype(outputs.dtype) if relu else 1 - outputs * outputs
    d_hidden = xp.zeros_like(hidden)
    for t in reversed(_order(len(outputs), reverse)):
        d_hidden += g_out[t]
        slopes[t] *= d_hidden
        d_hidden = slopes[t] @ weight
    past = previous(xp, outputs, hidden, reverse)
    width = outputs.shape[-1]
    return slopes, d_hidden, slopes.reshape(-1, width).T @ past.reshape(-1, width)
