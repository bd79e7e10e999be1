"""Convolution over any number of spatial axes: the forward product and its two adjoints.

All three go over the windows of the padded input, one for each place in the kernel: a strided view. The windows of some
samples are copied side by side, and one matrix product for each group of channels does the rest; where a group is one
channel, a multiplication for each place does. Stride 1 in two axes has a quicker way, see `conv_flat`.

Shapes: input ``(N, C, *L)``, weight ``(O, C / groups, *K)``, output ``(N, O, *M)``.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ddpflow.autograd.kernels.conv_flat import fits, flat_forward, flat_weight_gradient

__all__ = ["Plan", "forward", "input_gradient", "weight_gradient", "windows"]


CHUNK = 256 * 1024  # elements of the columns at a time, about what the second-level cache holds


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
    if xp is np and x.size and fits(plan, len(out_size)):
        return flat_forward(x, w, bias, plan.pads, plan.dilation, out_size)
    if xp is np and len(out_size) == 1:
        return forward(xp, x[:, :, None], w[:, :, None], bias, _as_two_axes(plan), (1, *out_size))[:, :, 0]
    padded = _padded(xp, x, plan)
    out = xp.empty((len(x), len(w), *out_size), x.dtype)
    places = list(windows(w.shape[2:], out_size, plan.stride, plan.dilation))
    weights = _by_place(w, plan.groups)
    for part in _chunks(xp, len(x), x.shape[1] * len(places) * _count(out_size)):
        target = out[part].reshape(-1, plan.groups, *weights.shape[1:2], *out_size)
        if w.shape[1] == 1:
            _multiply(xp, padded[part], weights, places, target)
            continue
        columns = _columns(xp, padded[part], places, plan.groups, out_size)
        product = weights @ columns
        target[...] = product.reshape(target.shape)
    if bias is not None:
        out += bias.reshape(-1, *[1] * len(out_size))
    return out


def input_gradient(xp: Any, g: Any, w: Any, size: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint of `forward` in the input: spreads ``g`` over an input of spatial shape ``size``."""
    if g.dtype.itemsize == 2:
        return input_gradient(xp, g.astype(xp.float32), w.astype(xp.float32), size, plan).astype(g.dtype)
    turned = _turned(g.shape[2:], w.shape[2:], size, plan)
    if turned is not None:
        flipped = w.reshape(plan.groups, -1, *w.shape[1:]).swapaxes(1, 2)
        flipped = flipped.reshape(-1, *flipped.shape[2:])[
            (slice(None), slice(None), *[slice(None, None, -1)] * len(size))
        ]
        return forward(xp, g, flipped, None, turned, size)
    channels, out_size = plan.groups * w.shape[1], g.shape[2:]
    padded = xp.zeros((len(g), channels, *_padded_size(size, plan)), g.dtype)
    places = list(windows(w.shape[2:], out_size, plan.stride, plan.dilation))
    weights = _by_place(w, plan.groups)
    for part in _chunks(xp, len(g), channels * len(places) * _count(out_size)):
        grads = g[part].reshape(-1, plan.groups, weights.shape[1], _count(out_size))
        if w.shape[1] == 1 and weights.shape[1] == 1:
            images = g[part]
            for i, (_, window) in enumerate(places):
                padded[part][(..., *window)] += images * weights[:, 0, i].reshape(-1, *[1] * len(size))
            continue
        columns = weights.swapaxes(1, 2) @ grads
        for i, (_, window) in enumerate(places):
            each = columns[:, :, i * w.shape[1] : (i + 1) * w.shape[1]]
            padded[part][(..., *window)] += each.reshape(-1, channels, *out_size)
    return xp.ascontiguousarray(padded[_inside(size, plan)])


def _as_two_axes(plan: Plan) -> Plan:
    """A convolution over one axis as one over two, the first of length 1."""
    return Plan((1, *plan.stride), ((0, 0), *plan.pads), (1, *plan.dilation), plan.groups)


