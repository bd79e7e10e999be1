"""Tables by number, and numbers as rows."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.lookup import embedding, one_hot
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError, ValueRangeError


def table(rows=5, width=3, dtype=np.float64):
    """A leaf with distinct rows."""
    return ddpflow.tensor(np.arange(rows * width, dtype=dtype).reshape(rows, width), requires_grad=True)


@pytest.mark.parametrize("width", [3, 40])
def test_rows_and_their_gradient(width):
    """Repeated numbers add up their gradients, in narrow and in wide tables; the padding row gets none."""
    weight = table(5, width)
    index = ddpflow.tensor([[1, 4, 1], [0, 1, 3]])
    found = embedding(index, weight, padding_idx=-1)
    np.testing.assert_array_equal(found.numpy(force=True), weight.numpy(force=True)[index.numpy()])
    found.sum().backward()
    assert weight.grad.numpy()[:, 0].tolist() == [1, 3, 0, 1, 0]


def test_gradients_scaled_by_frequency():
    """Each row's gradient is divided by how often the row was used."""
    weight = table()
    embedding(ddpflow.tensor([1, 1, 2]), weight, scale_grad_by_freq=True).sum().backward()
    assert weight.grad.numpy()[:, 0].tolist() == [0, 1, 1, 0, 0]


def test_max_norm():
    """Used rows whose norm is larger are scaled down in the table itself."""
    weight = table().detach()
    embedding(ddpflow.tensor([1]), weight, max_norm=1.0)
    norms = np.linalg.norm(weight.numpy(), axis=1)
    assert norms[1] == pytest.approx(1.0, abs=1e-6) and norms[2] > 1


def test_half_precision_sums_in_float32():
    """100,000 repeats of a row add up in float32 and are rounded once."""
    weight = ddpflow.zeros(2, 1, dtype=ddpflow.float16, requires_grad=True)
    found = embedding(ddpflow.ones(100000, dtype=ddpflow.int64), weight)
    (found * 0.25).sum(dtype=ddpflow.float32).backward()
    assert weight.grad.tolist() == [[0.0], [float(np.float16(25000))]]


def test_one_hot():
    """A row for each number; the length is the largest number plus one unless given."""
    assert one_hot(ddpflow.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert one_hot(ddpflow.tensor(1), 4).tolist() == [0, 1, 0, 0]
    assert one_hot(ddpflow.zeros(0, dtype=ddpflow.int64), 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: embedding(ddpflow.tensor([5]), table()), IndexRangeError),
        (lambda: embedding(ddpflow.tensor([-1]), table()), IndexRangeError),
        (lambda: embedding(ddpflow.tensor([1.0]), table()), DtypeError),
        (lambda: embedding(ddpflow.tensor([1]), table()[0]), ShapeError),
        (lambda: embedding(ddpflow.tensor([1]), table(), padding_idx=5), ValueRangeError),
        (lambda: one_hot(ddpflow.tensor([3]), 3), ShapeError),
        (lambda: one_hot(ddpflow.tensor([-1])), ShapeError),
        (lambda: one_hot(ddpflow.tensor([1.0])), DtypeError),
        (lambda: one_hot(ddpflow.zeros(0, dtype=ddpflow.int64)), ShapeError),
    ],
)
def test_bad_input(call, error):
    """Numbers outside the table are named."""
    with pytest.raises(error):
        call()
