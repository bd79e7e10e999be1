"""Softmax modules."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

X = np.array([[[0.5, -1.0, 2.0], [1.5, 0.0, -3.0]], [[4.0, 4.5, 5.0], [-2.0, 0.25, 1.0]]])


def softmax(x, axis):
    """Returns the softmax by its definition."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_values(dim):
    """Softmax, LogSoftmax and Softmin work along their dimension."""
    x = ddpflow.tensor(X)
    np.testing.assert_allclose(nn.Softmax(dim)(x).numpy(), softmax(X, dim), rtol=1e-12)
    np.testing.assert_allclose(nn.LogSoftmax(dim)(x).numpy(), np.log(softmax(X, dim)), rtol=1e-12)
    np.testing.assert_allclose(nn.Softmin(dim)(x).numpy(), softmax(-X, dim), rtol=1e-12)


def test_default_dimension():
    """Without a dimension 1-d and 3-d inputs take 0, others 1."""
    np.testing.assert_allclose(nn.Softmax()(ddpflow.tensor(X)).numpy(), softmax(X, 0), rtol=1e-12)
    np.testing.assert_allclose(nn.Softmax()(ddpflow.tensor(X[0])).numpy(), softmax(X[0], 1), rtol=1e-12)


def test_softmax2d():
    """Softmax2d works over channels, with or without a batch, and on nothing else."""
    x = np.arange(24.0).reshape(1, 2, 3, 4) % 7
    np.testing.assert_allclose(nn.Softmax2d()(ddpflow.tensor(x)).numpy(), softmax(x, 1), rtol=1e-12)
    np.testing.assert_allclose(nn.Softmax2d()(ddpflow.tensor(x[0])).numpy(), softmax(x[0], 0), rtol=1e-12)
    with pytest.raises(ValueError, match=r"3D or 4D, got shape \(2, 3\)"):
        nn.Softmax2d()(ddpflow.ones(2, 3))


def test_repr_and_range():
    """The dimension is printed; one out of range is an IndexError."""
    assert repr(nn.Softmax(dim=1)) == "Softmax(dim=1)"
    with pytest.raises(IndexError):
        nn.Softmax(5)(ddpflow.ones(2, 3))
