"""Writing and reducing by index."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck, gradgradcheck
from ddpflow.errors import IndexRangeError, ShapeError, ValueRangeError

INDEX = ddpflow.tensor([[0, 1, 1], [2, 2, 0]])


def leaf(*shape, start=0.2):
    """A float64 leaf with distinct values from ``start`` on."""
    return ddpflow.tensor(start + 0.3 * np.arange(np.prod(shape)).reshape(shape), requires_grad=True)


def test_scatter_and_scatter_add():
    """The last write counts; sums take every element."""
    x = ddpflow.zeros(2, 3, dtype=ddpflow.float64)
    source = ddpflow.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], dtype=ddpflow.float64)
    assert x.scatter(1, INDEX, source).tolist() == [[1, 4, 0], [32, 0, 16]]
    assert x.scatter_add(1, INDEX, source).tolist() == [[1, 6, 0], [32, 0, 24]]
    assert x.scatter(1, INDEX, 5.0).tolist() == [[5, 5, 0], [5, 0, 5]]
    assert x.scatter(1, INDEX, value=6).tolist() == [[6, 6, 0], [6, 0, 6]]
    assert (x + 1).scatter(1, INDEX, source, reduce="multiply").tolist() == [[1, 8, 1], [32, 1, 128]]
    assert x.scatter(1, INDEX, source, reduce="add").tolist() == x.scatter_add(1, INDEX, source).tolist()
    assert x.scatter(1, INDEX[:, :1], source).tolist() == [[1, 0, 0], [0, 0, 8]]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce, include_self):
    """Values by the definition, gradients by finite differences, both orders."""
    x, source = leaf(2, 3, start=0.55), leaf(2, 3, start=0.4)
    groups = {place: [x.numpy(force=True)[place]] for place in np.ndindex(2, 3)}
    touched = set()
    for place in np.ndindex(2, 3):
        target = (place[0], int(INDEX.numpy()[place]))
        if target not in touched and not include_self:
            groups[target] = []
        touched.add(target)
        groups[target].append(source.numpy(force=True)[place])
    function = {"sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
    expected = np.array([function(groups[place]) for place in np.ndindex(2, 3)]).reshape(2, 3)

    def call(a, s):
        return a.scatter_reduce(1, INDEX, s, reduce, include_self=include_self)

    np.testing.assert_allclose(call(x, source).numpy(force=True), expected)
    gradcheck(call, [x, source])
    gradgradcheck(call, [x, source])


def test_products_with_zeros():
    """The gradient of a product with zeros in it is the product of the others, not 0 / 0."""
    x = ddpflow.tensor([2.0, 3.0], requires_grad=True)
    source = ddpflow.tensor([0.0, 5.0, 0.0, 7.0], requires_grad=True)
    x.scatter_reduce(0, ddpflow.tensor([0, 0, 1, 1]), source, "prod").sum().backward()
    assert source.grad.tolist() == [10, 0, 21, 0] and x.grad.tolist() == [0, 0]


def test_index_reduce():
    """The same for whole slices."""
    x = ddpflow.ones(3, 2)
    source = ddpflow.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    index = ddpflow.tensor([0, 2, 0])
    assert x.index_reduce(0, index, source, "prod").tolist() == [[5, 12], [1, 1], [3, 4]]
    assert x.index_reduce(0, index, source, "amax", include_self=False).tolist() == [[5, 6], [1, 1], [3, 4]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.scatter(1, INDEX + 1, 1.0), IndexRangeError),
        (lambda x: x.scatter(1, INDEX, ddpflow.ones(2, 2)), ShapeError),
        (lambda x: x.scatter(1, INDEX, ddpflow.ones(2, 3, dtype=ddpflow.float64)), ShapeError),
        (lambda x: x.scatter(1, INDEX, 1.0, reduce="mean"), ValueRangeError),
        (lambda x: x.scatter_add(0, ddpflow.tensor([0]), x), ShapeError),
        (lambda x: x.scatter_reduce(1, INDEX, x, "median"), ValueRangeError),
        (lambda x: x.index_reduce(0, ddpflow.tensor([0, 1]), x, "sum"), ValueRangeError),
    ],
)
def test_bad_input(call, error):
    """Indices, shapes, dtypes and reductions that do not fit."""
    with pytest.raises(error):
        call(ddpflow.ones(2, 3))
