"""Dropout: random zeros in training, nothing in evaluation."""

from ddpflow.autograd.kernels import dropout as kernels
from ddpflow.autograd.op import Bools, op
from ddpflow.autograd.ops.dims import need_floating
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.random import stream

__all__ = [
    "alpha_dropout",
    "draw_keep",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]


@op(samples=[((3, 4), Bools((3, 4)), 1.5), ((2, 3, 2), Bools((2, 3, 1)), 2.0)], tensors=2)
def keep_scaled(xp, input, keep, scale):
    """The input times ``scale`` where ``keep`` is True, 0 elsewhere; ``keep`` broadcasts."""
    return kernels.keep_scaled(xp, input, keep, scale), (lambda g: kernels.keep_scaled(xp, g, keep, scale), None)


@op(samples=[((3, 4), 0.5)], differentiable=False)
def draw_keep(xp, input, p, drop_axes=None):
    """A mask that is False with probability p; beyond the first ``drop_axes`` axes all share one draw."""
    shape = input.shape if drop_axes is None else input.shape[:drop_axes] + (1,) * (input.ndim - drop_axes)
    return xp.asarray(stream(xp).random(shape, dtype="float32") >= p)


def _dropped(name, input, p, training, inplace, drop_axes=None):
    if not 0.0 <= p <= 1.0:
        raise ValueRangeError(f"{name} probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or not input.numel():
        return input if inplace else input * 1
    need_floating(name, input.array)
    out = input * 0.0 if p == 1.0 else keep_scaled(input, draw_keep(input, p, drop_axes), 1.0 / (1.0 - p))
    return input.copy_(out) if inplace else out


def dropout(input, p=0.5, training=True, inplace=False):
    """Set elements to 0 with probability p and scale the rest by 1 / (1 - p), in training (PyTorch's ``F.dropout``).

    Args:
        input: Any shape.
        p: Probability of a zero.
        training: Without it the input is returned unchanged.
        inplace: Write the result into the input.

    Raises:
        ValueRangeError: When p is outside [0, 1].
    """
    return _dropped("dropout", input, p, training, inplace)


def _channels(name, input, p, training, inplace, batched_ndim):
    """Dropout of whole channels: of ``(N, C, ...)``, or of ``(C, ...)`` without a batch."""
    if input.ndim not in (batched_ndim, batched_ndim - 1):
        raise ShapeError(
            f"{name}: expected {batched_ndim - 1} or {batched_ndim} dimensions, got shape {tuple(input.shape)}"
        )
    return _dropped(name, input, p, training, inplace, 2 if input.ndim == batched_ndim else 1)


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels of ``(N, C, L)`` or ``(C, L)``; see `dropout`."""
    return _channels("dropout1d", input, p, training, inplace, 3)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels of ``(N, C, H, W)``; see `dropout`.

    A 3-d input is ``(N, C, L)``, as in PyTorch.
    """
    if input.ndim not in (2, 3, 4):
        raise ShapeError(f"dropout2d: expected 3 or 4 dimensions, got shape {tuple(input.shape)}")
    return _dropped("dropout2d", input, p, training, inplace, 2)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Dropout of whole channels of ``(N, C, D, H, W)`` or ``(C, D, H, W)``; see `dropout`."""
    return _channels("dropout3d", input, p, training, inplace, 5)


def _alpha(name, input, p, training, inplace, drop_axes):
    """Dropout that keeps mean 0 and variance 1 of self-normalising networks (Klambauer et al. 2017)."""
    if not 0.0 <= p <= 1.0:
        raise ValueRangeError(f"{name} probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0 or not input.numel():
        return input if inplace else input * 1
    if p == 1.0:
        out = input * 0.0
    else:
        saturation = -1.7580993408473766  # -scale * alpha of SELU
        a = (1.0 / ((saturation**2 * p + 1) * (1 - p))) ** 0.5
        keep = draw_keep(input, p, drop_axes)
        out = keep_scaled(input, keep, a) + (keep.logical_not().to(input.dtype) * (a * saturation) - a * saturation * p)
    return input.copy_(out) if inplace else out


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout for SELU networks: dropped elements take SELU's negative limit, and the result is rescaled."""
    return _alpha("alpha_dropout", input, p, training, inplace, None)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """`alpha_dropout` of whole channels of ``(N, C, ...)``."""
    return _alpha("feature_alpha_dropout", input, p, training, inplace, 2)
