"""Fold and unfold as functions."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.conv import conv2d
from ddpflow.autograd.ops.fold import fold, unfold


def test_a_convolution_is_a_product_with_the_columns(rng):
    """Unfold, multiply, reshape."""
    x, w = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((4, 3, 3, 2))
    columns = unfold(ddpflow.from_numpy(x), (3, 2), padding=1, stride=(2, 1), dilation=(1, 2))
    product = w.reshape(4, -1) @ columns.numpy()
    expected = conv2d(ddpflow.from_numpy(x), ddpflow.from_numpy(w), stride=(2, 1), padding=1, dilation=(1, 2))
    np.testing.assert_allclose(product.reshape(expected.shape), expected.numpy(), rtol=1e-10, atol=1e-12)


def test_fold_of_unfold_counts_how_often_each_place_was_seen():
    """Places in the middle belong to more windows."""
    x = ddpflow.ones(1, 4, 4)
    back = fold(unfold(x, 3), 4, 3)
    assert back[0].tolist() == [[1.0, 2.0, 2.0, 1.0], [2.0, 4.0, 4.0, 2.0], [2.0, 4.0, 4.0, 2.0], [1.0, 2.0, 2.0, 1.0]]


def test_refuses_what_does_not_fit():
    """Windows too large, columns of another number."""
    with pytest.raises(RuntimeError, match="does not fit"):
        unfold(ddpflow.zeros(1, 1, 2, 2), 3)
    with pytest.raises(RuntimeError, match="9 places at 4 positions"):
        fold(ddpflow.zeros(1, 9, 5), (4, 4), 3)
    with pytest.raises(RuntimeError, match=r"\(2, 2\)"):
        unfold(ddpflow.zeros(2, 2), 1)
