"""Formulas block by block."""

import numpy as np
import pytest

from ddpflow.autograd.kernels.blocks import BLOCK, blockwise


@pytest.mark.parametrize("shape", [(5,), (3, BLOCK), (2 * BLOCK + 7,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_the_formula(rng, shape, dtype):
    """Small and large arrays, with a rest; the dtype stays."""
    a, b = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    found = blockwise(np, lambda a, b: a * np.exp(-b) + 1, a, b)
    np.testing.assert_array_equal(found, a * np.exp(-b) + 1)
    assert found.dtype == dtype


def test_other_arrays_go_whole(rng):
    """Memory orders and dtypes that differ go through the formula at once."""
    sizes = []

    def formula(a, b):
        sizes.append(a.size)
        return a + b

    a = rng.standard_normal((4, BLOCK))
    for left, right in ((a, a.T.copy().T), (a, a.astype(np.float32)), (a, a[:1])):
        np.testing.assert_array_equal(blockwise(np, formula, left, right), left + right)
    assert sizes == [a.size] * 3
