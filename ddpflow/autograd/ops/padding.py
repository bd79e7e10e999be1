"""Elements added around a tensor: constants, its own edge, its mirror image or its other end."""

from typing import Any

import numpy as np

from ddpflow.autograd.op import apply, op
from ddpflow.autograd.ops.arrange import clone
from ddpflow.autograd.ops.selecting import index_select
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["constant_pad", "constant_pad_nd", "pad"]


@op(
    samples=[
        ((2, 3), ((0, 0), (1, 2))),
        ((2, 3), ((1, 0), (-1, 1)), 2.5),
        ((4,), ((-1, -2),)),
        ((2, 2), ((1, 1), (0, 0)), -1),
    ],
    tensors=1,
)
def constant_pad(xp, input, widths, value=0):
    """The tensor with ``value`` around it: a pair (before, after) for each dimension; negative ones cut off.

    Raises:
        ShapeError: When more is cut off than there is.
    """
    shape = [n + before + after for n, (before, after) in zip(input.shape, widths, strict=True)]
    if any(n < 0 for n in shape):
        raise ShapeError(f"pad() of shape {tuple(input.shape)} by {widths} leaves a negative size {tuple(shape)}")
    back = tuple([(-before, -after) for before, after in widths])
    inner = input[tuple([slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(input.shape, widths, strict=True)])]
    if inner.shape == tuple(shape):
        out = inner.copy()
    else:
        out = xp.full(shape, value, input.dtype)
        out[tuple([slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(shape, widths, strict=True)])] = inner
    return out, (lambda g: apply(xp, constant_pad, g, back),)


def constant_pad_nd(input, pad, value=0):
    """The tensor with ``value`` around it: (before, after) for the last dimension, the one before it, and so on."""
    ndim = input.array.ndim
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise ShapeError(f"pad() takes two numbers for each of up to {ndim} dimensions, not {tuple(pad)}")
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    widths = ((0, 0),) * (ndim - len(pairs)) + tuple(pairs[::-1])
    return constant_pad(input, widths, value) if any(pair != (0, 0) for pair in widths) else clone(input)


def pad(input, pad, mode="constant", value=None):
    """The tensor with elements added around it (PyTorch's ``nn.functional.pad``).

    Args:
        input: The tensor; other modes than constant pad all of its last one to three dimensions.
        pad: (before, after) for the last dimension, the one before it, and so on; negative numbers cut off.
        mode: ``"constant"``, ``"reflect"`` (mirrored, without the edge), ``"replicate"`` (the edge), ``"circular"``.
        value: The constant; 0 when left out.

    Raises:
        ShapeError: When a mirror image or another end is longer than the tensor, or ``pad`` does not fit.
        ValueRangeError: For an unknown mode, or a value in another mode than constant.
    """
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in _MODES:
        raise ValueRangeError(f"pad() has the modes constant, {', '.join(_MODES)}, not {mode!r}")
    if value:
        raise ValueRangeError(f"pad() in mode {mode!r} takes no value")
    shape = input.array.shape
    count = len(pad) // 2
    if len(pad) % 2 or not 1 <= count <= 3 or len(shape) not in (count + 1, count + 2):
        raise ShapeError(f"pad() in mode {mode!r}: {tuple(pad)} does not fit shape {tuple(shape)}")
    for i in range(count):
        before, after = int(pad[2 * i]), int(pad[2 * i + 1])
        if before or after:
            input = _extend(input, len(shape) - 1 - i, before, after, mode)
    return input


_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _extend(input, dim, before, after, mode):
    """One dimension made longer by indices into itself."""
    length = input.array.shape[dim]
    longest = max(before, after)
    if (mode == "reflect" and longest >= length) or (mode == "circular" and longest > length) or not length:
        raise ShapeError(
            f"pad() in mode {mode!r} by {longest} is too long for {length}, dimension {dim} of {tuple(input.shape)}"
        )
    if length + before + after < 1:
        raise ShapeError(
            f"pad() by ({before}, {after}) leaves nothing of {length}, dimension {dim} of {tuple(input.shape)}"
        )
    start, end = max(-before, 0), length - max(-after, 0)
    around = (max(before, 0), max(after, 0))
    if mode == "circular":  # what is cut off does not come back at the other end
        return index_select(input, dim, np.pad(np.arange(start, end), around, mode="wrap"))
    indices = np.pad(np.arange(length), around, mode=_MODES[mode])
    return index_select(input, dim, indices[start : len(indices) - max(-after, 0)])
