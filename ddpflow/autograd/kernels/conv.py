"""Convolution over any number of spatial axes: the forward product and its two adjoints.

All three go over the windows of the padded input, one for each place in the kernel: a strided view. The windows are
copied side by side, and one matrix product for each group of channels does the rest; where a group is one channel, a
multiplication for each place does. NumPy has a quicker way, see `conv_flat`. The adjoint in the input is made of
convolutions again, or, for strides without groups, of the columns' gradients.

Shapes: input ``(N, C, *L)``, weight ``(O, C / groups, *K)``, output ``(N, O, *M)``.
"""

from collections.abc import Iterator
from itertools import product
from math import gcd
from typing import Any

import numpy as np

from ddpflow.autograd.kernels.conv3d import forward_3d, weight_gradient_3d
from ddpflow.autograd.kernels.conv_flat import flat_forward, flat_weight_gradient

__all__ = ["Plan", "forward", "input_gradient", "weight_gradient", "windows"]


CHUNK = 256 * 1024  # elements of the columns' gradients at a time, about what the second-level cache holds


class Plan:
    """What a convolution does: one entry per spatial axis.

    Attributes:
        stride: Steps of the window.
        pads: Zeros before and after.
        dilation: Steps inside the window.
        groups: Groups of channels that do not see each other.
    """

    __slots__ = ("dilation", "groups", "pads", "stride")

    def __init__(
        self, stride: tuple[int, ...], pads: tuple[tuple[int, int], ...], dilation: tuple[int, ...], groups: int
    ) -> None:
        self.stride = stride
        self.pads = pads
        self.dilation = dilation
        self.groups = groups

    def output_size(self, size: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[int, ...]:
        """The output's spatial shape for an input's."""
        axes = zip(size, kernel, self.stride, self.pads, self.dilation, strict=True)
        return tuple([(n + lo + hi - d * (k - 1) - 1) // s + 1 for n, k, s, (lo, hi), d in axes])

    def wider(self) -> "Plan":
        """With an axis of length 1 in front."""
        return Plan((1, *self.stride), ((0, 0), *self.pads), (1, *self.dilation), self.groups)

    def plane(self) -> "Plan":
        """Without the first axis."""
        return Plan(self.stride[1:], self.pads[1:], self.dilation[1:], self.groups)

    def __repr__(self) -> str:
        return f"Plan(stride={self.stride}, pads={self.pads}, dilation={self.dilation}, groups={self.groups})"


def windows(
    kernel: tuple[int, ...], out: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each place in a kernel, with the slices of the padded input that meet it over all output positions."""
    for place in product(*map(range, kernel)):
        axes = zip(place, dilation, out, stride, strict=True)
        yield place, tuple([slice(p * d, p * d + (m - 1) * s + 1, s) for p, d, m, s in axes])


def _padded(xp: Any, x: Any, plan: Plan) -> Any:
    if not any(lo or hi for lo, hi in plan.pads):
        return x
    out = xp.zeros((*x.shape[:2], *_padded_size(x.shape[2:], plan)), x.dtype)
    out[_inside(x.shape[2:], plan)] = x
    return out


def _padded_size(size: tuple[int, ...], plan: Plan) -> list[int]:
    return [n + lo + hi for n, (lo, hi) in zip(size, plan.pads, strict=True)]


def _inside(size: tuple[int, ...], plan: Plan) -> Any:
    """The region of the padded input that is the input."""
    return (..., *[slice(lo, lo + n) for n, (lo, _) in zip(size, plan.pads, strict=True)])


def forward(xp: Any, x: Any, w: Any, bias: Any, plan: Plan, out_size: tuple[int, ...]) -> Any:
    """The convolution (cross-correlation) of an input with a weight, plus a bias; its first ``out_size`` positions."""
    if x.dtype.itemsize == 2:  # half types are multiplied in float32 and rounded once
        return forward(xp, x.astype(xp.float32), w.astype(xp.float32), bias, plan, out_size).astype(x.dtype)
    if xp is np and x.size:
        if len(out_size) == 1:
            return flat_forward(x[:, :, None], w[:, :, None], bias, plan.wider(), (1, *out_size))[:, :, 0]
        if len(out_size) == 2:
            return flat_forward(x, w, bias, plan, out_size)
        return forward_3d(x, w, bias, plan, out_size)
    padded = _padded(xp, x, plan)
    places = [window for _, window in windows(w.shape[2:], out_size, plan.stride, plan.dilation)]
    weights = _by_place(w, plan.groups)
    if w.shape[1] == 1:
        images, taps = padded[:, :, None], weights.reshape(*weights.shape, *[1] * len(out_size))
        out = sum(images[(..., *window)] * taps[:, :, i] for i, window in enumerate(places))
    else:
        out = weights @ _columns(xp, padded, places, plan.groups, out_size)
    out = out.reshape(len(x), len(w), *out_size)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(out_size))
    return out


def input_gradient(xp: Any, g: Any, w: Any, size: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint of `forward` in the input: spreads ``g`` over an input of spatial shape ``size``."""
    if g.dtype.itemsize == 2:
        return input_gradient(xp, g.astype(xp.float32), w.astype(xp.float32), size, plan).astype(g.dtype)
    if plan.groups > 1 or all(s == 1 for s in plan.stride):
        return _turned(xp, g, w, size, plan)
    channels, out_size = w.shape[1], g.shape[2:]
    padded = xp.zeros((len(g), channels, *_padded_size(size, plan)), g.dtype)
    places = [window for _, window in windows(w.shape[2:], out_size, plan.stride, plan.dilation)]
    weights = _by_place(w, 1)[0].swapaxes(0, 1)
    for part in _chunks(xp, len(g), channels * len(places) * _count(out_size)):
        columns = weights @ g[part].reshape(-1, len(w), _count(out_size))
        columns = columns.reshape(-1, len(places), channels, *out_size)
        for i, window in enumerate(places):
            padded[part][(..., *window)] += columns[:, i]
    return xp.ascontiguousarray(padded[_inside(size, plan)])


def _turned(xp: Any, g: Any, w: Any, size: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint as convolutions with stride 1 and the weights turned round.

    For a stride of s along an axis there are s, each with the part of the kernel that meets every s-th place.
    """
    turned = w.reshape(plan.groups, -1, *w.shape[1:]).swapaxes(1, 2)
    turned = turned.reshape(-1, *turned.shape[2:])
    axes = zip(size, g.shape[2:], w.shape[2:], plan.stride, plan.pads, plan.dilation, strict=True)
    one = all(s == 1 for s in plan.stride)
    out: Any = None if one else xp.zeros((len(g), len(turned), *size), g.dtype)
    for phases in product(*[list(_phases(*axis)) for axis in axes]):
        places, counts, taps, seen, pads, dilation = zip(*phases, strict=True)
        part = Plan((1,) * len(size), pads, dilation, plan.groups)
        found = forward(xp, g[(..., *seen)], turned[(..., *taps)], None, part, counts)
        if one:
            return found
        out[(..., *places)] = found
    return out


def _phases(
    size: int, out: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int
) -> Iterator[tuple[slice, int, slice, slice, tuple[int, int], int]]:
    """Along one axis, for each phase of the stride that the kernel meets, the convolution that the gradient there is.

    Yields:
        The places of the input and their number, the kernel's part, the output's places that it meets, the zeros
        before and after these, and the steps inside the kernel's part.
    """
    apart = stride // gcd(stride, dilation)  # from one place in the kernel to the next that meets the same phase
    for first in range(min(stride, size)):
        taps = [i for i in range(kernel) if (i * dilation - first - pads[0]) % stride == 0]
        if not taps:
            continue
        count, reach = len(range(first, size, stride)), (taps[-1] - taps[0]) * dilation // stride
        before = reach - (first + pads[0] - taps[0] * dilation) // stride
        after = count + reach - out - before
        start = max(0, -before)
        seen = slice(start, max(start, out - max(0, -after)))
        part = slice(taps[-1], taps[0] - 1 if taps[0] else None, -apart)
        yield slice(first, None, stride), count, part, seen, (max(before, 0), max(after, 0)), apart * dilation // stride


def weight_gradient(xp: Any, x: Any, g: Any, kernel: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint of `forward` in the weight: what a kernel of shape ``kernel`` sees of ``x``, weighted by ``g``."""
    if x.dtype.itemsize == 2:
        return weight_gradient(xp, x.astype(xp.float32), g.astype(xp.float32), kernel, plan).astype(x.dtype)
    if xp is np and x.size:
        if len(kernel) == 1:
            return flat_weight_gradient(x[:, :, None], g[:, :, None], (1, *kernel), plan.wider())[:, :, 0]
        if len(kernel) == 2:
            return flat_weight_gradient(x, g, kernel, plan)
        return weight_gradient_3d(x, g, kernel, plan)
    out_size, groups = g.shape[2:], plan.groups
    ins, outs = x.shape[1] // groups, g.shape[1]
    places = [window for _, window in windows(kernel, out_size, plan.stride, plan.dilation)]
    columns = _columns(xp, _padded(xp, x, plan), places, groups, out_size)
    total = (g.reshape(len(g), groups, outs // groups, _count(out_size)) @ columns.swapaxes(-1, -2)).sum(0)
    order = total.reshape(outs, *kernel, ins)
    return xp.ascontiguousarray(xp.moveaxis(order, -1, 1))


def _by_place(w: Any, groups: int) -> Any:
    """The weight as ``(groups, outputs, places * inputs)``, place by place."""
    moved = w.reshape(len(w), w.shape[1], _count(w.shape[2:])).swapaxes(1, 2)
    return moved.reshape(groups, len(w) // groups, w.shape[1] * _count(w.shape[2:]))


def _chunks(xp: Any, samples: int, size: int) -> Iterator[slice]:
    """Samples by slices: as many as stay in the cache for NumPy, whose columns are of ``size`` each; else all."""
    step = max(1, CHUNK // max(1, size)) if xp is np else max(samples, 1)
    return (slice(start, start + step) for start in range(0, samples, step))


def _columns(xp: Any, padded: Any, places: Any, groups: int, out_size: tuple[int, ...]) -> Any:
    """The windows side by side: ``(N, groups, places * channels, positions)``."""
    n, ins = len(padded), padded.shape[1] // groups
    out = xp.empty((n, groups, len(places), ins, *out_size), padded.dtype)
    images = padded.reshape(n, groups, ins, *padded.shape[2:])
    for i, window in enumerate(places):
        out[:, :, i] = images[(..., *window)]
    return out.reshape(n, groups, len(places) * ins, _count(out_size))


def _count(size: Any) -> int:
    total = 1
    for n in size:
        total *= n
    return total
