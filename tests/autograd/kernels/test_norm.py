"""The blocked layer norm against the formula, over several blocks of rows."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import norm as kernels


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("shape", "axes"), [((300, 257), 1), ((3, 5, 4), 2), ((2, 3, 4), 1)])
def test_layer_norm_and_gradients_equal_the_formula(rng, shape, axes, affine):
    """The path by blocks and the plain one, which Fortran-ordered arrays take, agree to rounding."""
    x, g = rng.standard_normal(shape) * 3 + 1, rng.standard_normal(shape)
    w, b = (rng.standard_normal(shape[-axes:]), rng.standard_normal(shape[-axes:])) if affine else (None, None)
    y, mean, rstd = kernels.layer_norm(np, x, w, b, axes, 1e-5)
    plain = kernels.layer_norm(np, np.asfortranarray(x), w, b, axes, 1e-5)
    for a, e in zip((y, mean, rstd), plain, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-10, atol=1e-11)
    found = kernels.layer_norm_backward(np, g, x, w, mean, rstd, axes)
    expected = kernels.layer_norm_backward(np, np.asfortranarray(g), x, w, mean, rstd, axes)
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-10)


def test_rows_have_mean_0_and_variance_1(rng):
    """Without scale and shift each row is standardised, also where its mean is large."""
    x = rng.standard_normal((50, 1000)).astype(np.float32) + 1000
    y, mean, _ = kernels.layer_norm(np, x, None, None, 1, 1e-5)
    np.testing.assert_allclose(y.mean(1), 0, atol=2e-4)
    np.testing.assert_allclose(y.var(1), 1, rtol=1e-3)
    np.testing.assert_allclose(mean[:, 0], x.astype(np.float64).mean(1), rtol=1e-6)
