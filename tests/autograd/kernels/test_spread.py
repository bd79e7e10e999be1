"""A gradient repeated over what was reduced."""

import numpy as np
import pytest

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.kernels.spread import spread
from ddpflow.factories import tensor

CASES = [
    ((2, 3), None, ()),
    ((2, 3), None, (1, 1)),
    ((2, 3), (1,), (2,)),
    ((2, 3), (0,), (1, 3)),
    ((2, 3, 4), (0, 2), (3,)),
    ((), None, ()),
    ((0, 3), (0,), (3,)),
    ((200, 300), (1,), (200,)),
]


@pytest.mark.parametrize(("shape", "axes", "given"), CASES)
def test_arrays(shape, axes, given):
    """Small ones become arrays of their own, large ones views; the values are the same."""
    g = np.arange(1.0, 1.0 + np.prod(given)).reshape(given)
    kept = tuple([1 if axes is None or i in axes else n for i, n in enumerate(shape)])
    found = spread(np, g, kept, shape)
    np.testing.assert_array_equal(found, np.broadcast_to(g.reshape(kept), shape))
    if np.prod(shape) <= 8192:
        assert not np.shares_memory(found, g) and found.flags.writeable


def test_tensors():
    """On tensors it is recorded."""
    g = tensor([1.0, 2.0], requires_grad=True)
    found = spread(TensorBase.namespace, g, (2, 1), (2, 3))
    assert found.tolist() == [[1.0] * 3, [2.0] * 3]
    found.sum().backward()
    assert g.grad.tolist() == [3.0, 3.0]
