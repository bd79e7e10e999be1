"""Adaptive pooling: even and uneven windows, kept axes, refusals."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import adaptive_pool as ops


def written_out(x, target, reduce):
    """Window by window over the last axis: floor(i n / m) to ceil((i + 1) n / m)."""
    n = x.shape[-1]
    return np.stack([reduce(x[..., i * n // target : -(-(i + 1) * n // target)]) for i in range(target)], -1)


@pytest.mark.parametrize("target", [1, 2, 3, 5, 7])
def test_windows_cover_the_axis(rng, target):
    """Means and maxima over each window, where the sizes divide and where they do not."""
    x = rng.standard_normal((2, 3, 6))
    t = ddpflow.from_numpy(x)
    mean, most = ops.adaptive_avg_pool1d(t, target), ops.adaptive_max_pool1d(t, target)
    np.testing.assert_allclose(mean.numpy(), written_out(x, target, lambda p: p.mean(-1)), rtol=1e-10)
    np.testing.assert_array_equal(most.numpy(), written_out(x, target, lambda p: p.max(-1)))
    both, index = ops.adaptive_max_pool1d(t, target, return_indices=True)
    np.testing.assert_array_equal(both.numpy(), np.take_along_axis(x, index.numpy(), 2))


def test_none_keeps_an_axis_and_a_batch_may_be_missing(rng):
    """(C, H, W) with (None, 2)."""
    x = ddpflow.from_numpy(rng.standard_normal((3, 5, 4)))
    assert tuple(ops.adaptive_avg_pool2d(x, (None, 2)).shape) == (3, 5, 2)
    assert tuple(ops.adaptive_max_pool2d(x, (3, None)).shape) == (3, 3, 4)
    assert tuple(ops.adaptive_avg_pool3d(x.unsqueeze(0), 1).shape) == (1, 1, 1, 1)


def test_refuses_what_does_not_fit():
    """Wrong numbers of axes and sizes."""
    with pytest.raises(RuntimeError, match=r"\(2, 3\)"):
        ops.adaptive_avg_pool2d(ddpflow.zeros(2, 3), 1)
    with pytest.raises(RuntimeError, match="2 elements"):
        ops.adaptive_max_pool2d(ddpflow.zeros(2, 3, 4), (1, 1, 1))
