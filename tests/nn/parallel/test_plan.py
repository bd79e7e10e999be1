"""The bucket plan."""

import pytest

from ddpflow.errors import ValueRangeError
from ddpflow.nn.parallel.plan import default_cap, plan_buckets


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
