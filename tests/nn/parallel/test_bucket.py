"""A bucket's views, and gradients that become them."""

import numpy as np
import pytest

from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.world import current_group
from ddpflow.nn.parallel.bucket import Bucket


def test_views_are_the_flat_array_aligned_and_in_shape():
    """Each parameter's view lies in the flat array, on a 64-byte boundary of it, in the parameter's shape."""
    arrays = [np.zeros(shape, np.float32) for shape in ((2, 3), (), (0, 3), (17,))]
    params = [Tensor(a) for a in arrays]
    bucket = Bucket(2, [5, 4, 3, 1], ["a", "b", "c", "d"], params, current_group())
    for view, array, offset in zip(bucket.views, arrays, bucket.offsets, strict=True):
        assert view.shape == array.shape
        assert offset * 4 % 64 == 0
        view[...] = offset + 1
        assert array.size == 0 or bucket.flat[offset] == offset + 1
    assert bucket.tag == "bucket 2: a, b, c, d"
    used = sum(a.size for a in arrays)
    assert np.count_nonzero(bucket.flat) == used


@pytest.mark.parametrize("case", ["none", "elsewhere", "view", "other view of the same memory", "data replaced"])
def test_take_makes_the_gradient_the_view(case):
    """Whatever the gradient was, it is the bucket's view afterwards, with the same values (zeros for None)."""
    param = Tensor(np.zeros(3, np.float32), requires_grad=True)
    bucket = Bucket(0, [0], ["p"], [param], current_group())
    values = np.array([1, 2, 3], np.float32)
    if case == "elsewhere":
        param.grad = Tensor(values.copy())
    elif case == "data replaced":
        param.grad = bucket.grads[0]
        param.grad.data = Tensor(values.copy())
    elif case != "none":
        bucket.views[0][...] = values
        param.grad = bucket.grads[0] if case == "view" else Tensor(bucket.flat[:3])
    bucket.take(0, param)
    assert param.grad is bucket.grads[0]
    assert param.grad.array is bucket.views[0]
    assert param.grad.tolist() == ([0, 0, 0] if case == "none" else [1, 2, 3])