def _turned(out_size: tuple[int, ...], kernel: tuple[int, ...], size: tuple[int, ...], plan: Plan) -> Plan | None:
    """The convolution, with the weights turned round, that is a convolution's adjoint; None where there is none."""
    if any(s != 1 for s in plan.stride):
        return None
    pads = []
    for n, m, k, d, (before, _) in zip(size, out_size, kernel, plan.dilation, plan.pads, strict=True):
        lead = d * (k - 1) - before
        pads.append((lead, n + d * (k - 1) - m - lead))
    if min(min(p) for p in pads) < 0:
        return None  # padding wider than the kernel reaches
    return Plan(plan.stride, tuple(pads), plan.dilation, plan.groups)


def weight_gradient(xp: Any, x: Any, g: Any, kernel: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint of `forward` in the weight: what a kernel of shape ``kernel`` sees of ``x``, weighted by ``g``."""
    if x.dtype.itemsize == 2:
        return weight_gradient(xp, x.astype(xp.float32), g.astype(xp.float32), kernel, plan).astype(x.dtype)
    if xp is np and x.size and fits(plan, len(kernel)):
        return flat_weight_gradient(x, g, kernel, plan.pads, plan.dilation)
    if xp is np and len(kernel) == 1:
        return weight_gradient(xp, x[:, :, None], g[:, :, None], (1, *kernel), _as_two_axes(plan))[:, :, 0]
    out_size, groups = g.shape[2:], plan.groups
    ins, outs = x.shape[1] // groups, g.shape[1]
    padded = _padded(xp, x, plan)
    places = list(windows(kernel, out_size, plan.stride, plan.dilation))
    total = xp.zeros((groups, outs // groups, len(places) * ins), x.dtype)
    for part in _chunks(xp, len(x), x.shape[1] * len(places) * _count(out_size)):
        columns = _columns(xp, padded[part], places, groups, out_size)
        grads = g[part].reshape(-1, groups, outs // groups, _count(out_size))
        total += (grads @ columns.swapaxes(-1, -2)).sum(0)
    order = total.reshape(outs, *kernel, ins)
    return xp.ascontiguousarray(xp.moveaxis(order, -1, 1))


def _by_place(w: Any, groups: int) -> Any:
    """The weight as ``(groups, outputs, places * inputs)``, place by place."""
    moved = w.reshape(len(w), w.shape[1], _count(w.shape[2:])).swapaxes(1, 2)
    return moved.reshape(groups, len(w) // groups, w.shape[1] * _count(w.shape[2:]))


def _chunks(xp: Any, samples: int, size: int) -> Iterator[slice]:
    """Samples by slices: as many as stay in the cache for NumPy, whose columns are of ``size`` each; else all."""
    step = max(1, CHUNK // max(1, size)) if xp is np else max(samples, 1)
    for start in range(0, samples, step):
        yield slice(start, start + step)


def _columns(xp: Any, padded: Any, places: Any, groups: int, out_size: tuple[int, ...]) -> Any:
    """The windows side by side: ``(N, groups, places * channels, positions)``."""
    n, ins = len(padded), padded.shape[1] // groups
    out = xp.empty((n, groups, len(places), ins, *out_size), padded.dtype)
    images = padded.reshape(n, groups, ins, *padded.shape[2:])
    for i, (_, window) in enumerate(places):
        out[:, :, i] = images[(..., *window)]
    return out.reshape(n, groups, len(places) * ins, _count(out_size))


def _multiply(xp: Any, padded: Any, weights: Any, places: Any, target: Any) -> None:
    """The convolution of groups of one channel, into ``(N, groups, outputs, *M)``."""
    images = padded[:, :, None]
    for i, (_, window) in enumerate(places):
        weight = weights[:, :, i].reshape(*weights.shape[:2], *[1] * (target.ndim - 3))
        if i == 0:
            xp.multiply(images[(..., *window)], weight, out=target)
        else:
            target += images[(..., *window)] * weight


def _count(size: Any) -> int:
    total = 1
    for n in size:
        total *= n
    return total
