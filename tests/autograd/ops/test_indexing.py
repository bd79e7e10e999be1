"""Square brackets: reading and writing, by everything that PyTorch takes."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.errors import IndexRangeError, ShapeError

X = np.arange(60.0).reshape(3, 4, 5)
MASK = X.sum(2) % 3 == 0


def tensor_of(value):
    """The index with tensors for arrays."""
    if isinstance(value, tuple):
        return tuple(tensor_of(item) for item in value)
    return ddpflow.tensor(value) if isinstance(value, np.ndarray) else value


# Indices for which NumPy and PyTorch agree.
INDICES = [
    1,
    -1,
    np.int64(2),
    slice(1, None),
    slice(None, None, 2),
    slice(5, 9),
    None,
    ...,
    (),
    (1, 2),
    (1, 2, 3),
    (slice(None), -1),
    (..., 0),
    (None, ..., None),
    (1, ..., slice(1, 3)),
    (slice(0, 2), None, 1),
    [0, 2],
    [0, 0, -1],
    [True, False, True],
    [[0, 1], [2, 0]],
    np.array([2, 0, 2]),
    np.array([[1], [2]]),
    np.zeros(0, np.int64),
    np.array([True, False, True]),
    MASK,
    MASK[:, 0],
    np.zeros_like(MASK),
    ([0, 2], [1, 3]),
    (np.array([0, 2]), np.array([[1], [3]])),
    (slice(None), [0, 0, 3]),
    (slice(1, None), np.array([1, -1]), slice(None, None, 2)),
    ([0, 1], slice(None), [2, 2]),
    (..., [0, 4]),
    (MASK, [0]),
    (slice(None), slice(None), np.array([True, False, True, False, True])),
    (None, [1, 2]),
    True,
]


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("as_tensors", [False, True], ids=["arrays", "tensors"])
def test_reading_follows_numpy(index, as_tensors):
    """Values and shape are NumPy's; the gradient counts how often each element was read."""
    x = ddpflow.tensor(X, requires_grad=True)
    found = x[tensor_of(index) if as_tensors else index]
    expected = X[index]
    np.testing.assert_array_equal(found.numpy(force=True), expected)
    if expected.size:
        weights = np.arange(1.0, expected.size + 1).reshape(expected.shape)
        (found * ddpflow.tensor(weights)).sum().backward()
        count = np.zeros_like(X)
        np.add.at(count, index, weights)
        np.testing.assert_array_equal(x.grad.numpy(), count)


@pytest.mark.parametrize("index", [i for i in INDICES if i is not True], ids=str)
def test_writing_follows_numpy(index):
    """Numbers and tensors are written where NumPy writes them."""
    expected, x = X.copy(), ddpflow.tensor(X)
    values = np.arange(100.0, 100.0 + X[index].size).reshape(X[index].shape)
    expected[index] = values
    x[tensor_of(index)] = ddpflow.tensor(values)
    np.testing.assert_array_equal(x.numpy(), expected)
    expected[index] = -1
    x[index] = -1
    np.testing.assert_array_equal(x.numpy(), expected)


def test_numbers_beside_arrays_come_first():
    """PyTorch takes numbers before arrays: the array's dimension stays where it stands, unlike NumPy's."""
    x = ddpflow.tensor(X)
    np.testing.assert_array_equal(x[0, :, [1, 2]].numpy(), X[0][:, [1, 2]])
    np.testing.assert_array_equal(x[[0, 1], :, 2].numpy(), X[:, :, 2][[0, 1]])
    np.testing.assert_array_equal(x[:, 1, [0, 4]].numpy(), X[:, 1][:, [0, 4]])
    x[0, :, [1, 2]] = 7.0
    assert (x[0].numpy()[:, [1, 2]] == 7).all() and (x.numpy() == 7).sum() == 8


def test_zero_dimensional_indices():
    """A 0-d integer tensor selects like a number and gives a view; bytes are masks."""
    x = ddpflow.tensor(X)
    part = x[ddpflow.tensor(1)]
    part.zero_()
    assert x[1].numpy().sum() == 0
    assert x[0, 0][ddpflow.tensor([1, 0, 0, 0, 1], dtype=ddpflow.uint8)].tolist() == [0.0, 4.0]
    assert ddpflow.tensor(3.0)[...].item() == 3.0
    assert ddpflow.tensor([1, 2])[0].shape == ()
    assert ddpflow.tensor(5.0)[None].shape == (1,)


def test_indices_may_change_after_reading():
    """Backward uses the indices as they were."""
    x = ddpflow.tensor([1.0, 2.0, 3.0], requires_grad=True)
    index = ddpflow.tensor([0, 0])
    y = x[index]
    index.fill_(2)
    y.sum().backward()
    assert x.grad.tolist() == [2, 0, 0]


def test_duplicates_accumulate():
    """Reading an element twice doubles its gradient."""
    x = ddpflow.tensor([5.0, 6.0, 7.0], requires_grad=True)
    x[[0, 0, 1]].sum().backward()
    assert x.grad.tolist() == [2, 1, 0]


def test_index_put():
    """The function form, writing or adding; adding takes every repeat."""
    x = ddpflow.zeros(3, dtype=ddpflow.float64)
    index = (ddpflow.tensor([0, 2, 0]),)
    values = ddpflow.tensor([1.0, 2.0, 4.0], dtype=ddpflow.float64)
    assert ddpflow.index_put(x, index, values).tolist() == [4, 0, 2]
    assert ddpflow.index_put(x, index, values, accumulate=True).tolist() == [5, 0, 2]
    leaf = ddpflow.rand(3, 4, dtype=ddpflow.float64, requires_grad=True)
    source = ddpflow.rand(2, 4, dtype=ddpflow.float64, requires_grad=True)
    gradcheck(lambda a, v: a.index_put((ddpflow.tensor([1, 1]),), v, accumulate=True), [leaf, source])
    with pytest.raises(ShapeError, match="values"):
        ddpflow.index_put(x, index, ddpflow.ones(2), accumulate=True)


@pytest.mark.parametrize(
    "index",
    [3, -4, (0, 0, 0, 0), [0, 3], (0, [0, 4]), 1.5, ddpflow.tensor([1.0]), "a", (..., 0, ...), np.ones((2, 4), bool)],
    ids=str,
)
def test_bad_indices(index):
    """Out of range, too many, or no index at all: IndexError, as in PyTorch, for reading and writing."""
    x = ddpflow.tensor(X)
    with pytest.raises(IndexRangeError):
        x[index]
    with pytest.raises(IndexRangeError):
        x[index] = 0.0


def test_writing_what_does_not_fit():
    """Shapes are named."""
    x = ddpflow.tensor(X)
    with pytest.raises(RuntimeError, match=r"\(3,\).*\(3, 4, 5\)"):
        x[0] = ddpflow.ones(3)
    with pytest.raises(RuntimeError):
        x[[0, 1]] = ddpflow.ones(3, 4, 5)


def test_membership():
    """``in`` compares with every element."""
    assert 3.0 in ddpflow.tensor(X) and 99 not in ddpflow.tensor(X)
