"""Convolutions and transposed convolutions over one, two and three axes.

Three operations are each other's gradients: the convolution, its adjoint in the input (the transposed convolution) and
its adjoint in the weight. All orders of differentiation follow.
"""

from ddpflow.autograd.autocast import in_half
from ddpflow.autograd.kernels import conv as kernels
from ddpflow.autograd.kernels.conv import Plan
from ddpflow.autograd.op import apply, op
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

_PLAIN = Plan((1,), ((0, 0),), (1,), 1)
_WIDE = Plan((2, 1), ((1, 1), (0, 2)), (1, 2), 2)


@op(
    samples=[
        ((2, 3, 5), (4, 3, 2), (4,), _PLAIN),
        ((2, 4, 5, 6), (6, 2, 3, 2), None, _WIDE),
        ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), None, Plan((1, 1, 1), ((1, 1), (0, 0), (0, 0)), (1, 1, 1), 1)),
    ],
    tensors=3,
)
def convolution(xp, input, weight, bias, plan, out_size=None):
    """Convolution of ``(N, C, *L)`` with weights ``(O, C / groups, *K)``; ``out_size`` can leave last positions out."""
    size, kernel = input.shape[2:], weight.shape[2:]
    out = kernels.forward(xp, input, weight, bias, plan, out_size or plan.output_size(size, kernel))
    axes = (0, *range(2, 2 + len(size)))
    return out, (
        lambda g: apply(xp, convolution_input, g, weight, size, plan),
        lambda g: apply(xp, convolution_weight, input, g, kernel, plan),
        lambda g: g.sum(axes),
    )


@op(samples=[((2, 4, 4), (4, 3, 2), (5,), _PLAIN), ((2, 6, 3, 6), (6, 2, 3, 2), (5, 6), _WIDE)], tensors=2)
def convolution_input(xp, input, weight, size, plan):
    """The adjoint of `convolution` in its input, of spatial shape ``size``: the transposed convolution."""
    kernel, out_size = weight.shape[2:], input.shape[2:]
    return kernels.input_gradient(xp, input, weight, size, plan), (
        lambda g: apply(xp, convolution, g, weight, None, plan, out_size),
        lambda g: apply(xp, convolution_weight, g, input, kernel, plan),
    )


@op(samples=[((2, 3, 5), (2, 4, 4), (2,), _PLAIN), ((2, 4, 5, 6), (2, 6, 3, 6), (3, 2), _WIDE)], tensors=2)
def convolution_weight(xp, input, other, kernel, plan):
    """The adjoint of `convolution` in its weight, of kernel shape ``kernel``."""
    size, out_size = input.shape[2:], other.shape[2:]
    return kernels.weight_gradient(xp, input, other, kernel, plan), (
        lambda g: apply(xp, convolution_input, other, g, size, plan),
        lambda g: apply(xp, convolution, input, g, None, plan, out_size),
    )


def _tuple(value, axes, name):
    """One number for each axis."""
    if isinstance(value, int):
        return (value,) * axes
    values = tuple(value)
    if len(values) == 1:
        return values * axes
    if len(values) != axes:
        raise ShapeError(f"{name} needs one number or {axes}, got {values}")
    return values


def _check(name, input, weight, bias, axes, channels, outs, unbatched):
    if weight.ndim != axes + 2:
        raise ShapeError(f"{name}(): weight needs {axes + 2} dimensions, got shape {tuple(weight.shape)}")
    if input.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"Expected {axes + 1}D (unbatched) or {axes + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    if input.array.dtype != weight.array.dtype:
        raise ShapeError(f"{name}(): input ({input.dtype}) and weight ({weight.dtype}) should be the same dtype")
    if input.shape[0 if unbatched else 1] != channels:
        raise ShapeError(
            f"{name}(): weight of size {list(weight.shape)} expected input {list(input.shape)} to have {channels} "
            f"channels, "
            f"but got {input.shape[0 if unbatched else 1]} channels instead"
        )
    if bias is not None and tuple(bias.shape) != (outs,):
        raise ShapeError(f"{name}(): bias needs shape ({outs},), got {tuple(bias.shape)}")


