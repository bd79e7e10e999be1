"""Running sums, products and extremes along a dimension; differences of neighbours."""

from ddpflow.autograd.op import Ints, op
from ddpflow.autograd.ops.dims import axis_of, named_result, narrow, wide
from ddpflow.autograd.ops.extents import dims_of
from ddpflow.autograd.ops.gathering import gather
from ddpflow.autograd.ops.joining import cat
from ddpflow.dtype import as_numpy
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = [
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "diff",
    "gradient",
    "logcumsumexp",
    "trapezoid",
    "trapz",
]

_SAMPLES = [((3, 4), 0), ((3, 4), -1), ((5,), 0), ((), 0), ((2, 0), 1), ((2, 3, 4), 1)]


def _typed(xp, input, dtype):
    if dtype is not None:
        return input.astype(as_numpy(dtype))
    return input.astype(xp.int64) if input.dtype.kind in "biu" else input


@op(samples=[*_SAMPLES, (Ints((3, 2), 5), 0)], tensors=1)
def cumsum(xp, input, dim, dtype=None):
    """The sums of the elements up to each one along a dimension."""
    axis = axis_of(dim, input.ndim)
    a = _typed(xp, input, dtype)
    if input.ndim == 0:
        return a.copy(), lambda g: g
    out = narrow(wide(xp, a).cumsum(axis), a.dtype)
    return out, lambda g: xp.flip(xp.flip(g, axis).cumsum(axis), axis)


@op(samples=_SAMPLES, tensors=1)
def cumprod(xp, input, dim, dtype=None):
    """The products of the elements up to each one along a dimension; zeros are no problem for the gradient."""
    axis = axis_of(dim, input.ndim)
    a = _typed(xp, input, dtype)
    if input.ndim == 0:
        return a.copy(), lambda g: g
    out = narrow(wide(xp, a).cumprod(axis), a.dtype)

    def vjp(g):
        if not (input == 0).any():
            return xp.flip(xp.flip(g * out, axis).cumsum(axis), axis) / input
        x, incoming = xp.moveaxis(input, axis, 0), xp.moveaxis(g, axis, 0)
        count = x.shape[0]
        before = [xp.ones_like(x[0])]
        for i in range(count - 1):
            before.append(before[-1] * x[i])
        # What reaches the product at i: its own gradient and, through the next factor, all later ones'.
        reach = [incoming[count - 1]]
        for i in range(count - 2, -1, -1):
            reach.append(incoming[i] + x[i + 1] * reach[-1])
        return xp.moveaxis(xp.stack(before, 0) * xp.stack(reach[::-1], 0), 0, axis)

    return out, vjp


@op(samples=_SAMPLES, tensors=1)
def logcumsumexp(xp, input, dim):
    """The logarithm of the running sums of ``exp(x)`` along a dimension, without overflow."""
    axis = axis_of(dim, input.ndim)
    if input.ndim == 0:
        return input.copy(), lambda g: g
    out = narrow(_running(xp, xp.logaddexp, wide(xp, input), axis), input.dtype)

    def vjp(g):
        # Sum over later j of g_j * exp(x_i - y_j), with the exponents held below 0 by a common shift.
        count = input.shape[axis]
        x, y, incoming = xp.moveaxis(input, axis, -1), xp.moveaxis(out, axis, -1), xp.moveaxis(g, axis, -1)
        places = xp.arange(count)
        later = places.reshape(1, count) >= places.reshape(count, 1)
        y = xp.where(y == -xp.inf, 0, y)
        weights = xp.exp(xp.where(later, x[..., :, None] - y[..., None, :], -xp.inf))
        return xp.moveaxis((weights * incoming[..., None, :]).sum(-1), -1, axis)

    return out, vjp


@op(samples=[((3, 4), 1), ((5,), 0), (Ints((3, 4), 3), 0)], differentiable=False, tensors=1)
def running_argmax(xp, input, dim):
    """The index of the last greatest element up to each place along a dimension."""
    return _running_index(xp, input, dim, xp.maximum)


@op(samples=[((3, 4), 1), ((5,), 0), (Ints((3, 4), 3), 0)], differentiable=False, tensors=1)
def running_argmin(xp, input, dim):
    """The index of the last least element up to each place along a dimension."""
    return _running_index(xp, input, dim, xp.minimum)


def _running_index(xp, input, dim, extreme):
    hit = (input == _running(xp, extreme, input, dim)) | (input != input)
    shape = tuple([-1 if i == dim else 1 for i in range(input.ndim)])
    return _running(xp, xp.maximum, xp.where(hit, xp.arange(input.shape[dim]).reshape(shape), 0), dim)


def _running(xp, combine, a, axis):
    """The running result of an associative function: by doubling steps, for CuPy's functions cannot accumulate."""
    out = xp.moveaxis(a, axis, 0).copy()
    step = 1
    while step < out.shape[0]:
        out[step:] = combine(out[step:], out[:-step])
        step *= 2
    return xp.moveaxis(out, 0, axis)


_CummaxResult = named_result("cummax", "values", "indices")
_CumminResult = named_result("cummin", "values", "indices")


