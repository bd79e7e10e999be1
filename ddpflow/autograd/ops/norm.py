"""Normalisation layers' functions: layer, RMS, group, instance and batch norm."""

import math

import numpy as np

from ddpflow.autograd.kernels import norm as kernels
from ddpflow.autograd.kernels.batch_norm import batch_norm as batch_norm_of
from ddpflow.autograd.kernels.batch_norm import batch_norm_backward
from ddpflow.autograd.op import Floats, op
from ddpflow.autograd.ops.dims import is_half, need_floating, need_one_dtype
from ddpflow.device import mark_modified, unwrap
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


@op(samples=[((3, 4), (4,), (4,), 1, 1e-5), ((2, 3, 4), None, None, 2, 1e-5)], tensors=3, name="layer_norm")
def _layer_norm(xp, input, weight, bias, axes, eps):
    """Layer normalisation over the last axes; see `layer_norm`."""
    y, mean, rstd = kernels.layer_norm(xp, input, weight, bias, axes, eps)
    return y, lambda g: kernels.layer_norm_backward(xp, g, input, weight, mean, rstd, axes)


def _check_normalized(name, input, normalized_shape, weight, bias=None):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise ShapeError(f"{name}(): normalized_shape needs at least one dimension")
    if tuple(input.shape[-len(shape) :]) != shape or input.ndim < len(shape):
        raise ShapeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], "
            f"but got input of size {tuple(input.shape)}"
        )
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ShapeError(f"{name}(): {what} has shape {tuple(tensor.shape)}, normalized_shape is {shape}")
    return len(shape)


def _check_types(name, input, *others):
    """Floating inputs only, and parameters of their dtype; those of half inputs may be float32."""
    need_floating(name, input.array)
    for other in others:
        if other is not None and other.array.dtype is not input.array.dtype:
            if not is_half(input.array.dtype) or other.array.dtype != np.float32:
                need_one_dtype(name, input.array, other.array)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Normalise over the last dimensions to mean 0 and variance 1, then scale and shift (PyTorch's ``F.layer_norm``).

    Args:
        input: Shape ``(*, *normalized_shape)``; half types are computed in float32.
        normalized_shape: The dimensions to normalise over.
        weight: Scale in the shape ``normalized_shape``, or None.
        bias: Shift in the same shape, or None.
        eps: Added to the variance.

    Raises:
        ShapeError: When the shapes do not fit.
    """
    axes = _check_normalized("layer_norm", input, normalized_shape, weight, bias)
    _check_types("layer_norm", input, weight, bias)
    return _layer_norm(input, weight, bias, axes, eps)


@op(samples=[((3, 4), (4,), 1, 1e-5), ((2, 3, 4), None, 2, 1e-5)], tensors=2, name="rms_norm")
def _rms_norm(xp, input, weight, axes, eps):
    """Division by the root of the mean square over the last axes; see `rms_norm`."""
    over = tuple(range(input.ndim - axes, input.ndim))
    lead = tuple(range(input.ndim - axes))
    wide = input.astype(xp.float32) if input.dtype.itemsize == 2 else input
    scale = 1 / xp.sqrt((wide * wide).mean(over, keepdims=True) + eps)
    y = wide * scale
    if weight is not None:
        y = y * weight

    def vjp(g):
        scaled = g if weight is None else g * weight
        normal = input * scale
        gx = (scaled - normal * (scaled * normal).mean(over, keepdims=True)) * scale
        return gx, None if weight is None else (g * normal).sum(lead)

    return (y if y.dtype == input.dtype else y.astype(input.dtype)), vjp


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divide by the root of the mean square over the last dimensions, then scale (PyTorch's ``F.rms_norm``).

    Args:
        input: Shape ``(*, *normalized_shape)``.
        normalized_shape: The dimensions to normalise over.
        weight: Scale in the shape ``normalized_shape``, or None.
        eps: Added to the mean square; None takes the dtype's machine epsilon.

    Raises:
        ShapeError: When the shapes do not fit.
    """
    axes = _check_normalized("rms_norm", input, normalized_shape, weight)
    need_floating("rms_norm", input.array)
    if eps is None:
        dtype = input.array.dtype
        eps = float(np.finfo(np.float32 if dtype.itemsize == 2 else dtype).eps)
    return _rms_norm(input, weight, axes, eps)


def _batch_norm_composite(xp, input, weight, bias, eps):
    return batch_norm_of(xp, input, weight, bias, eps)


@op(
    samples=[((4, 3), (3,), (3,), 1e-5), ((2, 3, 2, 2), None, None, 1e-5)],
    tensors=3,
    composite=_batch_norm_composite,
)
def batch_norm_training(xp, input, weight, bias, eps):
    """Batch normalisation by the batch's own statistics: the output, and each channel's mean and biased variance."""
    y, mean, var = batch_norm_of(xp, input, weight, bias, eps)

    def vjp(g, gmean, gvar):
        if g is None:
            gx, gw, gb = xp.zeros(input.shape, input.dtype), None, None
        else:
            gx, gw, gb = batch_norm_backward(xp, g, input, weight, mean, var, eps)
        column, count = (1, -1, *[1] * (input.ndim - 2)), input.size // input.shape[1]
        if gmean is not None:
            gx = gx + (gmean / count).reshape(column)
        if gvar is not None:
            gx = gx + (input - mean.reshape(column)) * (gvar * (2 / count)).reshape(column)
        return gx, gw, gb

    return (y, mean, var), vjp


@op(
    samples=[
        ((4, 3), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), 1e-5),
        ((2, 3, 4), None, None, (3,), Floats((3,), 0.5, 2.0), 1e-5),
    ],
    tensors=5,
)
def batch_norm_inference(xp, input, weight, bias, mean, var, eps):
    """Batch normalisation by given statistics; these get no gradient."""
    column = (1, -1, *[1] * (input.ndim - 2))
    axes = (0, *range(2, input.ndim))
    scale = 1 / xp.sqrt(var + eps)
    shift = -mean * scale
    factor = scale if weight is None else scale * weight
    offset = shift if weight is None else shift * weight
    if bias is not None:
        offset = offset + bias
    out = input * factor.reshape(column) + offset.reshape(column)
    return (out if out.dtype == input.dtype else out.astype(input.dtype)), (
        lambda g: g * factor.reshape(column),
        lambda g: (g * (input * scale.reshape(column) + shift.reshape(column))).sum(axes),
        lambda g: g.sum(axes),
        None,
        None,
    )


