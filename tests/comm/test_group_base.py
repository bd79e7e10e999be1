"""Argument checks of a group."""

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError
from ddpflow.testing import run_ranks


def checks(rank: int) -> None:
    """Each wrong argument is named."""
    group = dist.current_group()
    other = 1 - rank
    for tag in (-1, 1 << 30, 1.5, True, "x"):
        with pytest.raises(ValueRangeError, match="tag must be an integer"):
            group.send(np.zeros(1), other, tag)
    for peer in (2, -1, None, "0", 0.5):
        with pytest.raises(ValueRangeError, match=r"is not in group world \(its ranks: 0, 1\)"):
            group.send(np.zeros(1), peer)
    with pytest.raises(ValueRangeError, match="itself"):
        group.recv(np.zeros(1), rank)
    with pytest.raises(ValueRangeError, match="rank 0 must give the list" if rank == 0 else "only rank 0 may give"):
        group.gather(np.zeros(1), None if rank == 0 else [np.zeros(1)] * 2, 0)
    with pytest.raises(DtypeError, match="float32 and float64"):
        group.all_to_all_single(np.zeros(2, "f4"), np.zeros(2))
    with pytest.raises(ShapeError, match="3 rows of the input cannot be shared equally by 2 ranks"):
        group.all_to_all_single(np.zeros(3), np.zeros(3))
    with pytest.raises(ShapeError, match="add up to 3 rows"):
        group.all_to_all_single(np.zeros(2), np.zeros(3), None, [4, -1])
    with pytest.raises(ShapeError, match="one array per rank"):
        group.all_to_all([np.zeros(1)], [np.zeros(1)] * 2)


def test_checks():
    """Wrong arguments are refused on their own rank."""
    run_ranks(checks, 2)


def test_empty():
    """Communication memory has the asked length and dtype."""
    group = dist.current_group()
    for n, dtype in ((0, "f4"), (7, np.float64), (3, np.dtype("i8"))):
        array = group.empty(n, dtype)
        assert array.shape == (n,) and array.dtype == np.dtype(dtype) and array.flags.carray
