"""Convolution over any number of spatial axes: the forward product and its two adjoints.

All three are written over the windows of the padded input, one for each place in the kernel: a strided view, no copy of
the input for each of them. Shapes: input ``(N, C, *L)``, weight ``(O, C / groups, *K)``, output ``(N, O, *M)``.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ddpflow.autograd.kernels.conv_flat import fits, flat_forward, flat_input_gradient, flat_weight_gradient

__all__ = ["Plan", "forward", "input_gradient", "weight_gradient", "windows"]


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
    size = [n + lo + hi for n, (lo, hi) in zip(x.shape[2:], plan.pads, strict=True)]
    out = xp.zeros((*x.shape[:2], *size), x.dtype)
    out[_inside(x.shape[2:], plan)] = x
    return out


def _inside(size: tuple[int, ...], plan: Plan) -> Any:
    """The region of the padded input that is the input."""
    return (..., *[slice(lo, lo + n) for n, (lo, _) in zip(size, plan.pads, strict=True)])


def forward(xp: Any, x: Any, w: Any, plan: Plan, out_size: tuple[int, ...]) -> Any:
    """The convolution (cross-correlation) of an input with a weight, at the first ``out_size`` positions."""
    if xp is np and x.size and fits(plan, len(out_size)):
        return flat_forward(x, w, plan.pads, plan.dilation, out_size)
    n, groups, outs = x.shape[0], plan.groups, w.shape[0]
    length = _count(out_size)
    padded = _padded(xp, x, plan)
    out = xp.zeros((n, groups, outs // groups, length), x.dtype)
    weights = w.reshape(groups, outs // groups, w.shape[1], *w.shape[2:])
    for place, window in windows(w.shape[2:], out_size, plan.stride, plan.dilation):
        part = padded[(..., *window)].reshape(n, groups, w.shape[1], length)
        out += _product(weights[(..., *place)], part)
    return out.reshape(n, outs, *out_size)


def input_gradient(xp: Any, g: Any, w: Any, size: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint of `forward` in the input: spreads ``g`` over an input of spatial shape ``size``."""
    if xp is np and g.size and fits(plan, len(size)):
        found = flat_input_gradient(g, w, size, plan.pads, plan.dilation)
        if found is not None:
            return found
    n, groups, outs = g.shape[0], plan.groups, w.shape[0]
    padded_size = [k + lo + hi for k, (lo, hi) in zip(size, plan.pads, strict=True)]
    padded = xp.zeros((n, groups * w.shape[1], *padded_size), g.dtype)
    grads = g.reshape(n, groups, outs // groups, _count(g.shape[2:]))
    weights = w.reshape(groups, outs // groups, w.shape[1], *w.shape[2:]).swapaxes(1, 2)
    for place, window in windows(w.shape[2:], g.shape[2:], plan.stride, plan.dilation):
        part = _product(weights[(..., *place)], grads)
        padded[(..., *window)] += part.reshape(n, groups * w.shape[1], *g.shape[2:])
    return xp.ascontiguousarray(padded[_inside(size, plan)])


def weight_gradient(xp: Any, x: Any, g: Any, kernel: tuple[int, ...], plan: Plan) -> Any:
    """The adjoint of `forward` in the weight: what a kernel of shape ``kernel`` sees of ``x``, weighted by ``g``."""
    if xp is np and x.size and fits(plan, len(kernel)):
        return flat_weight_gradient(x, g, kernel, plan.pads, plan.dilation)
    n, groups, outs = x.shape[0], plan.groups, g.shape[1]
    ins, length = x.shape[1] // groups, _count(g.shape[2:])
    padded = _padded(xp, x, plan)
    grads = (
        g.reshape(n, groups, outs // groups, length).transpose(1, 2, 0, 3).reshape(groups, outs // groups, n * length)
    )
    out = xp.empty((groups, outs // groups, ins, *kernel), x.dtype)
    for place, window in windows(kernel, g.shape[2:], plan.stride, plan.dilation):
        part = padded[(..., *window)].reshape(n, groups, ins, length)
        part = part.transpose(1, 0, 3, 2).reshape(groups, n * length, ins)
        out[(..., *place)] = grads @ part
    return out.reshape(outs, ins, *kernel)


def _product(w: Any, x: Any) -> Any:
    """``(G, O, C) @ (N, G, C, L)``; by multiplication where one side of the product is a single channel."""
    if w.shape[-1] == 1:
        return w * x
    return w @ x


def _count(size: Any) -> int:
    total = 1
    for n in size:
        total *= n
    return total
