"""Pooling over any number of spatial axes: one strided view of the padded input for each place in the window."""

from typing import Any

import numpy as np

from ddpflow.autograd.kernels.conv import windows

__all__ = [
    "Window",
    "fold",
    "max_pool",
    "max_pool_backward",
    "max_pool_index",
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

    def tiles(self) -> bool:
        """Whether the windows cover the input exactly, without overlap or padding."""
        axes = zip(self.kernel, self.stride, self.padding, self.dilation, self.size, self.out, strict=True)
        return all(k == s and not p and d == 1 and k * m == n for k, s, p, d, n, m in axes)

    def __repr__(self) -> str:
        return f"Window(kernel={self.kernel}, stride={self.stride}, padding={self.padding}, dilation={self.dilation})"


def _padded(xp: Any, x: Any, window: Window, fill: Any) -> Any:
    reach = window.reach()
    if reach == x.shape[2:]:
        return x
    out = xp.full((*x.shape[:2], *reach), fill, x.dtype)
    out[window.inside()] = x
    return out


def _lowest(xp: Any, dtype: Any) -> Any:
    return -np.inf if dtype.kind not in "iu" else np.iinfo(dtype).min


def max_pool(xp: Any, x: Any, window: Window) -> tuple[Any, Any]:
    """The largest value of each window (NaN if it holds one), and its place's number in the window."""
    padded = _padded(xp, x, window, _lowest(xp, x.dtype))
    best: Any = None
    winner: Any = None
    for i, (_, part) in enumerate(window.places()):
        values = padded[(..., *part)]
        if best is None:
            best = values.copy()
            winner = xp.zeros(values.shape, xp.uint8 if int(np.prod(window.kernel)) <= 256 else xp.int32)
            if padded is not x:  # a window that sees nothing but padding and -inf points at the input all the same
                winner += xp.asarray(_first_inside(window), winner.dtype)
            continue
        better = (values > best) | (values != values)
        xp.maximum(best, values, out=best)
        winner[better] = i
    return best, winner


def _first_inside(window: Window) -> Any:
    """For each output position the number of the first place in the window that lies in the input."""
    number: Any = np.zeros((1,) * len(window.kernel), np.int64)
    for axis, (k, s, p, d, m) in enumerate(
        zip(window.kernel, window.stride, window.padding, window.dilation, window.out, strict=True)
    ):
        start = np.arange(m) * s - p
        first = np.where(start < 0, -(start // d), 0)
        shape = [1] * len(window.kernel)
        shape[axis] = m
        number = number * k + first.reshape(shape)
    return number


def max_pool_backward(xp: Any, g: Any, winner: Any, window: Window) -> Any:
    """The input's gradient: each window's goes to its winner."""
    lead = g.shape[:2]
    if window.tiles():
        out = xp.empty((*lead, *window.size), g.dtype)
        for i, (_, part) in enumerate(window.places()):
            xp.multiply(g, winner == i, out=out[(..., *part)])
        return out
    padded = xp.zeros((*lead, *window.reach()), g.dtype)
    for i, (_, part) in enumerate(window.places()):
        padded[(..., *part)] += g * (winner == i)
    return xp.ascontiguousarray(padded[window.inside()])


def max_pool_index(xp: Any, winner: Any, window: Window) -> Any:
    """The winners as flat indices of the input's spatial plane."""
    index: Any = 0
    rest = winner.astype(xp.int64)
    places = []
    for k in reversed(window.kernel):
        places.append(rest % k)
        rest = rest // k
    places.reverse()
    for axis, (n, s, p, d, m) in enumerate(
        zip(window.size, window.stride, window.padding, window.dilation, window.out, strict=True)
    ):
        shape = [1] * len(window.size)
        shape[axis] = m
        index = index * n + (xp.arange(m).reshape(shape) * s - p + places[axis] * d)
    return index


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
