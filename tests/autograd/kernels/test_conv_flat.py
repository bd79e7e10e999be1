"""Convolution over flat samples against the general way."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import conv, conv_flat
from ddpflow.autograd.kernels.conv import Plan

CASES = [  # samples, channels, height, width, outputs, kernel, pads, dilation
    (5, 3, 7, 9, 4, (3, 3), ((1, 1), (1, 1)), (1, 1)),
    (5, 40, 7, 9, 4, (3, 2), ((0, 0), (0, 0)), (1, 1)),
    (2, 20, 8, 8, 6, (5, 5), ((2, 2), (2, 2)), (1, 1)),
    (3, 4, 9, 9, 5, (3, 3), ((2, 1), (0, 3)), (2, 2)),
    (3, 4, 9, 9, 5, (1, 1), ((1, 1), (1, 1)), (1, 1)),
    (7, 33, 6, 5, 7, (2, 4), ((1, 1), (3, 3)), (2, 1)),
    (2, 30, 4, 3, 5, (3, 5), ((9, 0), (0, 20)), (2, 2)),  # most of what the kernel sees is padding
]


@pytest.mark.parametrize("chunk", [1, 4000, 10**6])
@pytest.mark.parametrize("case", CASES, ids=[str(i) for i in range(len(CASES))])
def test_equals_the_general_way(rng, monkeypatch, case, chunk):
    """Forward and both gradients agree, one sample at a time, some at a time with a rest, and all at once."""
    n, c, h, w, o, kernel, pads, dilation = case
    monkeypatch.setattr(conv_flat, "CHUNK", chunk)
    x, weight = rng.standard_normal((n, c, h, w)), rng.standard_normal((o, c, *kernel))
    plan = Plan((1, 1), pads, dilation, 1)
    assert conv_flat.fits(plan, 2)
    size = plan.output_size((h, w), kernel)
    found = conv_flat.flat_forward(x, weight, None, pads, dilation, size)
    g = rng.standard_normal(found.shape)
    back = conv.input_gradient(np, g, weight, (h, w), plan)
    weights = conv_flat.flat_weight_gradient(x, g, kernel, pads, dilation)
    monkeypatch.setattr(conv, "fits", lambda *_: False)
    np.testing.assert_allclose(found, conv.forward(np, x, weight, None, plan, size), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(weights, conv.weight_gradient(np, x, g, kernel, plan), rtol=1e-9, atol=1e-10)
    monkeypatch.setattr(conv, "_turned", lambda *_: None)
    np.testing.assert_allclose(back, conv.input_gradient(np, g, weight, (h, w), plan), rtol=1e-9, atol=1e-10)


def test_leaves_to_the_general_way_what_it_cannot_do():
    """Steps, groups, other numbers of axes and cropping."""
    pads = ((1, 1), (1, 1))
    assert not conv_flat.fits(Plan((2, 1), pads, (1, 1), 1), 2)
    assert not conv_flat.fits(Plan((1, 1), pads, (1, 1), 2), 2)
    assert not conv_flat.fits(Plan((1,), ((1, 1),), (1,), 1), 1)
    assert not conv_flat.fits(Plan((1, 1), ((-1, 1), (1, 1)), (1, 1), 1), 2)
