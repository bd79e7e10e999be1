"""Convolution over two axes for NumPy: unfold the width only, and let a shift of rows be a shift of the memory.

For each column of the kernel the input is copied once, shifted, with rows as long as the output's; zeros stand above,
below and between the samples. Then what a row of the kernel sees is one contiguous run of these copies: a matrix
product for each row of the kernel, on a shifted view of the same matrix. With a stride of s rows, every s-th row of the
input makes a matrix of its own. For one sample at a time the product is the output as it lies; for more, what falls
between the samples is left behind. A few samples, or groups of one sample, at a time stay in the cache.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["flat_forward", "flat_weight_gradient"]

CHUNK = 160 * 1024  # elements of the unfolded input at a time, about what the second-level cache holds beside the rest
LONG = 512  # places at a time at least, without groups: shorter products cost more
DEEP = 160 * 1024  # the weight's gradient gains from one product as long as a sample unfolded whole is not above this
NARROW = 64  # below this many rows a matrix product is too thin: unfold the whole kernel, if there are no groups


class _Unfolded:
    """The input, a chunk of samples at a time, as the matrices that each product of the convolution takes.

    Attributes:
        count: Samples at a time.
        taps: For each row of the kernel, which phase of the stride it meets, and the first of its places there.
        matrix: For each phase the input with its width unfolded, ``(groups, columns * channels, places)``.
        whole: Whether the kernel is unfolded whole, for one product; else there is one for each of its rows.
        copies: Pairs of places that hold the same elements: in the matrix, and in some samples of the input.
    """

    def __init__(self, x: Any, kernel: tuple[int, ...], plan: Any, out: Any, whole: bool) -> None:
        samples, groups, channels, height, width = x.shape
        high, wide = kernel
        (down, step), (top, left) = plan.stride, (pad for pad, _ in plan.pads)
        self.x, self.out = x, out
        # row i of the kernel meets, of the padded rows, the phase i * dilation % down from the line on that divmod says
        meets = [divmod(i * plan.dilation[0], down) for i in range(high)]
        phases = sorted({phase for _, phase in meets})
        first = {phase: max(0, -(-(top - phase) // down)) for phase in phases}  # its first line that is the input's
        rows = {phase: slice(first[phase] * down + phase - top, height, down) for phase in phases}
        ends = [first[phase] + len(range(*rows[phase].indices(height))) for phase in phases]
        self.lines = max(out[0], *ends, *[out[0] + line - first[phase] for line, phase in meets])  # of a sample
        row = out[1]
        self.sample = self.lines * row
        self.taps = [(phases.index(phase), line * row) for line, phase in meets]
        places = groups * channels * high * wide
        self.whole = whole
        unfolded = places if whole else len(phases) * places // high
        least = LONG if groups == 1 else 0
        self.count = max(1, min(samples, max(CHUNK // unfolded, least) // max(1, self.sample)))
        size = max(self.length(self.count) + self.taps[-1][1], (max(first.values()) + self.count * self.lines) * row)
        taps = np.zeros((len(phases), groups, wide, channels, size), x.dtype)
        self.matrix = taps.reshape(len(phases), groups, -1, size)
        self.copies = []
        for j in range(wide):
            shift = j * plan.dilation[1] - left  # column c of the tap is column c * step + shift of the input
            start = max(0, -(shift // step))
            end = max(start, min(row, (width - 1 - shift) // step + 1))
            columns = slice(start * step + shift, end * step + shift, step)
            for tap, phase in zip(taps[:, :, j], phases, strict=True):
                lines = tap[..., first[phase] * row : (first[phase] + self.count * self.lines) * row]
                lines = lines.reshape(groups, channels, self.count, self.lines, row).transpose(2, 0, 1, 3, 4)
                inner = lines[..., : len(range(*rows[phase].indices(height))), start:end]
                self.copies.append((inner, (..., rows[phase], columns)))
        if whole:
            self.all = np.empty((groups, high, wide * channels, self.length(self.count)), x.dtype)

    def length(self, samples: int) -> int:
        """Output places of so many samples: to the end of the last one's last row."""
        return int((samples - 1) * self.sample + self.out[0] * self.out[1])

    def load(self, start: int, samples: int) -> None:
        """Take in samples."""
        part = self.x[start : start + samples]
        for inner, seen in self.copies:
            inner[:samples] = part[seen]

    def matrices(self, length: int) -> list[Any]:
        """One matrix ``(groups, columns * channels, length)`` for each product."""
        rows = [self.matrix[phase][..., shift : shift + length] for phase, shift in self.taps]
        if not self.whole:
            return rows
        for i, row in enumerate(rows):
            self.all[:, i, :, :length] = row
        return [self.all.reshape(len(self.all), -1, self.all.shape[-1])[..., :length]]

    def inside(self, flat: Any, samples: int) -> Any:
        """The real ones of output places ``(groups, channels, length)``, as ``(samples, groups, channels, *out)``."""
        item, (high, wide) = flat.itemsize, self.out
        strides = (self.sample * item, *flat.strides[:2], wide * item, item)
        return np.ndarray((samples, *flat.shape[:2], high, wide), flat.dtype, flat, 0, strides)

    def gradients(self, g: Any) -> Iterator[tuple[int, int, Any]]:
        """Samples of the output's gradient ``(N, groups, O, *out)``: the first, how many, ``(groups, O, length)``."""
        groups, outs = g.shape[1:3]
        flat = np.zeros((groups, outs, self.length(self.count)), g.dtype)
        for start in range(0, len(g), self.count):
            samples = min(self.count, len(g) - start)
            if samples == 1:
                yield start, 1, g[start].reshape(groups, outs, -1)
            else:
                self.inside(flat, samples)[...] = g[start : start + samples]
                yield start, samples, flat[..., : self.length(samples)]

    def weights(self, w: Any) -> Any:
        """The weight by products, each ``(groups, outputs, columns * channels)``."""
        groups, outs, channels, high, wide = w.shape
        products = 1 if self.whole else high
        taps = w.reshape(groups, outs, channels, high // products, products, wide)
        if w.strides[1] > w.strides[2]:
            return np.ascontiguousarray(taps.transpose(4, 0, 1, 3, 5, 2)).reshape(products, groups, outs, -1)
        # weights that are transposed themselves: NumPy copies them several times quicker in their own order
        taps = np.ascontiguousarray(taps.transpose(4, 0, 3, 5, 2, 1))
        return taps.reshape(products, groups, -1, outs).swapaxes(2, 3)


def flat_forward(x: Any, w: Any, bias: Any, plan: Any, out_size: tuple[int, ...]) -> Any:
    """The convolution of ``(N, C, H, W)`` with ``(O, C / groups, KH, KW)``, plus a bias for each output (or None)."""
    out = np.empty((len(x), len(w), *out_size), x.dtype)
    w = w.reshape(plan.groups, -1, *w.shape[1:])
    bias = None if bias is None else bias.reshape(plan.groups, -1, 1)
    for part, inputs, outputs in _groups(x, out, w.shape[4], plan):
        _forward(inputs, w[part], None if bias is None else bias[part], plan, outputs)
    return out


def _groups(x: Any, out: Any, wide: int, plan: Any) -> Iterator[tuple[slice, Any, Any]]:
    """Groups, as many at a time as stay in the cache: which, and both arrays as ``(N, groups, channels, H, W)``."""
    inputs, outputs = (a.reshape(len(a), plan.groups, -1, *a.shape[2:]) for a in (x, out))
    step = max(1, CHUNK // max(1, inputs[0, 0].size * wide // plan.stride[1]))
    for start in range(0, plan.groups, step):
        part = slice(start, min(plan.groups, start + step))
        yield part, inputs[:, part], outputs[:, part]


def _forward(x: Any, w: Any, bias: Any, plan: Any, out: Any) -> None:
    """The convolution of ``(N, groups, C, H, W)`` with ``(groups, O, C, KH, KW)``, plus a bias ``(groups, O, 1)``."""
    groups, outs = w.shape[:2]
    unfolded = _Unfolded(x, w.shape[3:], plan, out.shape[3:], _narrow(x, w.shape[4]))
    weights = unfolded.weights(w)
    steps, add_up = list(weights), _products
    if outs < NARROW and len(weights) > 1:
        steps, add_up = _by_phase(weights, unfolded), _shifted_parts
    total = np.empty((groups, outs, 0), x.dtype)
    for start in range(0, len(x), unfolded.count):
        samples = min(unfolded.count, len(x) - start)
        length = unfolded.length(samples)
        if total.shape[2] != length and samples > 1:
            total = np.empty((groups, outs, length), x.dtype)
        unfolded.load(start, samples)
        target = out[start].reshape(groups, outs, -1) if samples == 1 else total
        add_up(steps, unfolded, target)
        if bias is not None:
            target += bias
        if samples > 1:
            out[start : start + samples] = unfolded.inside(total, samples)


def _narrow(x: Any, wide: int) -> bool:
    """Whether a product for each row of the kernel is too thin."""
    return bool(x.shape[1] == 1 and x.shape[2] * wide < NARROW)


def _products(steps: list[Any], unfolded: _Unfolded, total: Any) -> None:
    """The sum of one product for each row of the kernel."""
    first, *rest = unfolded.matrices(total.shape[2])
    np.matmul(steps[0], first, out=total)
    part = np.empty_like(total) if rest else total
    for weight, matrix in zip(steps[1:], rest, strict=True):
        total += np.matmul(weight, matrix, out=part)


def _by_phase(weights: Any, unfolded: _Unfolded) -> list[Any]:
    """For each phase: the shifts of the kernel's rows that meet it, their weights as one matrix, and the product."""
    _, groups, outs, places = weights.shape
    steps = []
    for phase in range(len(unfolded.matrix)):
        rows, shifts = zip(*[(i, shift) for i, (p, shift) in enumerate(unfolded.taps) if p == phase], strict=True)
        thick = weights[list(rows)].swapaxes(0, 1).reshape(groups, len(rows) * outs, places)
        room = np.empty((groups, len(rows) * outs, unfolded.length(unfolded.count) + shifts[-1]), weights.dtype)
        steps.append((shifts, thick, room))
    return steps


def _shifted_parts(steps: list[Any], unfolded: _Unfolded, total: Any) -> None:
    """One product for all rows of a phase, its parts shifted and added: for few outputs, whose products are thin."""
    _, outs, length = total.shape
    fresh = True
    for (shifts, thick, room), matrix in zip(steps, unfolded.matrix, strict=True):
        reach = length + shifts[-1]
        part = np.matmul(thick, matrix[..., :reach], out=room[..., :reach])
        for i, shift in enumerate(shifts):
            piece = part[:, i * outs : (i + 1) * outs, shift : shift + length]
            if fresh:
                total[...] = piece
                fresh = False
            else:
                total += piece


def flat_weight_gradient(x: Any, g: Any, kernel: tuple[int, ...], plan: Any) -> Any:
    """The weight's gradient: each unfolded matrix times the gradients, summed over chunks of samples."""
    w = np.empty((plan.groups, g.shape[1] // plan.groups, x.shape[1] // plan.groups, *kernel), x.dtype)
    for part, inputs, grads in _groups(x, g, kernel[1], plan):
        _weight_gradient(inputs, grads, plan, w[part])
    return w.reshape(-1, *w.shape[2:])


def _weight_gradient(x: Any, g: Any, plan: Any, out: Any) -> None:
    """The gradient ``(groups, O, C, KH, KW)``, into ``out``."""
    groups, outs, channels, *kernel = out.shape
    places = channels * kernel[0] * kernel[1]
    whole = _narrow(x, kernel[1]) or (groups == 1 and places * g[0, 0, 0].size < DEEP)
    unfolded = _Unfolded(x, kernel, plan, g.shape[3:], whole)
    products = 1 if whole else kernel[0]
    total = np.zeros((products, groups, places // products, outs), x.dtype)
    part = np.empty_like(total[0])
    for start, samples, grads in unfolded.gradients(g):
        unfolded.load(start, samples)
        for sum_, matrix in zip(total, unfolded.matrices(grads.shape[2]), strict=True):
            sum_ += np.matmul(matrix, grads.swapaxes(1, 2), out=part)
    taps = total.reshape(products, groups, kernel[0] // products, kernel[1], channels, outs)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            out[..., i, j] = taps[i % products, :, i // products, j].swapaxes(1, 2)
