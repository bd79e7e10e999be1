"""Order: sorting, the largest few, distinct values, places in a sorted sequence, counts."""

from ddpflow.autograd.op import Floats, Ints, op
from ddpflow.autograd.ops.dims import axis_of, named_result
from ddpflow.autograd.ops.gathering import gather
from ddpflow.device import unwrap
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError

__all__ = [
    "argsort",
    "bincount",
    "bucketize",
    "histc",
    "histogram",
    "histogramdd",
    "isin",
    "kthvalue",
    "msort",
    "searchsorted",
    "sort",
    "topk",
    "unique",
    "unique_consecutive",
]

_Sort = named_result("sort", "values", "indices")
_TopK = named_result("topk", "values", "indices")
_Histogram = named_result("histogram", "hist", "bin_edges")
_KthValue = named_result("kthvalue", "values", "indices")


@op(samples=[((3, 4),), ((3, 4), 0, True), ((), -1)], differentiable=False, tensors=1, name="argsort")
def _argsort(xp, a, dim=-1, descending=False):
    """The numbers that sort along a dimension, equal elements in their order, NaN as the largest."""
    if not a.ndim:
        return xp.zeros((), "int64")
    dim = axis_of(dim, a.ndim)
    if not descending:
        return xp.argsort(a, axis=dim, kind="stable").astype("int64", copy=False)
    order = xp.argsort(xp.flip(a, dim), axis=dim, kind="stable")
    return xp.ascontiguousarray(a.shape[dim] - 1 - xp.flip(order, dim)).astype("int64", copy=False)


def argsort(input, dim=-1, descending=False, stable=False):
    """The indices that sort a tensor along a dimension; equal elements keep their order, NaN counts as the largest."""
    return _argsort(input, dim, descending)


def sort(input, dim=-1, descending=False, *, stable=None):
    """The elements in order along a dimension, and their indices; NaN counts as the largest.

    Args:
        input: The tensor.
        dim: The dimension.
        descending: Largest first.
        stable: Accepted; equal elements always keep their order.
    """
    indices = _argsort(input, dim, descending)
    return _Sort(gather(input, dim, indices), indices)


def msort(input):
    """The elements in order along the first dimension."""
    return sort(input, 0).values


@op(samples=[((3, 5), 2, -1, True), ((5, 3), 3, 0, False)], differentiable=False, tensors=1, name="topk_indices")
def _topk_indices(xp, a, k, dim, largest):
    """The numbers of the k largest or smallest along a dimension, in that order."""
    length = a.shape[dim]
    first = None
    if 0 < 8 * k < length:  # a partition first: only k elements need sorting
        first = xp.argpartition(a, length - k if largest else k, dim)
        first = first.take(range(length - k, length) if largest else range(k), dim)
        a = xp.take_along_axis(a, first, dim)
    order = _argsort.op.rule(xp, a, dim, largest)
    order = order.take(range(k), dim)
    return order if first is None else xp.take_along_axis(first, order, dim).astype("int64", copy=False)


def topk(input, k, dim=-1, largest=True, sorted=True):
    """The ``k`` largest (or smallest) elements along a dimension, in order, and their indices.

    Raises:
        ShapeError: When there are fewer than k elements.
    """
    shape = input.array.shape
    dim = axis_of(dim, len(shape))
    k = int(k)
    if not 0 <= k <= (shape[dim] if shape else 1):
        raise ShapeError(f"topk(): k = {k} is out of range for length {shape[dim] if shape else 1}, dimension {dim}")
    if not shape:
        indices = _argsort(input)
        return _TopK(input.clone(), indices) if k else _TopK(input.reshape(1)[:0], indices.reshape(1)[:0])
    indices = _topk_indices(input, k, dim, largest)
    return _TopK(gather(input, dim, indices), indices)


def kthvalue(input, k, dim=-1, keepdim=False):
    """The k-th smallest element along a dimension (counted from 1), and its index.

    Raises:
        ShapeError: When there are fewer than k elements.
    """
    shape = input.array.shape or (1,)
    dim = axis_of(dim, input.array.ndim)
    if not 1 <= k <= shape[dim]:
        raise ShapeError(f"kthvalue(): k = {k} is out of range for length {shape[dim]}, dimension {dim}")
    if not input.array.ndim:
        return _KthValue(input.clone(), _argsort(input))
    indices = _argsort(input, dim).narrow(dim, k - 1, 1)
    values = gather(input, dim, indices)
    return _KthValue(values, indices) if keepdim else _KthValue(values.squeeze(dim), indices.squeeze(dim))


# --- distinct values ---


