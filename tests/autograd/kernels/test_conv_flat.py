"""Convolution over flat samples against the general way."""

import types

import numpy as np
import pytest

from ddpflow.autograd.kernels import conv, conv_flat
from ddpflow.autograd.kernels.conv import Plan

OTHER = types.SimpleNamespace(**vars(np))  # the same functions, in a namespace for which there is no kernel

CASES = [  # channels, height, width, outputs, kernel, plan
    (3, 7, 9, 4, (3, 3), Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 1)),
    (40, 7, 9, 4, (3, 2), Plan((1, 1), ((0, 0), (0, 0)), (1, 1), 1)),
    (20, 8, 8, 6, (5, 5), Plan((1, 1), ((2, 2), (2, 2)), (1, 1), 1)),
    (4, 9, 9, 5, (3, 3), Plan((1, 1), ((2, 1), (0, 3)), (2, 2), 1)),
    (4, 9, 9, 5, (1, 1), Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 1)),
    (33, 6, 5, 7, (2, 4), Plan((1, 1), ((1, 1), (3, 3)), (2, 1), 1)),
    (30, 4, 3, 5, (3, 5), Plan((1, 1), ((9, 0), (0, 20)), (2, 2), 1)),  # most of what is seen is padding
    (6, 7, 8, 6, (3, 3), Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 6)),  # each channel for itself
    (8, 7, 8, 12, (3, 2), Plan((1, 1), ((1, 0), (1, 1)), (1, 2), 4)),
    (5, 9, 8, 66, (3, 3), Plan((2, 2), ((1, 1), (1, 1)), (1, 1), 1)),
    (40, 9, 11, 66, (3, 3), Plan((2, 3), ((1, 2), (0, 1)), (3, 1), 1)),
    (22, 9, 8, 4, (1, 1), Plan((2, 2), ((0, 0), (0, 0)), (1, 1), 1)),
    (8, 10, 9, 8, (5, 2), Plan((3, 2), ((4, 1), (0, 1)), (2, 1), 2)),
]


@pytest.mark.parametrize(("chunk", "long"), [(1, 0), (1, 200), (4000, 0), (10**6, 512)])
@pytest.mark.parametrize("case", CASES, ids=[str(i) for i in range(len(CASES))])
def test_equals_the_general_way(rng, monkeypatch, case, chunk, long):
    """The product and the weight's gradient, one group or sample at a time, some with a rest, and all at once."""
    c, h, w, o, kernel, plan = case
    monkeypatch.setattr(conv_flat, "CHUNK", chunk)
    monkeypatch.setattr(conv_flat, "LONG", long)
    x, weight = rng.standard_normal((5, c, h, w)), rng.standard_normal((o, c // plan.groups, *kernel))
    bias, size = rng.standard_normal(o), plan.output_size((h, w), kernel)
    found = conv_flat.flat_forward(x, weight, bias, plan, size)
    np.testing.assert_allclose(found, conv.forward(OTHER, x, weight, bias, plan, size), rtol=1e-9, atol=1e-10)
    g = rng.standard_normal(found.shape)
    weights = conv_flat.flat_weight_gradient(x, g, kernel, plan)
    np.testing.assert_allclose(weights, conv.weight_gradient(OTHER, x, g, kernel, plan), rtol=1e-9, atol=1e-10)


def test_weights_in_any_order(rng):
    """A weight that is a transposed view, as the input's gradient has it, gives what its copy gives."""
    x, weight = rng.standard_normal((2, 6, 5, 7)), rng.standard_normal((6, 4, 3, 3)).swapaxes(0, 1)
    plan = Plan((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    found = conv_flat.flat_forward(x, weight, None, plan, (5, 7))
    np.testing.assert_allclose(found, conv.forward(OTHER, x, weight.copy(), None, plan, (5, 7)), rtol=1e-9, atol=1e-10)
