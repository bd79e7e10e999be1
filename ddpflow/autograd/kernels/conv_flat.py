"""Convolution with stride 1 for NumPy: unfold the width only, and let a shift of rows be a shift of the memory.

For each column of the kernel the input is copied once, shifted, with rows as long as the output's; zeros stand above,
below and between the samples. Then what a row of the kernel sees is one contiguous run of these copies: a matrix
product for each row of the kernel, on a shifted view of the same matrix. For one sample at a time the product is the
output as it lies; for more, what falls between the samples is left behind. A few samples at a time stay in the cache.
"""

from typing import Any

import numpy as np

__all__ = ["fits", "flat_forward", "flat_weight_gradient"]

CHUNK = 160 * 1024  # elements of the unfolded input at a time, about what the second-level cache holds beside the rest
DEEP = 160 * 1024  # the weight's gradient gains from one product as long as a sample unfolded whole is not above this
NARROW = 64  # below this many rows a matrix product is too thin: unfold the whole kernel, for one product


class _Unfolded:
    """The input, a chunk of samples at a time, as the matrices that each product of the convolution takes.

    Attributes:
        count: Samples at a time.
        products: How many products make a convolution.
        shifts: From one row of the kernel to the next.
        matrix: The input with its width unfolded, ``(columns * channels, places)``.
    """

    def __init__(
        self, x: Any, kernel: tuple[int, ...], pads: Any, dilation: tuple[int, ...], out: Any, deep: bool
    ) -> None:
        samples, channels, height, width = x.shape
        high, wide = kernel
        (top, bottom), (left, _) = pads
        self.x, self.out, self.kernel = x, out, kernel
        self.lines = max(height + max(top, bottom), out[0])  # from one sample to the next
        row = out[1]
        self.sample = self.lines * row
        places = channels * high * wide
        self.whole = channels * wide < NARROW or (deep and places * self.sample < DEEP)
        self.count = max(1, min(samples, CHUNK // (places if self.whole else channels * wide) // max(1, self.sample)))
        self.products = 1 if self.whole else high
        self.shifts = [i * dilation[0] * row for i in range(high)]
        reach = self.length(self.count) + self.shifts[-1]
        size = max(reach, (top + self.count * self.lines) * row)
        self.taps = np.zeros((wide, channels, size), x.dtype)
        self.matrix = self.taps.reshape(-1, size)
        self.targets = []
        for j, tap in enumerate(self.taps):
            shift = j * dilation[1] - left  # column c of the tap is column c + shift of the input
            start = max(0, -shift)
            end = max(start, min(row, width - shift))
            rows = tap[:, top * row : (top + self.count * self.lines) * row]
            rows = rows.reshape(channels, self.count, self.lines, row)[:, :, :height, start:end]
            self.targets.append((rows.swapaxes(0, 1), slice(start + shift, end + shift)))
        if self.whole:
            self.all = np.empty((high, wide * channels, self.length(self.count)), x.dtype)

    def length(self, samples: int) -> int:
        """Output places of so many samples: to the end of the last one's last row."""
        return int((samples - 1) * self.sample + self.out[0] * self.out[1])

    def load(self, start: int, samples: int) -> None:
        """Take in samples."""
        part = self.x[start : start + samples]
        for target, columns in self.targets:
            target[:samples] = part[..., columns]

    def matrices(self, length: int) -> list[Any]:
        """One matrix ``(columns * channels, length)`` for each product."""
        rows = [self.matrix[:, shift : shift + length] for shift in self.shifts]
        if not self.whole:
            return rows
        for target, row in zip(self.all, rows, strict=True):
            target[:, :length] = row
        return [self.all.reshape(-1, self.all.shape[2])[:, :length]]

    def inside(self, flat: Any, samples: int) -> Any:
        """The real ones of output places ``(channels, length)``, as a view ``(samples, channels, height, width)``."""
        item, (high, wide) = flat.itemsize, self.out
        strides = (self.sample * item, flat.strides[0], wide * item, item)
        return np.ndarray((samples, len(flat), high, wide), flat.dtype, flat, 0, strides)

    def weights(self, w: Any) -> list[Any]:
        """The weight as one matrix ``(outputs, columns * channels)`` for each product."""
        outs = len(w)
        if self.whole:
            return [np.ascontiguousarray(w.transpose(0, 2, 3, 1)).reshape(outs, -1)]
        return list(np.ascontiguousarray(w.transpose(2, 0, 3, 1)).reshape(w.shape[2], outs, -1))


def fits(plan: Any, spatial: int) -> bool:
    """Whether this way takes a convolution: two axes, steps of 1, one group, no cropping."""
    return spatial == 2 and plan.groups == 1 and plan.stride == (1, 1) and min(plan.pads[0] + plan.pads[1]) >= 0


def flat_forward(x: Any, w: Any, bias: Any, pads: Any, dilation: tuple[int, ...], out_size: tuple[int, ...]) -> Any:
    """The convolution of ``(N, C, H, W)`` with ``(O, C, KH, KW)``, plus a bias for each output channel (or None)."""
    outs = len(w)
    unfolded = _Unfolded(x, w.shape[2:], pads, dilation, out_size, deep=False)
    weights = unfolded.weights(w)
    add_up = _products
    if outs < NARROW and len(weights) > 1:
        weights, add_up = [np.concatenate(weights)], _shifted_parts
    out = np.empty((len(x), outs, *out_size), x.dtype)
    flat = out.reshape(len(x), outs, -1)
    total = part = np.empty((0, 0), x.dtype)
    for start in range(0, len(x), unfolded.count):
        samples = min(unfolded.count, len(x) - start)
        length = unfolded.length(samples)
        if start == 0 or total.shape[1] != length:
            total = np.empty((outs, length), x.dtype)
            part = np.empty((len(weights[0]), length + (unfolded.shifts[-1] if len(weights[0]) > outs else 0)), x.dtype)
        unfolded.load(start, samples)
        target = flat[start] if samples == 1 else total
        add_up(weights, unfolded, length, part, target)
        if bias is not None:
            target += bias[:, None]
        if samples > 1:
            out[start : start + samples] = unfolded.inside(total, samples)
    return out


def _products(weights: list[Any], unfolded: _Unfolded, length: int, part: Any, total: Any) -> None:
    """The sum of one product for each row of the kernel."""
    first, *rest = unfolded.matrices(length)
    np.matmul(weights[0], first, out=total)
    for weight, matrix in zip(weights[1:], rest, strict=True):
        total += np.matmul(weight, matrix, out=part)


def _shifted_parts(weights: list[Any], unfolded: _Unfolded, length: int, part: Any, total: Any) -> None:
    """One product for all rows of the kernel, its parts shifted and added: for few outputs, whose products are thin."""
    outs, shifts = len(total), unfolded.shifts[1:]
    np.matmul(weights[0], unfolded.matrix[:, : part.shape[1]], out=part)
    total[...] = part[:outs, :length]
    for i, shift in enumerate(shifts, 1):
        total += part[i * outs : (i + 1) * outs, shift : shift + length]


def flat_weight_gradient(x: Any, g: Any, kernel: tuple[int, ...], pads: Any, dilation: tuple[int, ...]) -> Any:
    """The weight's gradient: each unfolded matrix times the gradients, summed over chunks of samples."""
    channels, outs = x.shape[1], g.shape[1]
    unfolded = _Unfolded(x, kernel, pads, dilation, g.shape[2:], deep=True)
    places = channels * kernel[1] * (kernel[0] if unfolded.whole else 1)
    total = np.zeros((unfolded.products, places, outs), x.dtype)
    part = np.empty((places, outs), x.dtype)
    flat = np.zeros((outs, unfolded.length(unfolded.count)), g.dtype)
    for start in range(0, len(x), unfolded.count):
        samples = min(unfolded.count, len(x) - start)
        if samples == 1:
            grads = g[start].reshape(outs, -1)
        else:
            unfolded.inside(flat, samples)[...] = g[start : start + samples]
            grads = flat[:, : unfolded.length(samples)]
        unfolded.load(start, samples)
        for sum_, matrix in zip(total, unfolded.matrices(grads.shape[1]), strict=True):
            sum_ += np.matmul(matrix, grads.T, out=part)
    return np.ascontiguousarray(total.reshape(*kernel, channels, outs).transpose(3, 2, 0, 1))
