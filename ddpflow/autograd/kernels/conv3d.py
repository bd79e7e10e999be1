"""Convolution over three axes for NumPy: one over two axes, of images whose channels are the planes that meet.

What a kernel of depth k sees of a volume at one depth are k planes. Put side by side as channels, for each depth of the
output as an image of its own, they leave a convolution over height and width.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ddpflow.autograd.kernels.conv_flat import flat_forward, flat_weight_gradient

__all__ = ["forward_3d", "weight_gradient_3d"]

CHUNK = 1024 * 1024  # elements of the planes side by side at a time


def forward_3d(x: Any, w: Any, bias: Any, plan: Any, out_size: tuple[int, ...]) -> Any:
    """The convolution of ``(N, C, D, H, W)`` with ``(O, C / groups, KD, KH, KW)``, plus a bias for each output."""
    out = np.empty((len(x), len(w), *out_size), x.dtype)
    taps = w.reshape(len(w), -1, *w.shape[3:])
    for part, images in _images(x, w.shape[2], plan, out_size[0]):
        found = flat_forward(images, taps, bias, plan.plane(), out_size[1:])
        out[part] = found.reshape(-1, out_size[0], len(w), *out_size[1:]).swapaxes(1, 2)
    return out


def weight_gradient_3d(x: Any, g: Any, kernel: tuple[int, ...], plan: Any) -> Any:
    """The adjoint of `forward_3d` in the weight, of kernel shape ``kernel``."""
    outs, depth, size = g.shape[1], g.shape[2], g.shape[3:]
    w = np.zeros((outs, x.shape[1] // plan.groups * kernel[0], *kernel[1:]), x.dtype)
    for part, images in _images(x, kernel[0], plan, depth):
        grads = g[part].swapaxes(1, 2).reshape(-1, outs, *size)
        w += flat_weight_gradient(images, grads, kernel[1:], plan.plane())
    return w.reshape(outs, -1, *kernel)


def _images(x: Any, deep: int, plan: Any, out: int) -> Iterator[tuple[slice, Any]]:
    """Some samples at a time, and their images ``(samples * out, C * deep, H, W)``."""
    channels, _, *size = x.shape[1:]
    for part in _parts(x, deep, out):
        images = np.zeros((part.stop - part.start, out, channels, deep, *size), x.dtype)
        for i, planes, places in _meetings(x[part], deep, plan, out):
            images[:, places, :, i] = planes
        yield part, images.reshape(-1, channels * deep, *size)


def _parts(x: Any, deep: int, out: int) -> Iterator[slice]:
    """Samples, as many at a time as CHUNK allows."""
    step = max(1, CHUNK // max(1, out * deep * x[0, :, 0].size))
    return (slice(start, min(len(x), start + step)) for start in range(0, len(x), step))


def _meetings(x: Any, deep: int, plan: Any, out: int) -> Iterator[tuple[int, Any, slice]]:
    """Each place along the kernel's depth, the planes ``(N, places, C, H, W)`` that it meets, and for which outputs."""
    stride, dilation, before = plan.stride[0], plan.dilation[0], plan.pads[0][0]
    for i in range(deep):
        shift = i * dilation - before  # output z sees plane z * stride + shift
        first = max(0, -(shift // stride))
        planes = x[:, :, first * stride + shift :: stride].swapaxes(1, 2)[:, : max(0, out - first)]
        yield i, planes, slice(first, first + planes.shape[1])
