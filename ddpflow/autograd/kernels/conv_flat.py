"""Convolution with stride 1 for NumPy, over samples laid out flat: a shift of the window is a shift of the memory.

Each channel's samples are written one after another, row after row, with zeros between rows and between samples. Then
what one place of the kernel sees, over all output positions, is one contiguous run: the input is unfolded along the
kernel's width by plain copies, and each row of the kernel is one matrix product on a shifted view of that. Positions
between the rows come out as garbage and are left behind when the output is taken out. A few samples at a time stay in
the cache.
"""

from typing import Any

import numpy as np

__all__ = ["fits", "flat_forward", "flat_input_gradient", "flat_weight_gradient"]

CHUNK = 160 * 1024  # elements of the unfolded input at a time, about what the second-level cache holds beside the rest
DEEP = 160 * 1024  # the weight's gradient gains from one product as long as a sample unfolded whole is not above this
NARROW = 64  # below this many rows a matrix product is too thin: unfold the whole kernel, for one product


class _Layout:
    """Where samples, rows and kernel places lie in the flat arrays of one convolution.

    Attributes:
        row: Places from one row to the next.
        sample: Places from one sample to the next.
        count: Samples at a time.
        origin: Where the first sample starts.
        columns, rows: Shifts of the kernel's columns and rows.
        size, out: Spatial shapes of input and output.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        kernel: tuple[int, ...],
        pads: Any,
        dilation: tuple[int, ...],
        out: Any,
        deep: bool = False,
    ) -> None:
        samples, channels, height, width = shape
        (top, bottom), (left, right) = pads
        self.row: int = max(width + max(left, right), out[1])
        lines = max(height + max(top, bottom), out[0])
        self.sample: int = lines * self.row
        self.origin = top * self.row + left
        self.columns = [j * dilation[1] for j in range(kernel[1])]
        self.rows = [i * dilation[0] * self.row for i in range(kernel[0])]
        self.size: tuple[int, int] = (height, width)
        self.out: tuple[int, ...] = tuple(out)
        self.whole = channels * kernel[1] < NARROW or (deep and channels * kernel[0] * kernel[1] * self.sample < DEEP)
        unfolded = channels * kernel[1] * (kernel[0] if self.whole else 1)
        self.count = max(1, min(samples, CHUNK // max(1, unfolded * self.sample)))

    def length(self, samples: int) -> int:
        """Output places of so many samples: to the end of the last one's last row."""
        return (samples - 1) * self.sample + self.out[0] * self.row

    def inside(self, flat: Any, samples: int, size: tuple[int, ...], origin: int = 0) -> Any:
        """The real values of a flat array, as a view ``(samples, channels, height, width)``."""
        item, line = flat.itemsize, flat.strides[0]
        strides = (self.sample * item, line, self.row * item, item)
        return np.ndarray((samples, len(flat), *size), flat.dtype, flat, origin * item, strides)

    def buffer(self, channels: int, dtype: Any) -> Any:
        """Zeros to write samples into."""
        reach = self.length(self.count) + self.rows[-1] + self.columns[-1]
        return np.zeros((channels, max(reach, self.origin + self.count * self.sample)), dtype)


class _Unfolded:
    """The input, a chunk of samples at a time, as the matrices that each product of the convolution takes."""

    def __init__(self, x: Any, layout: _Layout) -> None:
        self.x = x
        self.layout = layout
        channels = x.shape[1]
        self.buffer = layout.buffer(channels, x.dtype)
        self.shifts = [i + j for i in layout.rows for j in layout.columns] if layout.whole else layout.columns
        self.reach = layout.length(layout.count) + (0 if layout.whole else layout.rows[-1])
        self.taps = np.empty((len(self.shifts), channels, self.reach), x.dtype)
        self.starts = [0] if layout.whole else layout.rows

    def load(self, start: int, samples: int) -> list[Any]:
        """Take in samples; one matrix ``(places * channels, length)`` for each product."""
        layout = self.layout
        layout.inside(self.buffer, samples, layout.size, layout.origin)[...] = self.x[start : start + samples]
        for tap, shift in zip(self.taps, self.shifts, strict=True):
            tap[...] = self.buffer[:, shift : shift + self.reach]
        matrix = self.taps.reshape(-1, self.reach)
        length = layout.length(samples)
        return [matrix[:, s : s + length] for s in self.starts]


