"""Order, distinct values, places and counts."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError

X = np.array([[3.0, 1.0, 2.0, 1.0], [0.0, np.nan, -1.0, 5.0]])


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting(dim, descending):
    """Equal elements keep their order in both directions; NaN counts as the largest."""
    x = ddpflow.tensor(X)
    values, indices = x.sort(dim, descending)
    order = np.argsort(-np.nan_to_num(X, nan=99) if descending else X, axis=dim, kind="stable")
    np.testing.assert_array_equal(indices.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(X, order, dim))
    np.testing.assert_array_equal(x.argsort(dim, descending).numpy(), order)
    assert indices.dtype == ddpflow.int64


def test_sorting_has_a_gradient():
    """It goes back to where each value came from; the result has named parts."""
    x = ddpflow.tensor([3.0, 1.0, 2.0], requires_grad=True)
    (x.sort().values * ddpflow.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [100, 1, 10]
    assert ddpflow.msort(ddpflow.tensor([[2, 0], [1, 5]])).tolist() == [[1, 0], [2, 5]]
    assert ddpflow.tensor(4.0).sort().indices.item() == 0


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, 40])
def test_topk(largest, k):
    """The k largest or smallest in order, whether found by sorting or by partition, and their places."""
    a = np.random.default_rng(0).permutation(3 * 40).reshape(3, 40).astype(float)
    values, indices = ddpflow.tensor(a).topk(k, 1, largest)
    expected = np.sort(a, 1)[:, ::-1][:, :k] if largest else np.sort(a, 1)[:, :k]
    np.testing.assert_array_equal(values.numpy(), expected)
    np.testing.assert_array_equal(np.take_along_axis(a, indices.numpy(), 1), expected)
    assert ddpflow.tensor(a).topk(k, 0 if k < 4 else 1).values.shape == ((k, 40) if k < 4 else (3, k))


def test_kthvalue():
    """Counted from 1, with and without the dimension kept."""
    x = ddpflow.tensor([[5.0, 1.0, 3.0], [2.0, 9.0, 4.0]], requires_grad=True)
    values, indices = x.kthvalue(2)
    assert values.tolist() == [3, 4] and indices.tolist() == [2, 2]
    assert x.kthvalue(1, 0, keepdim=True).values.tolist() == [[2, 1, 3]]
    values.sum().backward()
    assert x.grad.tolist() == [[0, 0, 1], [0, 0, 1]]


def test_unique():
    """Distinct values in order, which of them each element is, and how often each occurs."""
    x = ddpflow.tensor([[3, 1], [1, 3]])
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 3] and inverse.tolist() == [[1, 0], [0, 1]] and counts.tolist() == [2, 2]
    rows, inverse = ddpflow.unique(ddpflow.tensor([[2, 1], [0, 5], [2, 1]]), dim=0, return_inverse=True)
    assert rows.tolist() == [[0, 5], [2, 1]] and inverse.tolist() == [1, 0, 1]


def test_unique_consecutive():
    """Only neighbours are compared."""
    x = ddpflow.tensor([1, 1, 2, 1, 1, 1])
    values, inverse, counts = x.unique_consecutive(return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 1] and inverse.tolist() == [0, 0, 1, 2, 2, 2] and counts.tolist() == [2, 1, 3]
    assert ddpflow.unique_consecutive(ddpflow.tensor([[1, 1, 2], [3, 3, 4]]), dim=1).tolist() == [[1, 2], [3, 4]]
    assert ddpflow.tensor([]).unique_consecutive().shape == (0,)


def test_places():
    """Searchsorted on one row or on many, left and right; bucketize is the same the other way round."""
    edges = ddpflow.tensor([1.0, 3.0, 5.0])
    values = ddpflow.tensor([[0.0, 3.0], [5.0, 6.0]])
    assert ddpflow.searchsorted(edges, values).tolist() == [[0, 1], [2, 3]]
    assert ddpflow.searchsorted(edges, values, right=True).tolist() == [[0, 2], [3, 3]]
    assert ddpflow.bucketize(values, edges, right=True).tolist() == [[0, 2], [3, 3]]
    assert ddpflow.searchsorted(edges, 3.0).item() == 1
    rows = ddpflow.tensor([[1.0, 2.0], [5.0, 6.0]])
    found = ddpflow.searchsorted(rows, rows, out_int32=True, side="right")
    assert found.tolist() == [[1, 2], [1, 2]] and found.dtype == ddpflow.int32
    unsorted = ddpflow.tensor([5.0, 1.0, 3.0])
    assert ddpflow.searchsorted(unsorted, values, sorter=unsorted.argsort()).tolist() == [[0, 1], [2, 3]]


def test_counts():
    """Bincount with weights and a least length; histc over a range or the data's."""
    x = ddpflow.tensor([1, 3, 1])
    assert x.bincount().tolist() == [0, 2, 0, 1] and x.bincount().dtype == ddpflow.int64
    assert x.bincount(ddpflow.tensor([0.5, 1.0, 2.0]), minlength=5).tolist() == [0, 2.5, 0, 1, 0]
    assert ddpflow.histc(ddpflow.tensor([0.0, 1.0, 1.5, 9.0]), 2, 0, 2).tolist() == [1, 2]
    assert ddpflow.histc(ddpflow.tensor([0.0, 1.0, 4.0]), 4).tolist() == [1, 1, 0, 1]
    assert ddpflow.isin(x, ddpflow.tensor([3, 4])).tolist() == [False, True, False]
    assert ddpflow.isin(x, 1, invert=True).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: ddpflow.ones(3).topk(4), ShapeError),
        (lambda: ddpflow.ones(3).topk(1, 1), IndexError),
        (lambda: ddpflow.ones(3).kthvalue(0), ShapeError),
        (lambda: ddpflow.ones(3).sort(1), IndexError),
        (lambda: ddpflow.ones(3).bincount(), DtypeError),
        (lambda: ddpflow.tensor([-1]).bincount(), ShapeError),
        (lambda: ddpflow.tensor([[1]]).bincount(), ShapeError),
        (lambda: ddpflow.histc(ddpflow.tensor([1])), ShapeError),
        (lambda: ddpflow.histc(ddpflow.ones(1), 3, 2, 1), ShapeError),
        (lambda: ddpflow.searchsorted(ddpflow.ones(2, 3), ddpflow.ones(3, 3)), ShapeError),
        (lambda: ddpflow.searchsorted(ddpflow.ones(2), 1.0, right=True, side="left"), ValueRangeError),
    ],
)
def test_bad_input(call, error):
    """PyTorch's exception types."""
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("bins", "range"), [(5, None), (4, (-1.0, 2.5)), ([-1.0, 0.0, 0.25, 3.0], None)])
def test_histogram_is_numpys(rng, bins, range, weighted, density):
    """Equal intervals over the data or a range, given edges; counts or weights, and densities."""
    x, w = rng.standard_normal((6, 7)), rng.random((6, 7)) if weighted else None
    hist, edges = np.histogram(x, bins, range, density=density, weights=w)
    given = bins if isinstance(bins, int) else ddpflow.tensor(bins, dtype=ddpflow.float64)
    weight = None if w is None else ddpflow.tensor(w)
    found = ddpflow.histogram(ddpflow.tensor(x), given, range=range, weight=weight, density=density)
    np.testing.assert_allclose(found.hist.numpy(), hist, rtol=1e-12)
    np.testing.assert_allclose(found.bin_edges.numpy(), edges, rtol=1e-12)


