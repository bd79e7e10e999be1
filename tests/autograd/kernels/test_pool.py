"""Sum pooling, fold and unfold against definitions written out."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import pool as kernels
from ddpflow.autograd.kernels.pool import Window

WINDOWS = [
    Window((2, 2), (2, 2), (0, 0), (1, 1), (4, 6), (2, 3)),
    Window((3,), (2,), (1,), (1,), (7,), (4,)),
    Window((2, 3), (1, 2), (1, 0), (2, 1), (5, 7), (5, 3)),
    Window((3,), (2,), (0,), (1,), (6,), (3,)),  # the last window reaches over the end
    Window((2, 1, 2), (2, 1, 1), (0, 0, 1), (1, 1, 1), (4, 2, 3), (2, 2, 4)),
]


def members(x, window, fill):
    """For each output position the list of what its window holds, as the last axis."""
    places = np.meshgrid(*map(np.arange, window.kernel), indexing="ij")
    out = np.empty((*x.shape[:2], *window.out, int(np.prod(window.kernel))))
    for position in np.ndindex(*window.out):
        for number, place in enumerate(zip(*[p.ravel() for p in places], strict=True)):
            at = [
                o * s - p + q * d
                for o, s, p, q, d in zip(position, window.stride, window.padding, place, window.dilation, strict=True)
            ]
            inside = all(0 <= i < n for i, n in zip(at, window.size, strict=True))
            out[(..., *position, number)] = x[(..., *at)] if inside else fill
    return out


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_sum_pool_and_its_adjoint(rng, window):
    """The sum over each window, and ``<g, pool(x)> = <adjoint(g), x>``."""
    x = rng.standard_normal((2, 3, *window.size))
    y = kernels.sum_pool(np, x, window)
    np.testing.assert_allclose(y, members(x, window, 0.0).sum(-1), rtol=1e-12, atol=1e-12)
    g = rng.standard_normal(y.shape)
    back = kernels.sum_pool_backward(np, g, window)
    assert back.shape == x.shape
    assert (back * x).sum() == pytest.approx((g * y).sum())


@pytest.mark.parametrize("window", [WINDOWS[0], WINDOWS[2]], ids=repr)
def test_unfold_and_its_adjoint(rng, window):
    """Columns hold the windows, channel by channel; fold adds them back."""
    x = rng.standard_normal((2, 3, *window.size))
    columns = kernels.unfold(np, x, window)
    expected = np.moveaxis(members(x, window, 0.0), -1, 2).reshape(columns.shape)
    np.testing.assert_array_equal(columns, expected)
    other = rng.standard_normal(columns.shape)
    assert (kernels.fold(np, other, window) * x).sum() == pytest.approx((other * columns).sum())


def test_tiles_and_reach():
    """A window knows whether it covers the input exactly, and how far it reaches."""
    assert [w.tiles() for w in WINDOWS] == [True, False, False, False, False]
    assert WINDOWS[3].reach() == (7,) and WINDOWS[1].reach() == (9,)