def _same_pads(kernel, stride, dilation):
    """PyTorch's ``padding='same'``: an odd remainder goes after."""
    if any(s != 1 for s in stride):
        raise ShapeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((t // 2, t - t // 2) for t in totals)


def _convolve(name, axes, input, weight, bias, stride, padding, dilation, groups):
    stride, dilation = _tuple(stride, axes, "stride"), _tuple(dilation, axes, "dilation")
    unbatched = input.ndim == axes + 1
    if groups <= 0 or weight.shape[0] % groups:
        raise ShapeError(f"{name}(): {weight.shape[0]} output channels do not divide into {groups} groups")
    _check(name, input, weight, bias, axes, weight.shape[1] * groups, weight.shape[0], unbatched)
    kernel, size = tuple(weight.shape[2:]), tuple(input.shape[-axes:])
    if padding == "same":
        pads = _same_pads(kernel, stride, dilation)
    elif padding == "valid":
        pads = ((0, 0),) * axes
    elif isinstance(padding, str):
        raise ValueRangeError(f"{name}(): padding is {padding!r}; it can be 'same', 'valid', a number or numbers")
    else:
        pads = tuple((p, p) for p in _tuple(padding, axes, "padding"))
    if min(stride) < 1 or min(dilation) < 1 or min(min(p) for p in pads) < 0:
        raise ShapeError(f"{name}(): stride {stride} and dilation {dilation} must be positive, padding not negative")
    for n, k, d, (lo, hi) in zip(size, kernel, dilation, pads, strict=True):
        if n + lo + hi < d * (k - 1) + 1:
            raise ShapeError(
                f"Calculated padded input size per channel: {n + lo + hi}. Kernel size: {d * (k - 1) + 1}. Kernel "
                f"size can't "
                f"be greater than actual input size (input {tuple(input.shape)}, weight {tuple(weight.shape)})"
            )
    plan = Plan(stride, pads, dilation, groups)
    if unbatched:
        return convolution(input.unsqueeze(0), weight, bias, plan).squeeze(0)
    return convolution(input, weight, bias, plan)


def _transpose(name, axes, input, weight, bias, stride, padding, output_padding, groups, dilation):
    stride, dilation = _tuple(stride, axes, "stride"), _tuple(dilation, axes, "dilation")
    padding, extra = _tuple(padding, axes, "padding"), _tuple(output_padding, axes, "output_padding")
    unbatched = input.ndim == axes + 1
    if groups <= 0 or weight.shape[0] % groups:
        raise ShapeError(f"{name}(): {weight.shape[0]} input channels do not divide into {groups} groups")
    _check(name, input, weight, bias, axes, weight.shape[0], weight.shape[1] * groups, unbatched)
    if any(e >= max(s, d) or e < 0 for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ShapeError(
            f"output padding must be smaller than either stride or dilation, but got {extra}, {stride}, {dilation}"
        )
    kernel, size = weight.shape[2:], input.shape[-axes:]
    rows = zip(size, kernel, stride, padding, dilation, extra, strict=True)
    out = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in rows)
    if min(out) < 1:
        raise ShapeError(f"{name}(): the output of an input {tuple(input.shape)} would have the size {out}")
    plan = Plan(stride, tuple((p, p) for p in padding), dilation, groups)
    result = convolution_input(input.unsqueeze(0) if unbatched else input, weight, out, plan)
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * axes)
    return result.squeeze(0) if unbatched else result


@in_half
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over one axis: input ``(N, C, L)`` or ``(C, L)``; see `conv2d`."""
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@in_half
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution (cross-correlation) over two axes (PyTorch's ``F.conv2d``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        weight: Shape ``(O, C / groups, kernel height, kernel width)``.
        bias: Shape ``(O,)``, or None.
        stride: Steps of the window, a number or a pair.
        padding: Zeros on both sides, a number or a pair; ``"valid"`` is none, ``"same"`` keeps the size (stride 1
            only).
        dilation: Steps inside the window, a number or a pair.
        groups: Groups of channels that do not see each other.

    Raises:
        ShapeError: When the shapes do not fit or the kernel is larger than the padded input.
        ValueRangeError: For an unknown word as padding.
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@in_half
def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over three axes: input ``(N, C, D, H, W)`` or ``(C, D, H, W)``; see `conv2d`."""
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@in_half
def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Transposed convolution over one axis; see `conv_transpose2d`."""
    return _transpose("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@in_half
def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint of `conv2d` as a layer (PyTorch's ``F.conv_transpose2d``).

    Args:
        input: Shape ``(N, C, H, W)``, or ``(C, H, W)``.
        weight: Shape ``(C, O / groups, kernel height, kernel width)``.
        bias: Shape ``(O,)``, or None.
        stride: Of the convolution whose adjoint this is.
        padding: Likewise.
        output_padding: Added to one side of the output's size.
        groups: Groups of channels that do not see each other.
        dilation: Steps inside the window.

    Raises:
        ShapeError: When the shapes do not fit.
    """
    return _transpose("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@in_half
def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Transposed convolution over three axes; see `conv_transpose2d`."""
    return _transpose("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)