def _extremes(input, dim, search, result):
    axis = axis_of(dim, input.array.ndim)
    if input.array.ndim == 0:
        return result(input.clone(), input.new_zeros((), dtype="int64"))
    index = search(input, axis)
    return result(gather(input, axis, index), index)


def cummax(input, dim):
    """The greatest element up to each place along a dimension, and its index, as a named tuple."""
    return _extremes(input, dim, running_argmax, _CummaxResult)


def cummin(input, dim):
    """The least element up to each place along a dimension, and its index, as a named tuple."""
    return _extremes(input, dim, running_argmin, _CumminResult)


def diff(input, n=1, dim=-1, prepend=None, append=None):
    """The n-th differences of neighbours along a dimension, after putting ``prepend`` before and ``append`` behind."""
    if input.array.ndim == 0:
        raise ShapeError("diff() takes tensors of at least one dimension")
    axis = axis_of(dim, input.array.ndim)
    if n == 0:
        return input
    parts = [part for part in (prepend, input, append) if part is not None]
    if len(parts) > 1:
        input = cat(parts, axis)
    for _ in range(n):
        length = input.array.shape[axis]
        if length == 0:
            break
        upper, lower = (slice(None),) * axis + (slice(1, None),), (slice(None),) * axis + (slice(0, length - 1),)
        a, b = input[upper], input[lower]
        input = a.logical_xor(b) if input.array.dtype.kind == "b" else a - b
    return input


def trapezoid(y, x=None, *, dx=1.0, dim=-1):
    """The integral of ``y`` along a dimension by the trapezoid rule, at points ``x`` or at steps of ``dx``."""
    areas = _areas(y, x, dx, dim)
    return areas.sum(dim)


def cumulative_trapezoid(y, x=None, *, dx=1.0, dim=-1):
    """The running integral of ``y`` along a dimension by the trapezoid rule."""
    return cumsum(_areas(y, x, dx, dim), dim)


def _areas(y, x, dx, dim):
    axis = axis_of(dim, y.array.ndim)
    lead = (slice(None),) * axis
    length = y.array.shape[axis]
    total = y[(*lead, slice(1, None))] + y[(*lead, slice(0, max(length - 1, 0)))]
    if x is None:
        return total * (dx / 2)
    if x.array.ndim == 1:
        steps = diff(x).reshape((-1,) + (1,) * (y.array.ndim - 1 - axis))
    else:
        steps = diff(x, dim=dim)
    return total * steps / 2


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """The slope of a function along dimensions, from its values at points (PyTorch's ``gradient``).

    Inside, the slopes to both neighbours, each weighted with the distance to the other one (of second order).

    Args:
        input: The values.
        spacing: The distance of neighbours, a number for each dimension, or a vector of coordinates for each; one
            number serves them all. 1 by default.
        dim: A dimension or several; all by default.
        edge_order: 1 to take the slope to the only neighbour at both ends, 2 for that of a parabola through three.

    Returns:
        A list with a tensor of the input's shape for each dimension.

    Raises:
        ShapeError: When there are not as many spacings as dimensions, or not more than ``edge_order`` elements.
        ValueRangeError: For another ``edge_order``.

    Example:
        >>> import ddpflow
        >>> ddpflow.gradient(ddpflow.tensor([0.0, 1.0, 4.0, 9.0]))[0].tolist()  # of x ** 2
        [1.0, 2.0, 4.0, 5.0]
    """
    axes = tuple(range(input.array.ndim)) if dim is None else dims_of(dim, input.array.ndim)
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [1 if spacing is None else spacing] * len(axes)
    if len(steps) != len(axes):
        raise ShapeError(f"gradient() needs one spacing for each of {len(axes)} dimensions, got {len(steps)}")
    if edge_order not in (1, 2):
        raise ValueRangeError(f"gradient(): edge_order is 1 or 2, not {edge_order}")
    return [_slope(input, axis, step, edge_order) for axis, step in zip(axes, steps, strict=True)]


def _slope(y, axis, spacing, edge_order):
    length, lead = y.array.shape[axis], (slice(None),) * axis
    if length <= edge_order:
        raise ShapeError(f"gradient() needs more than {edge_order} elements along a dimension, got {length}")
    tail = (1,) * (y.array.ndim - 1 - axis)
    steps = (
        diff(spacing).reshape((-1, *tail)) if hasattr(spacing, "array") else y.new_full((length - 1, *tail), spacing)
    )
    slopes = diff(y, dim=axis) / steps
    before, after = steps[:-1], steps[1:]
    left, right = slopes[(*lead, slice(0, -1))], slopes[(*lead, slice(1, None))]
    inner = (left * after + right * before) / (before + after)
    first, last = slopes[(*lead, slice(0, 1))], slopes[(*lead, slice(-1, None))]
    if edge_order == 2:
        bend = (right - left) / (before + after)
        first, last = first - bend[(*lead, slice(0, 1))] * steps[:1], last + bend[(*lead, slice(-1, None))] * steps[-1:]
    return cat([first, inner, last], axis)


trapz = trapezoid
