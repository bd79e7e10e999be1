"""Pooling over any number of spatial axes: one strided view of the padded input for each place in the window."""

from typing import Any

import numpy as np

from ddpflow.autograd.kernels.conv import windows

__all__ = [
    "Window",
    "fold",
    "sum_pool",
    "sum_pool_backward",
    "unfold",
]


class Window:
    """How a pooling window moves: one entry per spatial axis.

    Attributes:
        kernel: Its size.
        stride: Its steps.
        padding: Places added before (and after) the input.
        dilation: Steps inside it.
        size: The input's spatial shape.
        out: The output's spatial shape.
    """

    __slots__ = ("dilation", "kernel", "out", "padding", "size", "stride")

    def __init__(
        self,
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        size: tuple[int, ...],
        out: tuple[int, ...],
    ) -> None:
        self.kernel = kernel
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.size = size
        self.out = out

    def reach(self) -> tuple[int, ...]:
        """The padded size that the windows cover, at least the input and its padding before."""
        axes = zip(self.kernel, self.stride, self.padding, self.dilation, self.size, self.out, strict=True)
        return tuple([max((m - 1) * s + d * (k - 1) + 1, n + p) for k, s, p, d, n, m in axes])

    def inside(self) -> Any:
        """The region of the padded input that is the input."""
        return (..., *[slice(p, p + n) for p, n in zip(self.padding, self.size, strict=True)])

    def places(self) -> Any:
        """Each place in the window with its slices of the padded input."""
        return windows(self.kernel, self.out, self.stride, self.dilation)

    def tiles_axis(self, i: int) -> bool:
        """Whether the windows cover an axis exactly, without overlap or padding."""
        k = self.kernel[i]
        plain = k == self.stride[i] and not self.padding[i] and self.dilation[i] == 1
        return plain and k * self.out[i] == self.size[i]

    def tiles(self) -> bool:
        """Whether the windows cover the input exactly, without overlap or padding."""
        return all(self.tiles_axis(i) for i in range(len(self.kernel)))

    def __repr__(self) -> str:
        return f"Window(kernel={self.kernel}, stride={self.stride}, padding={self.padding}, dilation={self.dilation})"


def _padded(xp: Any, x: Any, window: Window, fill: Any) -> Any:
    reach = window.reach()
    if reach == x.shape[2:]:
        return x
    out = xp.full((*x.shape[:2], *reach), fill, x.dtype)
    out[window.inside()] = x
    return out


def sum_pool(xp: Any, x: Any, window: Window) -> Any:
    """The sum of each window."""
    padded = _padded(xp, x, window, 0)
    out = None
    for _, part in window.places():
        values = padded[(..., *part)]
        if out is None:
            out = values.copy()
        else:
            out += values
    return out


def sum_pool_backward(xp: Any, g: Any, window: Window) -> Any:
    """The adjoint of `sum_pool`: each window's value to all its places."""
    lead = g.shape[:2]
    if window.tiles():
        out = xp.empty((*lead, *window.size), g.dtype)
        for _, part in window.places():
            out[(..., *part)] = g
        return out
    padded = xp.zeros((*lead, *window.reach()), g.dtype)
    for _, part in window.places():
        padded[(..., *part)] += g
    return xp.ascontiguousarray(padded[window.inside()])


def unfold(xp: Any, x: Any, window: Window) -> Any:
    """The windows as columns ``(N, C * places, positions)``."""
    padded = _padded(xp, x, window, 0)
    places = list(window.places())
    out = xp.empty((*x.shape[:2], len(places), *window.out), x.dtype)
    for i, (_, part) in enumerate(places):
        out[:, :, i] = padded[(..., *part)]
    return out.reshape(x.shape[0], x.shape[1] * len(places), int(np.prod(window.out)))


def fold(xp: Any, columns: Any, window: Window) -> Any:
    """The adjoint of `unfold`."""
    places = list(window.places())
    values = columns.reshape(columns.shape[0], columns.shape[1] // len(places), len(places), *window.out)
    padded = xp.zeros((*values.shape[:2], *window.reach()), columns.dtype)
    for i, (_, part) in enumerate(places):
        padded[(..., *part)] += values[:, :, i]
    return xp.ascontiguousarray(padded[window.inside()])
