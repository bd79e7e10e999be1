"""Fractional max pooling against the windows written out."""

import numpy as np
import pytest

import ddpflow
import ddpflow.nn.functional as F
from ddpflow.factories import tensor


def starts(n, kernel, count, share):
    """Where the windows start, one after the other."""
    step = (n - kernel) / (count - 1) if count > 1 else 0.0
    return [*[int((i + share) * step) - int(share * step) for i in range(count - 1)], n - kernel]


def test_windows_in_two_dimensions(rng):
    """Each plane has windows of its own; the first number places them along the width."""
    x, shares = rng.standard_normal((2, 3, 9, 11)), rng.random((2, 3, 2))
    found, index = F.fractional_max_pool2d(tensor(x), (3, 2), (4, 5), None, True, tensor(shares))
    for n, c in np.ndindex(2, 3):
        tops, lefts = starts(9, 3, 4, shares[n, c, 1]), starts(11, 2, 5, shares[n, c, 0])
        for i, j in np.ndindex(4, 5):
            window = x[n, c, tops[i] : tops[i] + 3, lefts[j] : lefts[j] + 2]
            assert found[n, c, i, j].item() == window.max()
            assert x[n, c].reshape(-1)[index[n, c, i, j].item()] == window.max()


def test_windows_in_three_dimensions(rng):
    """The numbers have the order of the axes; a sample without a batch."""
    x, shares = rng.standard_normal((2, 6, 5, 7)), rng.random((1, 2, 3))
    found = F.fractional_max_pool3d(tensor(x), 2, output_ratio=(0.5, 0.25, 0.6), _random_samples=tensor(shares))
    assert found.shape == (2, 3, 1, 4)
    for c in range(2):
        a, b, d = (starts(n, 2, m, shares[0, c, i]) for i, (n, m) in enumerate(((6, 3), (5, 1), (7, 4))))
        for i, j, k in np.ndindex(3, 1, 4):
            part = x[c, a[i] : a[i] + 2, b[j] : b[j] + 2, d[k] : d[k] + 2]
            assert found[c, i, j, k].item() == part.max()


def test_numbers_for_more_samples_than_there_are(rng):
    """The first ones count."""
    x, shares = tensor(rng.standard_normal((1, 2, 9, 9))), rng.random((3, 2, 2))
    found = F.fractional_max_pool2d(x, 2, 4, _random_samples=tensor(shares))
    assert found.equal(F.fractional_max_pool2d(x, 2, 4, _random_samples=tensor(shares[:1])))


def test_gradient_and_drawn_windows(rng):
    """A gradient goes to the largest values; windows are drawn again at each call, and the same after the same seed."""
    x = tensor(rng.standard_normal((2, 3, 20, 20)), requires_grad=True)
    ddpflow.manual_seed(1)
    first, index = F.fractional_max_pool2d(x, 2, 12, return_indices=True)
    second = F.fractional_max_pool2d(x, 2, 12)
    ddpflow.manual_seed(1)
    assert F.fractional_max_pool2d(x, 2, 12).equal(first) and not second.equal(first)
    first.sum().backward()
    expected = np.zeros((6, 400))
    np.add.at(expected, (np.arange(6)[:, None], index.numpy().reshape(6, -1)), 1)
    np.testing.assert_array_equal(x.grad.numpy().reshape(6, 400), expected)


def test_refuses():
    """Both or none of size and ratio, windows that do not fit, and samples of another shape."""
    x = ddpflow.ones(1, 2, 5, 5)
    for options in ({}, {"output_size": 2, "output_ratio": 0.5}):
        with pytest.raises(ValueError, match="not both"):
            F.fractional_max_pool2d(x, 2, **options)
    with pytest.raises(RuntimeError, match="do not fit"):
        F.fractional_max_pool2d(x, 3, 4)
    for shape in ((1, 2, 3), (0, 2, 2), (1, 3, 2), (2, 2)):
        with pytest.raises(RuntimeError, match="random samples"):
            F.fractional_max_pool2d(x, 2, 2, _random_samples=ddpflow.ones(shape))
    with pytest.raises(RuntimeError, match="one number or 2"):
        F.fractional_max_pool2d(x, (2, 2, 2), 2)
    with pytest.raises(RuntimeError, match="3D or 4D"):
        F.fractional_max_pool2d(x[0, 0], 2, 2)
