"""Choice by a mask, against NumPy's where."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import choose as kernels
from ddpflow.autograd.kernels.choose import choose


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(3, 7), (100, 999), (kernels.BLOCK + 5,)])
def test_equals_where(rng, dtype, shape):
    """Arrays and numbers on either side, over several blocks, with infinities and NaN."""
    a, b = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    a.ravel()[:3] = np.inf, np.nan, -0.0
    b.ravel()[1:4] = -np.inf, np.nan, 0.0
    mask = rng.random(shape) < 0.5
    for left, right in ((a, b), (a, 0), (0, b), (a, -1.5), (2, b), (a, 0.0)):
        found = choose(np, mask, left, right)
        np.testing.assert_array_equal(found, np.where(mask, left, right))
        assert found.dtype == dtype


def test_leaves_the_rest_to_where(rng):
    """Other dtypes, shapes that broadcast, other memory orders."""
    mask = rng.random((100, 100)) < 0.5
    a = rng.standard_normal((100, 100))
    for left, right in ((a.T, a), (a[:1], a), (a.astype(np.int64), 3), (a, a.astype(np.float32)), (a, a[0, 0])):
        found, expected = choose(np, mask, left, right), np.where(mask, left, right)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    np.testing.assert_array_equal(choose(np, mask.T, a, 0), np.where(mask.T, a, 0))
