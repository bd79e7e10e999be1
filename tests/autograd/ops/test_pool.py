"""Pooling as functions: indices and unpooling, ceil mode, divisors, refusals."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import pool as ops


def test_unpooling_puts_values_back_where_they_were(rng):
    """max_unpool of max_pool with indices has the maxima at their places and zeros elsewhere."""
    x = ddpflow.from_numpy(rng.standard_normal((2, 3, 6, 4)))
    y, index = ops.max_pool2d(x, 2, return_indices=True)
    assert index.dtype == ddpflow.int64
    back = ops.max_unpool2d(y, index, 2)
    np.testing.assert_array_equal(back.numpy()[back.numpy() != 0], x.numpy()[back.numpy() != 0])
    assert (back.numpy() != 0).sum() == y.numel()
    with pytest.raises(IndexError):
        ops.max_unpool2d(y, index + 100, 2)


def test_ceil_mode_keeps_the_last_window_unless_it_starts_outside():
    """As in PyTorch: 5 places by 2 give 3 windows; with a window all in the padding it is dropped."""
    x = ddpflow.arange(5.0).reshape(1, 1, 5)
    assert ops.max_pool1d(x, 2, ceil_mode=True).tolist() == [[[1.0, 3.0, 4.0]]]
    assert ops.max_pool1d(x, 2).tolist() == [[[1.0, 3.0]]]
    assert ops.avg_pool1d(x, 2, ceil_mode=True).tolist() == [[[0.5, 2.5, 4.0]]]
    assert tuple(ops.max_pool1d(ddpflow.zeros(1, 1, 1), 1, stride=2, ceil_mode=True).shape) == (1, 1, 1)


def test_what_an_average_is_divided_by():
    """With the padding's zeros, without, or by a number of one's own."""
    x = ddpflow.ones(1, 1, 2, 2)
    assert ops.avg_pool2d(x, 2, 1, 1)[0, 0, 0, 0].item() == 0.25
    assert ops.avg_pool2d(x, 2, 1, 1, count_include_pad=False)[0, 0, 0, 0].item() == 1.0
    assert ops.avg_pool2d(x, 2, 1, 1, divisor_override=8)[0, 0, 1, 1].item() == 0.5


def test_power_means_and_unbatched_input(rng):
    """lp_pool is the p-th root of the sum of p-th powers; a missing batch axis stays missing."""
    x = ddpflow.from_numpy(rng.random((3, 6)) + 0.5)
    y = ops.lp_pool1d(x, 3.0, 2)
    assert tuple(y.shape) == (3, 3)
    np.testing.assert_allclose(y.numpy(), (x.numpy().reshape(3, 3, 2) ** 3).sum(-1) ** (1 / 3), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ops.max_pool2d(x, 2, padding=2), "half of effective kernel size"),
        (lambda x: ops.max_pool2d(x, 9), "too small"),
        (lambda x: ops.max_pool2d(x, 0), "greater than zero"),
        (lambda x: ops.max_pool2d(x, (1, 2, 3)), r"tuple of 2 ints"),
        (lambda x: ops.avg_pool2d(x[0, 0], 2), r"\(4, 4\)"),
        (lambda x: ops.avg_pool2d(x, 2, divisor_override=0), "divisor"),
    ],
)
def test_bad_arguments(call, words):
    """A RuntimeError that says what."""
    with pytest.raises(RuntimeError, match=words):
        call(ddpflow.zeros(1, 1, 4, 4))