@op(samples=[(Ints((9,), 4),), (Ints((4, 2), 2), 0)], differentiable=False, tensors=1, name="unique")
def _unique(xp, a, dim=None):
    """Distinct elements (or slices) in order, which of them each element is, and how often each occurs."""
    if dim is not None:
        dim = axis_of(dim, a.ndim)
    values, inverse, counts = xp.unique(a, return_inverse=True, return_counts=True, axis=dim)
    shape = a.shape if dim is None else (a.shape[dim],)
    return values, inverse.reshape(shape).astype("int64"), counts.astype("int64")


@op(samples=[(Ints((9,), 3),), (Ints((6, 2), 2), 0)], differentiable=False, tensors=1, name="unique_consecutive")
def _unique_consecutive(xp, a, dim=None):
    """The first of each run of equal elements (or slices), which run each element is in, and the runs' lengths."""
    shape = a.shape
    if dim is None:
        rows = a.reshape(-1, 1)
    else:
        dim = axis_of(dim, a.ndim)
        rows = xp.moveaxis(a, dim, 0).reshape(shape[dim], -1)
    if not len(rows):
        nothing = xp.zeros(0, "int64")
        return (a.reshape(-1) if dim is None else a.copy()), xp.zeros(shape if dim is None else 0, "int64"), nothing
    new = xp.concatenate([xp.ones(1, bool), (rows[1:] != rows[:-1]).any(1)])
    starts = xp.flatnonzero(new)
    counts = xp.diff(xp.concatenate([starts, xp.asarray([len(rows)])]))
    inverse = (xp.cumsum(new) - 1).astype("int64")
    values = a.reshape(-1)[starts] if dim is None else a.take(starts, dim)
    return values, inverse.reshape(shape) if dim is None else inverse, counts.astype("int64")