def test_histogramdd_is_numpys(rng):
    """Points in the plane: numbers of intervals and edges for each dimension, a flat range, any leading shape."""
    x, w = rng.standard_normal((5, 8, 2)).astype(np.float32), rng.random((5, 8)).astype(np.float32)
    y = np.array([-2.0, 0.0, 0.5, 2.0], np.float32)
    for bins, range, theirs in (
        (3, None, 3),
        ([3, 4], (-2.0, 2.0, -1.0, 3.0), [3, 4]),
        ([ddpflow.tensor(y), ddpflow.tensor(y)], None, [y, y]),
    ):
        pairs = None if range is None else [range[:2], range[2:]]
        hist, edges = np.histogramdd(x.reshape(-1, 2), theirs, pairs, weights=w.reshape(-1))
        found = ddpflow.histogramdd(ddpflow.tensor(x), bins, range=range, weight=ddpflow.tensor(w))
        assert found.hist.dtype is ddpflow.float32
        np.testing.assert_allclose(found.hist.numpy(), hist, rtol=1e-5)
        for own, other in zip(found.bin_edges, edges, strict=True):
            np.testing.assert_allclose(own.numpy(), other, rtol=1e-6)


def test_histogram_refuses():
    """Integers, edges that do not ascend, and weights of another shape."""
    x = ddpflow.tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="floating"):
        ddpflow.histogram(ddpflow.tensor([1, 2]), 2)
    with pytest.raises(RuntimeError, match="histogramdd"):
        ddpflow.histogram(x, ddpflow.tensor([1.0, 0.0]))
    with pytest.raises(RuntimeError, match="histogramdd"):
        ddpflow.histogram(x, 2, weight=ddpflow.tensor([1.0]))