def batch_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    """Normalise each channel over the batch, then scale and shift (PyTorch's ``F.batch_norm``).

    In training the batch's statistics are used (variance over n) and the running ones move towards them in place:
    ``running = (1 - momentum) * running + momentum * batch``, where the variance is the unbiased one (over n - 1).

    Args:
        input: Shape ``(N, C, ...)``.
        running_mean: Shape ``(C,)``, or None.
        running_var: Shape ``(C,)``, or None.
        weight: Scale of each channel, or None.
        bias: Shift of each channel, or None.
        training: Use the batch's statistics.
        momentum: Weight of the new batch in the running statistics.
        eps: Added to the variance.

    Raises:
        ShapeError: When the shapes do not fit, or statistics are missing in evaluation.
        ValueRangeError: In training with only one value per channel.
    """
    if not input.numel():
        return input * 1
    if input.ndim < 2:
        raise ShapeError(f"batch_norm(): expected an input (N, C, ...), got shape {tuple(input.shape)}")
    _check_types("batch_norm", input, weight, bias, running_mean, running_var)
    channels = input.shape[1]
    for what, tensor in (
        ("running_mean", running_mean),
        ("running_var", running_var),
        ("weight", weight),
        ("bias", bias),
    ):
        if tensor is not None and tuple(tensor.shape) != (channels,):
            raise ShapeError(f"{what} should contain {channels} elements, not shape {tuple(tensor.shape)}")
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("Expected running_mean and running_var to be defined when training=False")
        return batch_norm_inference(input, weight, bias, running_mean, running_var, eps)
    count = input.numel() // channels
    if count == 1:
        raise ValueRangeError(
            f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}"
        )
    out, mean, var = batch_norm_training(input, weight, bias, eps)
    _move(running_mean, mean.array, momentum)
    _move(running_var, var.array, momentum, count / (count - 1))
    return out


def _move(running, batch, momentum, correction=1.0):
    """Moves a running statistic towards the batch's, in place."""
    if running is None:
        return
    array = unwrap(running)
    array *= 1 - momentum
    array += (momentum * correction) * batch
    mark_modified(running)


def _scaled(out, weight, bias):
    column = (1, -1, *[1] * (out.ndim - 2))
    if weight is not None:
        out = out * weight.to(out.dtype).reshape(column)
    return out if bias is None else out + bias.to(out.dtype).reshape(column)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Normalise groups of channels of each sample, then scale and shift channels (PyTorch's ``F.group_norm``).

    Args:
        input: Shape ``(N, C, ...)``.
        num_groups: How many groups; it divides C.
        weight: Scale of each channel, or None.
        bias: Shift of each channel, or None.
        eps: Added to the variance.

    Raises:
        ShapeError: When the channels do not divide into the groups.
    """
    if input.ndim < 2:
        raise ShapeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    _check_types("group_norm", input, weight, bias)
    shape = tuple(input.shape)
    if num_groups <= 0 or shape[1] % num_groups:
        raise ShapeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {shape} and "
            f"num_groups={num_groups}"
        )
    if not input.numel():
        return _scaled(input * 1, weight, bias)
    rows = input.reshape(shape[0], num_groups, math.prod(shape[1:]) // num_groups)
    return _scaled(_layer_norm(rows, None, None, 1, eps).reshape(*shape), weight, bias)


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Normalise each channel of each sample (PyTorch's ``F.instance_norm``); arguments as `batch_norm`.

    With ``use_input_stats=False`` the running statistics are used instead; with it, they move towards the mean over the
    samples of each sample's statistics.

    Raises:
        ShapeError: When the shapes do not fit.
        ValueRangeError: When there is only one value per channel and sample.
    """
    shape = tuple(input.shape)
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 2:
        raise ShapeError(f"instance_norm(): expected an input (N, C, ...), got shape {shape}")
    count = math.prod(shape[2:])
    if count == 1:
        raise ValueRangeError(f"Expected more than 1 spatial element when training, got input size {shape}")
    channels = input.reshape(1, shape[0] * shape[1], *shape[2:])
    out, mean, var = batch_norm_training(channels, None, None, eps)
    _move(running_mean, mean.array.reshape(shape[:2]).mean(0), momentum)
    _move(running_var, var.array.reshape(shape[:2]).mean(0), momentum, count / max(count - 1, 1))
    return _scaled(out.reshape(*shape), weight, bias)
