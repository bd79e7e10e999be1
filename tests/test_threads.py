"""The number of BLAS threads."""

import pytest

import ddpflow
from ddpflow.errors import ValueRangeError


def test_the_number_can_be_set_and_read():
    """What was set is what is read."""
    before = ddpflow.get_num_threads()
    assert before >= 1
    try:
        ddpflow.set_num_threads(1)
        assert ddpflow.get_num_threads() == 1
    finally:
        ddpflow.set_num_threads(before)
    assert ddpflow.get_num_threads() == before
    with pytest.raises(ValueRangeError):
        ddpflow.set_num_threads(0)


def test_between_operations():
    """Operations never run beside one another; asking for it changes nothing."""
    ddpflow.set_num_interop_threads(4)
    assert ddpflow.get_num_interop_threads() == 1
