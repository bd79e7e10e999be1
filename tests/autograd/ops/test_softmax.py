"""Softmax and log_softmax with infinities, half types and dimensions out of range."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.softmax import log_softmax, softmax, softmin

INF = float("inf")


@pytest.mark.parametrize("dtype", [ddpflow.float32, ddpflow.float16], ids=["float32", "float16"])
def test_rows_with_minus_infinity(dtype):
    """A masked entry has probability and gradient 0; a row of only -inf is NaN, and no other row is."""
    x = ddpflow.tensor([[-INF, 0.0, 0.0], [1e4, 0.0, -1e4], [-INF, -INF, -INF]], dtype=dtype, requires_grad=True)
    y = softmax(x, 1)
    assert y.dtype == dtype
    assert y[0].tolist() == [0.0, 0.5, 0.5]
    assert y[1].tolist() == [1.0, 0.0, 0.0]
    assert np.isnan(y.detach().numpy()[2]).all()
    (y[:2] * ddpflow.tensor([3.0, 5.0, 7.0], dtype=dtype)).sum().backward()
    assert x.grad[0].tolist() == [0.0, -0.5, 0.5]
    assert x.grad[1].tolist() == [0.0, 0.0, 0.0]


def test_log_softmax_of_large_numbers_is_exact():
    """No overflow, and no loss next to the largest."""
    y = log_softmax(ddpflow.tensor([1e4, 0.0, -1e4]), 0)
    assert y.tolist() == [0.0, -1e4, -2e4]


def test_dtype_and_the_old_choice_of_dimension():
    """``dtype`` converts first; without ``dim`` PyTorch's old rule chooses."""
    x = ddpflow.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert softmax(x, 1, dtype=ddpflow.float64).dtype == ddpflow.float64
    np.testing.assert_allclose(softmax(x).numpy().sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(softmin(x.unsqueeze(0)).numpy(), 1)


def test_a_dimension_out_of_range_is_an_index_error():
    """As in PyTorch."""
    with pytest.raises(IndexError):
        softmax(ddpflow.zeros(2, 3), 2)
