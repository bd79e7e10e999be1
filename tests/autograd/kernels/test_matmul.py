"""The product of an affine layer, by both ways."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.kernels.matmul import FEW, SMALL, TALL, column_sums, matmul_transposed, product


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
@pytest.mark.parametrize("width", [SMALL, SMALL - 1])
@pytest.mark.parametrize("biased", [True, False])
def test_equals_the_formula_and_is_contiguous(rng, rows, width, biased):
    """On both sides of the limits the result is ``x @ w.T + bias`` in C order, and the inputs stay."""
    x, w = rng.standard_normal((rows, SMALL + 3)), rng.standard_normal((width, SMALL + 3))
    bias = rng.standard_normal(width) if biased else None
    before = x.copy(), w.copy()
    out = matmul_transposed(np, x, w, bias)
    np.testing.assert_allclose(out, x @ w.T + (0 if bias is None else bias), rtol=1e-10, atol=1e-12)
    assert out.flags.c_contiguous
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(w, before[1])


def test_product_of_arrays_and_of_tensors(rng):
    """The same numbers, and tensors stay tensors."""
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5))
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-12)
    out = np.empty((a @ b).shape)
    assert product(a, b, out) is out
    np.testing.assert_array_equal(out, product(a, b))
    assert isinstance(product(ddpflow.from_numpy(a), ddpflow.from_numpy(b)), ddpflow.Tensor)


@pytest.mark.parametrize("rows", [0, 1, 5, TALL, TALL + 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_column_sums(rng, rows, dtype):
    """The sums, on both sides of the limit, of every type and layout."""
    g = (rng.standard_normal((rows, 3)) + (1j if dtype == "complex128" else 0)).astype(dtype)
    tolerance = {"float16": 2e-2, "float32": 1e-4}.get(dtype, 1e-10)
    expected = g.astype(complex).sum(0)
    for layout in (g, np.asfortranarray(g), np.concatenate([g, g], 1)[:, :3]):
        found = column_sums(layout)
        assert found.shape == (3,) and found.dtype == (np.float32 if dtype == "float16" else g.dtype)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(rows, 1) ** 0.5)
    spread = np.broadcast_to(np.asarray(2.5, dtype), (rows, 3))
    np.testing.assert_allclose(column_sums(spread), np.full(3, 2.5 * rows), rtol=1e-6)


def test_column_sums_of_tensors_stay_tensors(rng):
    """As a second backward pass needs them."""
    g = rng.standard_normal((4, 3))
    found = column_sums(ddpflow.from_numpy(g))
    assert isinstance(found, ddpflow.Tensor)
    np.testing.assert_allclose(found.numpy(), g.sum(0), rtol=1e-12)
