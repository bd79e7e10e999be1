"""The convolution kernels against a convolution written out place by place."""

import itertools
import types

import numpy as np
import pytest

from ddpflow.autograd.kernels import conv as kernels
from ddpflow.autograd.kernels.conv import Plan

OTHER = types.SimpleNamespace(**vars(np))  # the same functions, in a namespace for which there is no kernel


def written_out(x, w, plan):
    """The convolution as a sum for each output place."""
    n, outs, spatial = x.shape[0], w.shape[0], x.ndim - 2
    padded = np.pad(x, ((0, 0), (0, 0), *plan.pads))
    size = plan.output_size(x.shape[2:], w.shape[2:])
    out = np.zeros((n, outs, *size))
    group_in, group_out = w.shape[1], outs // plan.groups
    for place in np.ndindex(*size):
        window = tuple(
            slice(p * s, p * s + d * (k - 1) + 1, d)
            for p, s, d, k in zip(place, plan.stride, plan.dilation, w.shape[2:], strict=True)
        )
        for o in range(outs):
            c = o // group_out * group_in
            part = padded[(slice(None), slice(c, c + group_in), *window)]
            out[(slice(None), o, *place)] = (part * w[o]).sum(tuple(range(1, spatial + 2)))
    return out


PLANS = [
    ((2, 3, 7), (4, 3, 3), Plan((1,), ((1, 1),), (1,), 1)),
    ((2, 4, 6, 5), (6, 2, 3, 2), Plan((2, 1), ((1, 1), (0, 2)), (1, 2), 2)),
    ((3, 2, 6, 7), (4, 2, 3, 3), Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 1)),
    ((3, 2, 9, 8), (4, 2, 3, 2), Plan((1, 1), ((2, 0), (1, 3)), (2, 3), 1)),
    ((2, 4, 5, 5), (4, 1, 3, 3), Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 4)),
    ((2, 2, 4, 3, 5), (3, 2, 2, 1, 3), Plan((1, 2, 1), ((0, 0), (1, 0), (1, 1)), (1, 1, 2), 1)),
    ((2, 3, 4, 4), (5, 3, 1, 1), Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 1)),
    ((2, 4, 9, 8), (6, 2, 3, 4), Plan((2, 3), ((1, 1), (0, 2)), (1, 2), 2)),
    ((2, 3, 7, 6), (3, 1, 2, 2), Plan((3, 2), ((0, 4), (3, 0)), (3, 1), 3)),  # no window meets some of the input
    ((2, 4, 3, 8), (2, 2, 1, 1), Plan((2, 4), ((3, 3), (2, 5)), (1, 1), 2)),  # and some windows meet none of it
    ((2, 3, 5, 6, 7), (2, 3, 3, 2, 2), Plan((2, 1, 2), ((1, 1), (0, 1), (1, 0)), (1, 2, 1), 1)),
    ((1, 4, 5, 4, 3), (4, 1, 3, 3, 2), Plan((1, 1, 1), ((1, 1), (1, 1), (0, 1)), (1, 1, 1), 4)),
    ((3, 4, 11), (8, 2, 3), Plan((2,), ((1, 1),), (2,), 2)),
]


@pytest.mark.parametrize("xp", [np, OTHER], ids=["numpy", "general"])
@pytest.mark.parametrize(("shape", "weight", "plan"), PLANS, ids=[str(i) for i in range(len(PLANS))])
def test_forward_is_the_sum_and_the_others_are_its_adjoints(rng, xp, shape, weight, plan):
    """``<g, conv(x, w)>`` equals ``<input_gradient(g, w), x>`` and ``<weight_gradient(x, g), w>``."""
    x, w = rng.standard_normal(shape), rng.standard_normal(weight)
    size = plan.output_size(shape[2:], weight[2:])
    expected = written_out(x, w, plan)
    np.testing.assert_allclose(kernels.forward(xp, x, w, None, plan, size), expected, rtol=1e-10, atol=1e-11)
    bias = rng.standard_normal(len(w))
    moved = kernels.forward(xp, x, w, bias, plan, size) - expected
    np.testing.assert_allclose(np.moveaxis(moved, 1, -1), np.broadcast_to(bias, np.moveaxis(moved, 1, -1).shape))
    g = rng.standard_normal(expected.shape)
    dot = (g * expected).sum()
    gx = kernels.input_gradient(xp, g, w, shape[2:], plan)
    gw = kernels.weight_gradient(xp, x, g, weight[2:], plan)
    assert gx.shape == x.shape and gw.shape == w.shape
    assert (gx * x).sum() == pytest.approx(dot)
    assert (gw * w).sum() == pytest.approx(dot)
    # adjoint in every direction, not only along x and w themselves
    other = rng.standard_normal(shape)
    assert (gx * other).sum() == pytest.approx((g * written_out(other, w, plan)).sum())
    other = rng.standard_normal(weight)
    assert (gw * other).sum() == pytest.approx((g * written_out(x, other, plan)).sum())


def test_windows_of_a_kernel():
    """Each place meets the padded input in steps of the stride, shifted by the dilation."""
    found = dict(kernels.windows((2, 1), (3, 2), (2, 1), (3, 1)))
    assert found == {(0, 0): (slice(0, 5, 2), slice(0, 2, 1)), (1, 0): (slice(3, 8, 2), slice(0, 2, 1))}


@pytest.mark.parametrize("stride", [1, 2])
def test_half_types_and_empty_batches(stride):
    """A batch of nothing gives nothing, in shape."""
    plan = Plan((stride, stride), ((1, 1), (1, 1)), (1, 1), 1)
    x, w = np.zeros((0, 2, 5, 5)), np.ones((3, 2, 3, 3))
    size = plan.output_size((5, 5), (3, 3))
    assert kernels.forward(np, x, w, None, plan, size).shape == (0, 3, *size)
    assert kernels.input_gradient(np, np.zeros((0, 3, *size)), w, (5, 5), plan).shape == x.shape
    assert not kernels.weight_gradient(np, x, np.zeros((0, 3, *size)), (3, 3), plan).any()


def test_plans_are_described_by_their_numbers():
    """A plan's text names what it does, for error messages and test names."""
    assert repr(PLANS[0][2]) == "Plan(stride=(1,), pads=((1, 1),), dilation=(1,), groups=1)"
    assert [len(p.stride) for _, _, p in itertools.islice(PLANS, 2)] == [1, 2]
