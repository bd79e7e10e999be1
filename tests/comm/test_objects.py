"""Object collectives: sizes, checks, and objects that are larger than one message."""

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import ValueRangeError
from ddpflow.testing import run_ranks


def uneven(rank: int) -> None:
    """Objects of very different size, arrays inside included."""
    mine = np.arange(rank * 50_000)
    out = [None] * dist.get_world_size()
    dist.all_gather_object(out, mine)
    assert [len(o) for o in out] == [0, 50_000, 100_000] and out[2][-1] == 99_999
    assert dist.broadcast_object(mine, 2).size == 100_000


def test_uneven():
    """Each object comes whole."""
    run_ranks(uneven, 3)


def checks(rank: int) -> None:
    """Lists of wrong length and lists on the wrong rank are refused before anything is sent."""
    with pytest.raises(ValueRangeError, match="2 in all, not 1"):
        dist.all_gather_object([None], 1)
    with pytest.raises(ValueRangeError, match="the destination, and only it"):
        dist.gather_object(1, None if rank == 0 else [None, None], 0)
    with pytest.raises(ValueRangeError, match="not both"):
        dist.broadcast_object_list([1], 0, group_src=0)
    with pytest.raises(ValueRangeError, match="needs one place"):
        dist.scatter_object_list([], [1, 2], 0)


def test_checks():
    """Wrong arguments."""
    run_ranks(checks, 2)


def other_length(rank: int) -> None:
    """The receiving list is shorter than the sent one."""
    dist.broadcast_object_list([1, 2] if rank == 0 else [None], 0)


def test_other_length():
    """A list of another length is an error on the rank that has it."""
    errors = run_ranks(other_length, 2, return_exceptions=True)
    assert isinstance(errors[1], ValueRangeError) and "sent 2 objects, this list has 1" in str(errors[1])
