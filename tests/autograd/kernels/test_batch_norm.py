"""Batch norm by blocks of channels against the plain formula."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import batch_norm as kernels


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 3, 4, 5), (2, 70, 30, 20), (300, 2, 16, 16), (5, 7)])
def test_blocks_equal_the_formula(rng, monkeypatch, shape, affine):
    """Output, statistics and gradients agree; blocks of one channel, of several with a rest, and none."""
    x, g = rng.standard_normal(shape) * 2 + 1, rng.standard_normal(shape)
    w, b = (rng.standard_normal(shape[1]), rng.standard_normal(shape[1])) if affine else (None, None)
    found = kernels.batch_norm(np, x, w, b, 1e-5)
    back = kernels.batch_norm_backward(np, g, x, w, found[1], found[2], 1e-5)
    monkeypatch.setattr(kernels, "SHORTEST", 10**9)
    expected = kernels.batch_norm(np, x, w, b, 1e-5)
    expected_back = kernels.batch_norm_backward(np, g, x, w, found[1], found[2], 1e-5)
    for a, e in zip((*found, *back), (*expected, *expected_back), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-10)