def fits(plan: Any, spatial: int) -> bool:
    """Whether this way takes a convolution: two axes, steps of 1, one group, no cropping."""
    return spatial == 2 and plan.groups == 1 and plan.stride == (1, 1) and min(plan.pads[0] + plan.pads[1]) >= 0


def flat_forward(x: Any, w: Any, pads: Any, dilation: tuple[int, ...], out_size: tuple[int, ...]) -> Any:
    """The convolution of ``(N, C, H, W)`` with ``(O, C, KH, KW)``."""
    outs, _, high, wide = w.shape
    layout = _Layout(x.shape, (high, wide), pads, dilation, out_size)
    unfolded = _Unfolded(x, layout)
    if layout.whole:
        weights = [np.ascontiguousarray(w.transpose(0, 2, 3, 1)).reshape(outs, -1)]
    else:
        weights = list(np.ascontiguousarray(w.transpose(2, 0, 3, 1)).reshape(high, outs, -1))
    out = np.empty((x.shape[0], outs, *out_size), x.dtype)
    total = part = np.empty((0, 0), x.dtype)
    for start in range(0, len(x), layout.count):
        samples = min(layout.count, len(x) - start)
        length = layout.length(samples)
        if total.shape[1] != length:  # contiguous: sums over them are much quicker than over parts of longer rows
            total, part = np.empty((outs, length), x.dtype), np.empty((outs, length), x.dtype)
        matrices = unfolded.load(start, samples)
        np.matmul(weights[0], matrices[0], out=total)
        for weight, matrix in zip(weights[1:], matrices[1:], strict=True):
            total += np.matmul(weight, matrix, out=part)
        out[start : start + samples] = layout.inside(total, samples, layout.out)
    return out


def flat_input_gradient(g: Any, w: Any, size: tuple[int, ...], pads: Any, dilation: tuple[int, ...]) -> Any:
    """The input's gradient: the convolution of ``g`` with the weights turned round, or None where that would crop."""
    turned = []
    for n, m, k, d, (before, _) in zip(size, g.shape[2:], w.shape[2:], dilation, pads, strict=True):
        lead = d * (k - 1) - before
        turned.append((lead, n + d * (k - 1) - m - lead))
    if min(turned[0] + turned[1]) < 0:
        return None
    return flat_forward(g, w[:, :, ::-1, ::-1].swapaxes(0, 1), turned, dilation, size)


def flat_weight_gradient(x: Any, g: Any, kernel: tuple[int, ...], pads: Any, dilation: tuple[int, ...]) -> Any:
    """The weight's gradient: each unfolded matrix times the gradients, summed over chunks of samples."""
    channels, outs = x.shape[1], g.shape[1]
    layout = _Layout(x.shape, kernel, pads, dilation, g.shape[2:], deep=True)
    unfolded = _Unfolded(x, layout)
    flat = np.zeros((outs, layout.count * layout.sample), g.dtype)
    places = len(unfolded.shifts) * channels
    total = np.zeros((len(unfolded.starts), places, outs), x.dtype)
    part = np.empty((places, outs), x.dtype)
    for start in range(0, len(x), layout.count):
        samples = min(layout.count, len(x) - start)
        layout.inside(flat, samples, layout.out)[...] = g[start : start + samples]
        grads = flat[:, : layout.length(samples)].T
        for sum_, matrix in zip(total, unfolded.load(start, samples), strict=True):
            sum_ += np.matmul(matrix, grads, out=part)
    return np.ascontiguousarray(total.reshape(*kernel, channels, outs).transpose(3, 2, 0, 1))