def _chosen(found, return_inverse, return_counts):
    values, inverse, counts = found
    extra = (inverse,) * bool(return_inverse) + (counts,) * bool(return_counts)
    return (values, *extra) if extra else values


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """Distinct elements (or slices along ``dim``) in order; on request which each is, and how often they occur."""
    return _chosen(_unique(input, dim), return_inverse, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The first of each run of equal elements; on request which run each is in, and the runs' lengths."""
    return _chosen(_unique_consecutive(input, dim), return_inverse, return_counts)


# --- places and counts ---


@op(samples=[(Floats((5,), 0.0, 1.0), (3, 2), False)], differentiable=False, tensors=2, name="searchsorted")
def _searchsorted(xp, a, values, right):
    """Where each value would go in a sorted row."""
    side = "right" if right else "left"
    if a.ndim == 1:
        return xp.asarray(xp.searchsorted(a, values, side)).astype("int64")
    rows, wanted = a.reshape(-1, a.shape[-1]), values.reshape(-1, values.shape[-1])
    found = [xp.searchsorted(row, value, side) for row, value in zip(rows, wanted, strict=True)]
    return (xp.stack(found) if found else xp.zeros(0)).reshape(values.shape).astype("int64")


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """The indices at which values would have to be put into a sorted last dimension to keep it sorted.

    Args:
        sorted_sequence: One sorted row, or one for each row of the values.
        input: The values; a number or a tensor.
        out_int32: Give int32 instead of int64.
        right: Behind equal elements instead of in front of them.
        side: ``"left"`` or ``"right"``: the same in words.
        sorter: Indices that sort the sequence, when it is not sorted.

    Raises:
        ShapeError: When the leading sizes differ.
        ValueRangeError: When ``side`` contradicts ``right``.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueRangeError(f"searchsorted(): side={side!r} with right={right} is no clear wish")
    if sorter is not None:
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    if not hasattr(input, "array"):
        input = (
            sorted_sequence.new_tensor(input)
            if sorted_sequence.is_floating_point()
            else sorted_sequence.new_tensor(input, dtype=float if isinstance(input, float) else None)
        )
    a, b = sorted_sequence.array.shape, input.array.shape
    if len(a) > 1 and a[:-1] != b[:-1]:
        raise ShapeError(f"searchsorted(): leading sizes of {tuple(a)} and {tuple(b)} differ")
    found = _searchsorted(sorted_sequence.detach(), input.detach(), bool(right or side == "right"))
    return found.int() if out_int32 else found


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The number of the interval between sorted boundaries that each element lies in."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@op(samples=[(Ints((9,), 4),)], differentiable=False, tensors=1, name="bincount")
def _bincount(xp, a, weights=None, minlength=0):
    """How often each number occurs, or the sum of its weights."""
    counted = xp.bincount(a, weights, minlength)
    if weights is not None:
        return counted.astype(weights.dtype if weights.dtype.kind == "f" else "float64")
    return counted.astype("int64")


def bincount(input, weights=None, minlength=0):
    """How often each number from 0 on occurs in a vector of integers >= 0, or the sum of its weights.

    Raises:
        DtypeError: When it does not hold integers.
        ShapeError: When it is no vector, holds negative numbers, or the weights differ in shape.
    """
    array = input.array
    if array.dtype.kind not in "iu":
        raise DtypeError(f"bincount() counts integers, not {array.dtype}")
    if array.ndim != 1 or (array.size and int(array.min()) < 0):
        raise ShapeError(f"bincount() counts a vector of integers >= 0; this has shape {tuple(array.shape)}")
    if minlength < 0 or (weights is not None and unwrap(weights).shape != array.shape):
        raise ShapeError("bincount() takes a minlength >= 0 and weights in the input's shape")
    return _bincount(input, None if weights is None else weights.detach(), minlength)


@op(samples=[((9,), 4)], differentiable=False, tensors=1)
def histc(xp, input, bins=100, min=0, max=0):
    """How many elements lie in each of equal intervals from ``min`` to ``max`` (both 0: the data's range)."""
    if input.dtype.kind != "f":
        raise ShapeError(f"histc() counts floating numbers, not {input.dtype}")
    low, high = float(min), float(max)
    if low == high == 0 and input.size:
        low, high = float(input.min()), float(input.max())
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise ShapeError(f"histc(): min {low} is above max {high}")
    return xp.histogram(input.reshape(-1), int(bins), (low, high))[0].astype(input.dtype)


def histogram(input, bins, *, range=None, weight=None, density=False):
    """How many elements lie between neighbouring edges; the last interval has both its ends.

    Args:
        input: A floating tensor.
        bins: The edges, a vector in ascending order; or the number of intervals of equal width.
        range: The first and last edge when ``bins`` is a number; the least and greatest element by default.
        weight: Add up these, of the input's shape, instead of counting.
        density: Divide by the total and by the intervals' widths, so that the integral is 1.

    Returns:
        The histogram and the edges, as a named tuple; neither carries a gradient.

    Raises:
        ShapeError: When the input is not floating, or edges, range or weights do not fit.

    Example:
        >>> import ddpflow
        >>> ddpflow.histogram(ddpflow.tensor([1.0, 2.0, 1.0]), 3, range=(0.0, 3.0)).hist.tolist()
        [0.0, 2.0, 1.0]
    """
    found, (edges,) = histogramdd(
        input.reshape(-1, 1),
        [bins],
        range=range,
        weight=None if weight is None else weight.reshape(-1),
        density=density,
    )
    return _Histogram(found, edges)


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """The `histogram` of points in several dimensions: how many lie in each cell.

    Args:
        input: The points, floating, shape ``(*, D)``.
        bins: For each dimension the edges or a number of intervals; one number serves them all.
        range: The first and last edge of each dimension, one after the other.
        weight: Add up these, shape ``(*,)``, instead of counting.
        density: Divide by the total and by the cells' volumes.

    Returns:
        The histogram of D dimensions and a tuple of the edges, as a named tuple.

    Raises:
        ShapeError: When the input is not floating, or edges, range or weights do not fit.
    """
    points = input.array
    if points.dtype.kind != "f" or not points.ndim:
        raise ShapeError(
            f"histogramdd() takes floating points (*, D), not {input.dtype} of shape {tuple(points.shape)}"
        )
    dims = points.shape[-1]
    edges = [unwrap(each) for each in bins] if isinstance(bins, (tuple, list)) else [unwrap(bins)] * dims
    pairs = None if range is None else list(zip(range[::2], range[1::2], strict=True))
    hist, *edges = _cells(input.detach(), None if weight is None else weight.detach(), edges, pairs, density)
    return _Histogram(hist, tuple(edges))


@op(
    samples=[((7, 2), (7,), [3, 2], [(-2.0, 2.0), (-1.0, 1.5)], False), ((2, 4, 1), None, [3], None, True)],
    differentiable=False,
    tensors=2,
    several=True,
    name="histogramdd",
)
def _cells(xp, input, weight, bins, pairs, density):
    """The sums of weights (or numbers) of points in the cells of a grid, and the grid's edges for each dimension."""
    points, weights = input.reshape(-1, input.shape[-1]), None if weight is None else weight.reshape(-1)
    try:
        found, edges = xp.histogramdd(points, bins, pairs, density=density, weights=weights)
    except ValueError as error:
        raise ShapeError(f"histogramdd(): {error}") from None
    return (found.astype(input.dtype), *[each.astype(input.dtype) for each in edges])


@op(samples=[(Ints((3, 4), 6), Ints((3,), 6))], differentiable=False, tensors=2, name="isin")
def _isin(xp, elements, test_elements, invert=False):
    """True for each element that is among the others."""
    return xp.isin(elements, test_elements, invert=invert)


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """True for each element that is among the test elements (``invert``: that is not); either may be a number."""
    if not hasattr(elements, "array"):
        elements = test_elements.new_tensor(elements)
    if not hasattr(test_elements, "array"):
        test_elements = elements.new_tensor(test_elements)
    return _isin(elements.detach(), test_elements.detach(), invert)
