"""Unfold and fold: the windows of an image as columns, and columns added back to an image."""

import math

from ddpflow.autograd.kernels import pool as kernels
from ddpflow.autograd.kernels.pool import Window
from ddpflow.autograd.op import apply, op
from ddpflow.errors import ShapeError

__all__ = ["fold", "unfold"]

_WINDOW = Window((2, 3), (1, 2), (0, 1), (2, 1), (4, 5), (2, 3))


@op(samples=[((2, 3, 4, 5), _WINDOW)], tensors=1)
def unfold_columns(xp, input, window):
    """The windows of ``(N, C, *L)`` as columns ``(N, C * places, positions)``."""
    out = kernels.unfold(xp, input, window)
    return out, lambda g: apply(xp, fold_columns, g, window)


@op(samples=[((2, 18, 6), _WINDOW)], tensors=1)
def fold_columns(xp, input, window):
    """The adjoint of `unfold_columns`: columns added back to where they were taken from."""
    out = kernels.fold(xp, input, window)
    return out, lambda g: apply(xp, unfold_columns, g, window)


def _pair(value, name):
    values = (value, value) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= 2
    if len(values) != 2:
        raise ShapeError(f"{name} must be an int or a pair, got {values}")
    return values


def _window(size, kernel_size, dilation, padding, stride):
    kernel, dilation = _pair(kernel_size, "kernel_size"), _pair(dilation, "dilation")
    padding, stride = _pair(padding, "padding"), _pair(stride, "stride")
    if min(kernel) < 1 or min(dilation) < 1 or min(stride) < 1 or min(padding) < 0:
        raise ShapeError(
            f"kernel size {kernel}, dilation {dilation} and stride {stride} must be positive, padding {padding} not "
            f"negative"
        )
    axes = zip(size, kernel, stride, padding, dilation, strict=True)
    out = tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes])
    if min(out) < 1:
        raise ShapeError(f"a window of {kernel} does not fit an input of {size} (array of sliding blocks {out})")
    return Window(kernel, stride, padding, dilation, tuple(size), out)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Sliding windows of a batch of images as columns (PyTorch's ``F.unfold``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        kernel_size: Of the window, a number or a pair.
        dilation: Steps inside it.
        padding: Zeros on both sides.
        stride: Its steps.

    Returns:
        Shape ``(N, C * kernel places, positions)``.

    Raises:
        ShapeError: When the window does not fit.
    """
    if input.ndim not in (3, 4):
        raise ShapeError(f"unfold(): expected 3D or 4D input, got shape {tuple(input.shape)}")
    window = _window(tuple(input.shape[-2:]), kernel_size, dilation, padding, stride)
    if input.ndim == 3:
        return unfold_columns(input.unsqueeze(0), window).squeeze(0)
    return unfold_columns(input, window)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns of windows added back to images of ``output_size`` (PyTorch's ``F.fold``), the adjoint of `unfold`.

    Args:
        input: Shape ``(N, C * kernel places, positions)``, or without N.
        output_size: Height and width of the images, a number or a pair.
        kernel_size: Of the window, a number or a pair.
        dilation: Steps inside it.
        padding: Zeros on both sides.
        stride: Its steps.

    Returns:
        Shape ``(N, C, H, W)``.

    Raises:
        ShapeError: When the numbers of columns or places do not fit.
    """
    if input.ndim not in (2, 3):
        raise ShapeError(f"fold(): expected 2D or 3D input, got shape {tuple(input.shape)}")
    window = _window(_pair(output_size, "output_size"), kernel_size, dilation, padding, stride)
    places, positions = math.prod(window.kernel), math.prod(window.out)
    if input.shape[-2] % places or input.shape[-1] != positions:
        raise ShapeError(
            f"fold(): an input of shape {tuple(input.shape)} for windows of {places} places at {positions} positions"
        )
    if input.ndim == 2:
        return fold_columns(input.unsqueeze(0), window).squeeze(0)
    return fold_columns(input, window)
