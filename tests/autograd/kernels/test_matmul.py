"""The product of an affine layer, by both ways."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.kernels.matmul import FEW, SMALL, matmul_transposed, product


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
    assert isinstance(product(ddpflow.from_numpy(a), ddpflow.from_numpy(b)), ddpflow.Tensor)
