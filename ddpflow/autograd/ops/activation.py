"""Activation functions, element by element."""

import math

from ddpflow.autograd.kernels import gelu as kernels
from ddpflow.autograd.kernels.blocks import blockwise
from ddpflow.autograd.kernels.choose import choose
from ddpflow.autograd.op import apply, op
from ddpflow.autograd.ops.dims import narrow, need_floating, need_real
from ddpflow.autograd.ops.special import erf
from ddpflow.errors import ValueRangeError

__all__ = [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
    "threshold",
]

_ANY = [((3, 4),), ((),), ((0, 2),)]
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_GELU_TANH = math.sqrt(2.0 / math.pi)


@op(samples=_ANY)
def relu(xp, x):
    """``max(x, 0)``; the gradient at 0 is 0."""
    y = xp.maximum(x, 0)
    return y, lambda g: g * (y > 0)


@op(samples=_ANY, promote="float")
def sigmoid(xp, x):
    """``1 / (1 + exp(-x))``."""
    y = blockwise(xp, lambda x: 1 / (1 + xp.exp(-x)), x)
    return y, lambda g: blockwise(xp, lambda g, y: g * (y * (1 - y)), g, y)


@op(samples=_ANY)
def silu(xp, x):
    """``x * sigmoid(x)``, also called swish."""
    need_floating("silu", x)

    def slope(g, x):
        s = 1 / (1 + xp.exp(-x))
        return g * (s * (1 + x * (1 - s)))

    return blockwise(xp, lambda x: x / (1 + xp.exp(-x)), x), lambda g: blockwise(xp, slope, g, x)


def _softplus(xp, x):
    """``log(1 + exp(x))``; NumPy's logaddexp is ten times slower."""
    return blockwise(xp, lambda x: xp.maximum(x, 0) + xp.log1p(xp.exp(-abs(x))), x)


@op(samples=[((3, 4), "none"), ((3, 4), "tanh"), ((),), ((0, 2),)])
def gelu(xp, input, approximate="none"):
    """``x * P(X <= x)`` for a standard normal X; ``approximate="tanh"`` for the usual formula without erf.

    Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415.
    """
    need_floating("gelu", input)
    if approximate not in ("none", "tanh"):
        raise ValueRangeError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    if kernels.fits(xp, input):
        y = kernels.gelu(xp, input, approximate)
    else:
        y = input * _gelu_share(xp, input, approximate)

    def vjp(g):
        if kernels.fits(xp, input):  # not so where xp is the tensors' namespace in a pass that is itself recorded
            return kernels.gelu_backward(xp, g, input, y, approximate)
        share = _gelu_share(xp, input, approximate)
        if approximate == "tanh":
            slope = 2 * _GELU_TANH * (1 + 3 * 0.044715 * input * input)
            return g * (share + input * share * (1 - share) * slope)
        return g * (share + input * (xp.exp(-0.5 * input * input) / math.sqrt(2 * math.pi)))

    return y, vjp


def _gelu_share(xp, input, approximate):
    """``P(X <= x)``, exact or by the tanh formula."""
    if approximate == "tanh":
        return 0.5 * (1 + xp.tanh(_GELU_TANH * (input + 0.044715 * input * input * input)))
    return 0.5 * (1 + apply(xp, erf, input * math.sqrt(0.5)))


@op(samples=[((3, 4),), ((3, 4), 2.0, 1.0), ((),)])
def softplus(xp, input, beta=1, threshold=20):
    """``log(1 + exp(beta * x)) / beta``, and x itself where ``beta * x`` is above the threshold."""
    need_floating("softplus", input)
    scaled = input * beta
    y = _softplus(xp, scaled) / beta

    def vjp(g):
        s = input * beta
        return choose(xp, s > threshold, g, g / (1 + xp.exp(-s)))

    return choose(xp, scaled > threshold, input, y), vjp


@op(samples=[((3, 4),), ((3, 4), 0.2), ((),)])
def leaky_relu(xp, input, negative_slope=0.01):
    """X where it is positive, ``negative_slope * x`` elsewhere."""
    need_floating("leaky_relu", input)
    scaled = input * negative_slope
    y = xp.maximum(input, scaled) if 0 < negative_slope <= 1 else choose(xp, input > 0, input, scaled)
    return y, lambda g: choose(xp, input > 0, g, g * negative_slope)


@op(samples=[((3, 4),), ((3, 4), 0.5), ((),)])
def elu(xp, input, alpha=1.0):
    """X where it is positive, ``alpha * (exp(x) - 1)`` elsewhere."""
    need_floating("elu", input)
    negative = alpha * xp.expm1(xp.minimum(input, 0))
    return (
        choose(xp, input > 0, input, negative),
        lambda g: choose(xp, input > 0, g, g * (alpha * xp.exp(xp.minimum(input, 0)))),
    )


@op(samples=[((3, 4),), ((3, 4), 0.5)])
def celu(xp, input, alpha=1.0):
    """X where it is positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere."""
    need_floating("celu", input)
    negative = alpha * xp.expm1(xp.minimum(input, 0) / alpha)
    return (
        choose(xp, input > 0, input, negative),
        lambda g: choose(xp, input > 0, g, g * xp.exp(xp.minimum(input, 0) / alpha)),
    )


