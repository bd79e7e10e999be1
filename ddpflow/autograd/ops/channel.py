"""Moving channels into space and back, and normalising across channels; PyTorch's names and arguments."""

import math

from ddpflow.autograd.ops.padding import pad
from ddpflow.autograd.ops.pool import avg_pool2d, avg_pool3d
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["channel_shuffle", "local_response_norm", "pixel_shuffle", "pixel_unshuffle"]


def pixel_shuffle(input, upscale_factor):
    """``(*, C * r * r, H, W)`` to ``(*, C, H * r, W * r)`` with ``r = upscale_factor`` (Shi et al. 2016).

    Raises:
        ShapeError: When the channels do not divide by ``r * r``.
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor "
            f"{r}, got "
            f"shape {tuple(input.shape)}"
        )
    *lead, channels, height, width = input.shape
    outs = channels // (r * r)
    x = input.reshape(math.prod(lead), outs, r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(*lead, outs, height * r, width * r)


def pixel_unshuffle(input, downscale_factor):
    """``(*, C, H * r, W * r)`` to ``(*, C * r * r, H, W)``: the inverse of `pixel_shuffle`.

    Raises:
        ShapeError: When height or width do not divide by ``r``.
    """
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise ShapeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor {r}, got shape "
            f"{tuple(input.shape)}"
        )
    *lead, channels, height, width = input.shape
    x = input.reshape(math.prod(lead), channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return x.reshape(*lead, channels * r * r, height // r, width // r)


def channel_shuffle(input, groups):
    """Channels dealt out to ``groups`` in turn: ``(N, g * c, *)`` as ``(N, c * g, *)`` (Zhang et al. 2018).

    Raises:
        ShapeError: When the channels do not divide into the groups.
    """
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle(): channels of shape {tuple(input.shape)} must be divisible by groups, which is {groups}"
        )
    shape = tuple(input.shape)
    return input.reshape(shape[0], groups, shape[1] // groups, *shape[2:]).transpose(1, 2).reshape(*shape)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """The input over ``(k + alpha * mean of squares of neighbouring channels) ** beta`` (Krizhevsky et al. 2012).

    Args:
        input: Shape ``(N, C, ...)``, at least 3-d.
        size: Number of neighbouring channels.
        alpha: Factor of the mean.
        beta: Exponent.
        k: Added constant.

    Raises:
        ValueRangeError: When the input has fewer than 3 dimensions.
    """
    if input.ndim < 3:
        raise ValueRangeError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input * 1
    squares = (input * input).unsqueeze(1)
    shape = tuple(input.shape)
    if input.ndim == 3:
        mean = avg_pool2d(pad(squares, (0, 0, size // 2, (size - 1) // 2)), (size, 1), stride=1).squeeze(1)
    else:
        planes = squares.reshape(shape[0], 1, shape[1], shape[2], -1)
        mean = avg_pool3d(pad(planes, (0, 0, 0, 0, size // 2, (size - 1) // 2)), (size, 1, 1), stride=1)
        mean = mean.squeeze(1).reshape(*shape)
    return input / (mean * alpha + k).pow(beta)
