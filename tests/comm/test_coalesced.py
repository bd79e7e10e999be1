"""Coalesced forms: checks and asynchronous use."""

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import DtypeError, ValueRangeError
from ddpflow.testing import run_ranks


def in_flight(rank: int) -> None:
    """Results arrive in the arrays when the Work has ended, strided ones included."""
    whole = np.zeros((2, 4))
    parts = [whole[:, ::2], np.array([rank + 1.0])]
    whole[:, ::2] = rank
    work = dist.all_reduce_coalesced(parts, async_op=True)
    work.wait()
    assert whole.tolist() == [[1, 0, 1, 0]] * 2 and parts[1][0] == 3.0
    outs = [[np.empty(1)], [np.empty(1)]]
    dist.all_gather_coalesced(outs, [np.array([rank + 0.5])], async_op=True).wait()
    assert [o[0][0] for o in outs] == [0.5, 1.5]


def test_in_flight():
    """async_op returns one Work for all."""
    run_ranks(in_flight, 2)


def test_checks():
    """Lists must not be empty, mixed, or of wrong length."""
    x = np.zeros(2)
    with pytest.raises(ValueRangeError, match="at least one tensor"):
        dist.all_reduce_coalesced([])
    with pytest.raises(DtypeError, match="one dtype"):
        dist.broadcast_coalesced([x, np.zeros(2, "f4")], 0)
    with pytest.raises(ValueRangeError, match="1 lists of 1 outputs"):
        dist.all_gather_coalesced([[x, x]], [x])
    with pytest.raises(DtypeError, match="one dtype"):
        dist.all_gather_coalesced([[x, x]], [x, np.zeros(2, "f4")])
