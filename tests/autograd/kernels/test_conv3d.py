"""Convolution over three axes by planes against the general way."""

import types

import numpy as np
import pytest

from ddpflow.autograd.kernels import conv, conv3d
from ddpflow.autograd.kernels.conv import Plan

OTHER = types.SimpleNamespace(**vars(np))  # the same functions, in a namespace for which there is no kernel

CASES = [  # channels, size, outputs, kernel, plan
    (4, (5, 4, 6), 3, (3, 3, 3), Plan((1, 1, 1), ((1, 1), (1, 1), (1, 1)), (1, 1, 1), 1)),
    (4, (7, 5, 4), 6, (3, 2, 1), Plan((2, 1, 2), ((0, 1), (1, 0), (0, 0)), (1, 2, 1), 2)),
    (3, (6, 4, 3), 3, (2, 3, 2), Plan((3, 2, 1), ((2, 1), (1, 1), (0, 1)), (2, 1, 1), 3)),
    (2, (1, 3, 3), 5, (3, 1, 2), Plan((1, 1, 1), ((4, 4), (0, 0), (1, 0)), (2, 1, 1), 1)),  # most depths see padding
]


@pytest.mark.parametrize("chunk", [1, 1000, 10**6])
@pytest.mark.parametrize("case", CASES, ids=[str(i) for i in range(len(CASES))])
def test_equals_the_general_way(rng, monkeypatch, case, chunk):
    """The product and the weight's gradient, one sample at a time, some with a rest, and all at once."""
    channels, size, outs, kernel, plan = case
    monkeypatch.setattr(conv3d, "CHUNK", chunk)
    x, w = rng.standard_normal((3, channels, *size)), rng.standard_normal((outs, channels // plan.groups, *kernel))
    bias, out = rng.standard_normal(outs), plan.output_size(size, kernel)
    found = conv3d.forward_3d(x, w, bias, plan, out)
    np.testing.assert_allclose(found, conv.forward(OTHER, x, w, bias, plan, out), rtol=1e-9, atol=1e-10)
    g = rng.standard_normal(found.shape)
    weights = conv3d.weight_gradient_3d(x, g, kernel, plan)
    np.testing.assert_allclose(weights, conv.weight_gradient(OTHER, x, g, kernel, plan), rtol=1e-9, atol=1e-10)