@op(samples=_ANY)
def selu(xp, x):
    """The self-normalising elu. Source: Klambauer et al., arXiv:1706.02515."""
    need_floating("selu", x)
    scale, alpha = _SELU_SCALE, _SELU_SCALE * _SELU_ALPHA
    return (
        choose(xp, x > 0, x * scale, alpha * xp.expm1(xp.minimum(x, 0))),
        lambda g: choose(xp, x > 0, g * scale, g * (alpha * xp.exp(xp.minimum(x, 0)))),
    )


@op(samples=_ANY)
def logsigmoid(xp, x):
    """``log(sigmoid(x))`` without overflow."""
    need_floating("logsigmoid", x)
    return -_softplus(xp, -x), lambda g: g / (1 + xp.exp(x))


@op(samples=_ANY)
def mish(xp, x):
    """``x * tanh(softplus(x))``. Source: Misra, arXiv:1908.08681."""
    need_floating("mish", x)

    def vjp(g):
        t = xp.tanh(_softplus(xp, x))
        return g * (t + x * (1 - t * t) / (1 + xp.exp(-x)))

    return x * xp.tanh(_softplus(xp, x)), vjp


@op(samples=[((3, 4),), ((3, 4), -0.5, 0.5)])
def hardtanh(xp, input, min_val=-1.0, max_val=1.0):
    """The values held within [min_val, max_val]; no gradient passes at the bounds or beyond."""
    y = narrow(xp.minimum(xp.maximum(input, min_val), max_val), input.dtype)
    return y, lambda g: choose(xp, (y > min_val) & (y < max_val), g, 0)


def relu6(input):
    """The values held within [0, 6]."""
    return hardtanh(input, 0, 6)


@op(samples=_ANY)
def hardsigmoid(xp, x):
    """``x / 6 + 1 / 2`` held within [0, 1]."""
    need_floating("hardsigmoid", x)
    return xp.minimum(xp.maximum(x + 3, 0), 6) / 6, lambda g: choose(xp, (x > -3) & (x < 3), g / 6, 0)


@op(samples=_ANY)
def hardswish(xp, x):
    """``x * hardsigmoid(x)``. Source: Howard et al., arXiv:1905.02244."""
    need_floating("hardswish", x)
    return x * xp.minimum(xp.maximum(x + 3, 0), 6) / 6, lambda g: choose(
        xp, x <= -3, 0, choose(xp, x < 3, g * (x / 3 + 0.5), g)
    )


@op(samples=[((3, 4),), ((3, 4), 0.2)])
def hardshrink(xp, input, lambd=0.5):
    """The values, but 0 where they lie within [-lambd, lambd]."""
    need_floating("hardshrink", input)
    return choose(xp, xp.abs(input) <= lambd, 0, input), lambda g: choose(xp, xp.abs(input) <= lambd, 0, g)


@op(samples=[((3, 4),), ((3, 4), 0.2)])
def softshrink(xp, input, lambd=0.5):
    """The values moved towards 0 by lambd, and 0 where that would change the sign."""
    need_floating("softshrink", input)
    return (
        choose(xp, input > lambd, input - lambd, choose(xp, input < -lambd, input + lambd, input * 0)),
        lambda g: choose(xp, xp.abs(input) <= lambd, 0, g),
    )


@op(samples=[((3, 4), 0.1, 20.0), ((3,), -0.5, 1.0)], tensors=1)
def threshold(xp, input, threshold, value):
    """The values, but ``value`` where they are not above the threshold."""
    return choose(xp, input > threshold, input, value), lambda g: choose(xp, input > threshold, g, 0)


@op(samples=_ANY, promote="float")
def softsign(xp, x):
    """``x / (1 + |x|)``."""
    need_real("softsign", x)

    def vjp(g):
        d = 1 + xp.abs(x)
        return g / (d * d)

    return x / (1 + xp.abs(x)), vjp


@op(samples=_ANY, promote="float")
def tanhshrink(xp, x):
    """``x - tanh(x)``."""

    def vjp(g):
        t = xp.tanh(x)
        return g * (t * t)

    return x - xp.tanh(x), vjp


@op(samples=[((2, 3, 4), (3,)), ((2, 3), (1,)), ((4,), (1,)), ((), (1,)), ((2, 3), ())])
def prelu(xp, input, weight):
    """X where it is positive, ``weight * x`` elsewhere; one weight, or one for each channel (dimension 1)."""
    shape = (
        (1, -1) + (1,) * (input.ndim - 2)
        if input.ndim > 1 and weight.ndim
        else (-1,)
        if input.ndim and weight.ndim
        else ()
    )

    axes = tuple([i for i in range(input.ndim) if i != 1 or weight.size == 1])

    def to_weight(g):
        return choose(xp, input > 0, 0, g * input).sum(axes).reshape(weight.shape)

    return choose(xp, input > 0, input, input * weight.reshape(shape)), (
        lambda g: choose(xp, input > 0, g, g * weight.reshape(shape)),
        to_weight,
    )
