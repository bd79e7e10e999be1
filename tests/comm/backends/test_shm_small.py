"""The short way of small all-reduces: the same results and errors as the long one."""

import numpy as np
import pytest

from ddpflow.comm.backends.shm_small import SmallReducer
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import CompletedWork
from ddpflow.errors import CommError, MismatchError
from tests.comm.backends.shm_world import at_once, call, make_world


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64", "complex128"])
@pytest.mark.parametrize("n", [0, 1, 100])
def test_results(n, dtype):
    """The rank that comes last takes the short way to its end; the first one continues on the long way."""
    first, second = make_world(2)
    for seq in range(1, 40):
        a, b = np.arange(n).astype(dtype), (np.arange(n) * 3).astype(dtype)
        expected = a + b
        one = first.all_reduce(a, ReduceOp.SUM, call(seq))
        two = second.all_reduce(b, ReduceOp.SUM, call(seq))
        assert isinstance(two, CompletedWork)
        assert one.wait()
        assert two.wait()
        assert one.result() is a
        assert two.result() is b
        assert np.array_equal(a, expected)
        assert np.array_equal(b, expected)


def test_numbers_beyond_31_bits():
    """A job that lives long enough to make more than 2**31 collectives goes on."""
    first, second = make_world(2)
    for seq in range(2**31 - 2, 2**31 + 3):
        arrays = [np.full(2, 1.5), np.full(30_000, 2.5)]
        for array in arrays:
            work = first.all_reduce(array, ReduceOp.SUM, call(seq))
            at_once(work.wait, second.all_reduce(array.copy(), ReduceOp.SUM, call(seq)).wait)
        assert [a[0] for a in arrays] == [3.0, 5.0]


def test_what_is_not_for_the_short_way():
    """Large arrays, and any while something is in flight, are left to the long way, untouched."""
    first, _ = make_world(2, inline_bytes=64)
    small = SmallReducer(first._engine)
    assert small.all_reduce(np.ones(9), ReduceOp.SUM, call(1)) is None
    assert first._engine.launched == 0
    first.all_reduce(np.ones(8), ReduceOp.SUM, call(1))
    assert small.all_reduce(np.ones(8), ReduceOp.SUM, call(2)) is None
    assert first._engine.launched == 1


def test_mismatch():
    """A difference found on the short way is reported by the long one, on both ranks."""
    first, second = make_world(2)
    one = first.all_reduce(np.ones(3), ReduceOp.SUM, call(1))
    two = second.all_reduce(np.ones(4), ReduceOp.SUM, call(1))
    for error in at_once(one.wait, two.wait):
        assert isinstance(error, MismatchError)
        assert "float64[3]" in str(error)
        assert "float64[4]" in str(error)


def test_interrupted(monkeypatch):
    """Ctrl-C in the middle is passed on, and breaks the group, whose ranks no longer agree on what was done."""
    from ddpflow.comm.backends import shm_small

    first, second = make_world(2)
    first.all_reduce(np.ones(3), ReduceOp.AVG, call(1))

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(shm_small, "combine_in_rank_order", interrupt)
    with pytest.raises(KeyboardInterrupt):
        second.all_reduce(np.ones(3), ReduceOp.AVG, call(1))
    assert isinstance(second.failure, CommError)
    assert "KeyboardInterrupt" in str(second.failure)


def test_alternating_lengths_and_dtypes():
    """What is remembered of one call does not leak into the next of another length, dtype or op."""
    first, second = make_world(2)
    kinds = [
        (5, "float32", ReduceOp.SUM),
        (5, "float64", ReduceOp.SUM),
        (7, "float64", ReduceOp.MAX),
        (5, "float32", ReduceOp.AVG),
    ]
    for seq, (n, dtype, op) in enumerate(kinds * 12, start=1):
        a, b = np.arange(n).astype(dtype) + seq, np.arange(n).astype(dtype) * 3
        expected = {ReduceOp.SUM: a + b, ReduceOp.MAX: np.maximum(a, b), ReduceOp.AVG: (a + b) / 2}[op]
        work = first.all_reduce(a, op, call(seq))
        second.all_reduce(b, op, call(seq)).wait()
        work.wait()
        assert np.array_equal(a, expected)
        assert np.array_equal(b, expected)


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("n", [3, 50_000])
def test_overflow_is_silent(n, registered):
    """Gradients that overflow become infinite without a warning, which the suite would turn into an error."""
    world = make_world(2)
    arrays = [b.empty(n, np.dtype("f4")) if registered else np.empty(n, np.float32) for b in world]
    for array in arrays:
        array[:] = 3e38
    works = [b.all_reduce(a, ReduceOp.SUM, call(1)) for b, a in zip(world, arrays, strict=True)]
    at_once(*[work.wait for work in works])
    assert all(np.isinf(array).all() for array in arrays)
