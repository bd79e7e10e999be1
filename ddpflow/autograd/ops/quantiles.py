"""Medians, modes, quantiles, and what else depends on the order or the spread of elements."""

from ddpflow.autograd.op import op
from ddpflow.autograd.ops.arithmetic import clamp
from ddpflow.autograd.ops.compare import isnan, where
from ddpflow.autograd.ops.dims import axes_of, axis_of, kept_shape, named_result, need_real
from ddpflow.autograd.ops.gathering import gather
from ddpflow.autograd.ops.sorting import sort
from ddpflow.autograd.ops.statistics import vector_norm
from ddpflow.dtype import get_default_dtype
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError, ValueRangeError

__all__ = ["corrcoef", "cov", "median", "mode", "nanmedian", "nanquantile", "quantile", "renorm"]

_Median = named_result("median", "values", "indices")
_Nanmedian = named_result("nanmedian", "values", "indices")
_Mode = named_result("mode", "values", "indices")


@op(samples=[((3, 4),), ((5,),), ((),)])
def median_of_all(xp, input):
    """The lower median of all elements, NaN if there is one; equal elements share the gradient evenly."""
    out = _lower_median(xp, input.reshape(-1), False)
    return out, lambda g: _share(xp, g, input, out)


@op(samples=[((3, 4),), ((5,),), ((),)])
def nanmedian_of_all(xp, input):
    """The lower median of the elements that are not NaN; equal elements share the gradient evenly."""
    out = _lower_median(xp, input.reshape(-1), True)
    return out, lambda g: _share(xp, g, input, out)


