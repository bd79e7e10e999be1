"""The bucket plan and the bucket's views."""

import numpy as np
import pytest

from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.world import current_group
from ddpflow.errors import ValueRangeError
from ddpflow.nn.parallel.bucket import Bucket, default_cap, plan_buckets


@pytest.mark.parametrize(
    ("sizes", "options", "plan"),
    [
        ([4, 4, 4, 4], {"cap": 8}, [[3, 2], [1, 0]]),
        ([4, 4, 4, 4], {"cap": 1}, [[3], [2], [1], [0]]),
        ([4, 4, 4, 4], {"cap": 1e9}, [[3, 2, 1, 0]]),
        ([4, 9, 4], {"cap": 8}, [[2], [1], [0]]),
        ([3, 3, 3], {"cap": 8}, [[2, 1], [0]]),
        ([4, 4, 4, 4, 4], {"cap": 8, "first_cap": 4}, [[4], [3, 2], [1, 0]]),
        ([], {"cap": 8}, []),
    ],
)
def test_parameters_fill_buckets_in_reverse_order_and_none_overshoots(sizes, options, plan):
    """A bucket is closed before the parameter that would exceed the cap; a larger parameter is alone."""
    assert plan_buckets(sizes, **options) == plan


def test_kinds_do_not_mix_and_launch_order_is_by_the_last_ready_parameter():
    """Each dtype has buckets of its own, launched when their earliest registered parameter can be ready."""
    plan = plan_buckets([4] * 6, cap=100, kinds=["a", "b", "a", "b", "a", "c"])
    assert plan == [[5], [3, 1], [4, 2, 0]]


@pytest.mark.parametrize("options", [{"cap": 0}, {"cap": -1}, {"cap": 4, "first_cap": 0}])
def test_caps_must_be_positive(options):
    """A cap that nothing fits under is refused by name."""
    with pytest.raises(ValueRangeError, match="must be positive"):
        plan_buckets([4], **options)


@pytest.mark.parametrize("total", [1, 1000, 1 << 20, 5 << 20, 100 << 20, 10 << 30])
def test_the_default_cap_makes_few_equal_buckets(total):
    """Small models get one bucket, large ones at most eight of equal size."""
    cap = default_cap(total)
    count = -(-total // cap)
    assert 1 <= count <= 8
    assert total <= cap * count < total + cap


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


@pytest.mark.parametrize("case", ["none", "elsewhere", "view", "other view of the same memory"])
def test_take_makes_the_gradient_the_view(case):
    """Whatever the gradient was, it is the bucket's view afterwards, with the same values (zeros for None)."""
    param = Tensor(np.zeros(3, np.float32), requires_grad=True)
    bucket = Bucket(0, [0], ["p"], [param], current_group())
    values = np.array([1, 2, 3], np.float32)
    if case == "elsewhere":
        param.grad = Tensor(values.copy())
    elif case != "none":
        bucket.views[0][...] = values
        param.grad = bucket.grads[0] if case == "view" else Tensor(bucket.flat[:3])
    bucket.take(0, param)
    assert param.grad.array is bucket.views[0]
    assert param.grad.tolist() == ([0, 0, 0] if case == "none" else [1, 2, 3])