def _lower_median(xp, flat, skip_nan):
    if flat.size == 0:
        return xp.asarray(xp.nan, dtype=flat.dtype)
    ordered = xp.sort(flat)  # NaN last
    bad = int((flat != flat).sum())
    if bad and not skip_nan:
        return xp.asarray(ordered[-1])
    return xp.asarray(ordered[max(flat.size - bad - 1, 0) // 2])


def _share(xp, g, input, out):
    chosen = (input == out) | ((input != input) & (out != out))
    return xp.where(chosen, g / chosen.sum(), 0)


@op(samples=[((3, 4), 1), ((3, 4), 0), ((5,), 0)], differentiable=False, tensors=1)
def median_index(xp, input, dim, skip_nan=False):
    """The index of the lower median along a dimension, which is kept with length 1."""
    if input.ndim == 0:
        return xp.zeros((), xp.int64)
    order = xp.argsort(input, dim, kind="stable")
    bad = (input != input).sum(dim, keepdims=True)
    count = input.shape[dim]
    middle = xp.maximum(count - bad - 1, 0) // 2
    if not skip_nan:
        middle = xp.where(bad > 0, count - bad, middle)
    return xp.take_along_axis(order, middle, dim)


def _along(input, dim, keepdim, index, result):
    values = gather(input, dim, index)
    if not keepdim and input.array.ndim:
        values, index = values.squeeze(dim), index.squeeze(dim)
    return result(values, index)


def median(input, dim=None, keepdim=False):
    """The lower median of all elements; along a dimension with its index, as a named tuple (values, indices)."""
    if dim is None:
        return median_of_all(input)
    axis = axis_of(dim, input.array.ndim)
    return _along(input, axis, keepdim, median_index(input, axis), _Median)


def nanmedian(input, dim=None, keepdim=False):
    """As `median`, over the elements that are not NaN."""
    if dim is None:
        return nanmedian_of_all(input)
    axis = axis_of(dim, input.array.ndim)
    return _along(input, axis, keepdim, median_index(input, axis, skip_nan=True), _Nanmedian)


@op(samples=[((3, 4), 1), ((5,), 0)], differentiable=False, tensors=1)
def mode_index(xp, input, dim):
    """The last index of the most frequent element along a dimension (the least of equally frequent ones)."""
    if input.ndim == 0:
        return xp.zeros((), xp.int64)
    if input.shape[dim] == 0:
        raise IndexRangeError(f"mode() over an empty dimension: shape {tuple(input.shape)}, dim {dim}")
    if input.size == 0:
        return xp.zeros(kept_shape(input.shape, (dim,)), xp.int64)
    rows = xp.moveaxis(input, dim, -1)
    equal = rows[..., :, None] == rows[..., None, :]
    counts = equal.sum(-1)
    best = counts == counts.max(-1, keepdims=True)
    least = xp.argmax(best & (rows == xp.where(best, rows, rows.max()).min(-1, keepdims=True)), -1)
    hits = xp.take_along_axis(equal, least[..., None, None], -2)[..., 0, :]
    last = rows.shape[-1] - 1 - xp.argmax(hits[..., ::-1], -1)
    return xp.expand_dims(last, dim)


def mode(input, dim=-1, keepdim=False):
    """The most frequent element along a dimension and its last index, as a named tuple (values, indices)."""
    axis = axis_of(dim, input.array.ndim)
    return _along(input, axis, keepdim, mode_index(input, axis), _Mode)


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The q-th quantiles of all elements or along a dimension; rows with a NaN give NaN.

    Args:
        input: A floating tensor.
        q: A number in [0, 1], or a vector of them: the quantiles then stand along a new first dimension.
        dim: A dimension; None for all elements.
        keepdim: Keep the dimension with length 1.
        interpolation: Between two elements: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or ``"nearest"``.

    Raises:
        DtypeError: For integers, or q of another dtype.
        ShapeError: When the input is empty, or q has more than one dimension.
        ValueRangeError: When q is outside [0, 1], or the interpolation is none of these.
    """
    return _quantile(input, q, dim, keepdim, interpolation, False)


def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """As `quantile`, over the elements that are not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


def _quantile(input, q, dim, keepdim, interpolation, skip_nan):
    if input.array.dtype.kind in "biu":
        raise DtypeError(f"quantile() takes a floating tensor, not {input.dtype}")
    if input.array.size == 0:
        raise ShapeError("quantile() of an empty tensor")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ValueRangeError(
            f"quantile() interpolates 'linear', 'lower', 'higher', 'midpoint' or 'nearest', not {interpolation!r}"
        )
    q = q if hasattr(q, "array") else input.new_tensor(q)
    if q.array.ndim > 1 or q.array.dtype != input.array.dtype:
        raise ShapeError(
            f"q is a number or a vector of the input's dtype, not {q.dtype} of shape {tuple(q.array.shape)}"
        )
    if not ((q.array >= 0) & (q.array <= 1)).all():
        raise ValueRangeError("quantile() takes q between 0 and 1")
    ndim = input.array.ndim
    axis = None if dim is None else axis_of(dim, ndim)
    rows = (
        input.reshape(1, -1)
        if axis is None or ndim == 0
        else input.movedim(axis, -1).reshape(-1, input.array.shape[axis])
    )
    ordered = sort(rows, -1)[0]
    count = rows.array.shape[1]
    bad = isnan(rows).sum(-1, keepdim=True)
    last = (count - bad - 1).to(q.dtype).clamp(min=0)
    rank = last * q.reshape(1, -1)
    if not skip_nan:
        rank = where(bad > 0, rank.new_full((), count - 1), rank)
    low, high = rank.floor(), rank.ceil()
    if interpolation == "nearest":
        low = high = rank.round()
    weight = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5, "nearest": 0.0, "linear": rank - low}[interpolation]
    below, above = [gather(ordered, 1, place.to("int64")) for place in (low, high)]
    found = below.lerp(above, weight).permute(1, 0)
    kept = kept_shape(input.array.shape, axes_of(dim, ndim))
    shape = kept if keepdim else tuple([n for i, n in enumerate(input.array.shape) if i not in axes_of(dim, ndim)])
    return found.reshape((*q.array.shape, *shape))


def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariances of the rows of a matrix (variables) over its columns (observations).

    Args:
        input: A matrix, or a vector for one variable.
        correction: What is taken off the number of observations.
        fweights: How often each observation counts.
        aweights: The relative importance of each observation.
    """
    need_real("cov", input.array)
    if input.array.ndim > 2:
        raise ShapeError(f"cov() takes at most two dimensions, not shape {tuple(input.array.shape)}")
    if input.array.dtype.kind in "biu":
        input = input.to(get_default_dtype())
    x = input.reshape(1, -1) if input.array.ndim < 2 else input
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        total = x.array.shape[1]
        centred = x - x.mean(1, keepdim=True)
        divisor = total - correction
        scaled = centred
    else:
        total = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total
        divisor = total - (correction if aweights is None else correction * (weights * aweights).sum() / total)
        scaled = centred * weights
    product = scaled @ centred.permute(1, 0)
    result = (
        product / clamp(divisor, min=0) if hasattr(divisor, "array") else product / product.new_tensor(max(divisor, 0))
    )
    return result.reshape(()) if result.array.size == 1 else result


def corrcoef(input):
    """The correlation coefficients of the rows of a matrix."""
    c = cov(input)
    if c.array.ndim == 0:
        return c / c
    spread = c.diagonal().sqrt()
    return clamp(c / spread[:, None] / spread[None, :], -1, 1)


def renorm(input, p, dim, maxnorm):
    """Slices along a dimension whose p-norm is above ``maxnorm`` scaled down to it."""
    axis = axis_of(dim, input.array.ndim)
    others = [i for i in range(input.array.ndim) if i != axis]
    norms = vector_norm(input, p, others, True)
    return input * where(norms > maxnorm, maxnorm / (norms + 1e-7), norms.new_ones(()))
