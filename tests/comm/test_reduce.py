"""The reduction arithmetic: order, rounding, blocks and aliasing."""

from fractions import Fraction

import numpy as np
import pytest

from ddpflow.comm.reduce import BLOCK_BYTES, ReduceOp, check_reducible, reduce_in_rank_order, ufunc_of_two
from ddpflow.errors import DtypeError
from tests.comm.reference import DTYPES, dtype_of, is_defined, reduced, same, values


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_every_pair(name, n):
    """All dtypes and ops give what the definition gives, into a new array and into each of the sources."""
    for op in ReduceOp:
        if not is_defined(name, op):
            with pytest.raises(DtypeError, match=op.name):
                check_reducible(dtype_of(name), op)
            continue
        check_reducible(dtype_of(name), op)
        sources = [values(name, r, 33) for r in range(n)]
        expected = reduced(sources, op)
        out = np.empty_like(sources[0])
        reduce_in_rank_order(sources, out, op)
        same(out, expected)
        for i in range(n):
            mine = [s.copy() for s in sources]
            reduce_in_rank_order(mine, mine[i], op)
            same(mine[i], expected)
            for j in set(range(n)) - {i}:
                same(mine[j], sources[j])


@pytest.mark.parametrize("name", DTYPES)
def test_one_ufunc_for_two(name):
    """Where one ufunc is said to be the whole reduction of two arrays it is; half types and averages need more."""
    sources = [values(name, r, 33) for r in range(2)]
    for op in filter(lambda op: is_defined(name, op), ReduceOp):
        ufunc = ufunc_of_two(dtype_of(name), op)
        assert (ufunc is None) == (op is ReduceOp.AVG or name in ("float16", "bfloat16"))
        if ufunc is not None:
            same(ufunc(*sources, out=np.empty_like(sources[0])), reduced(sources, op))


@pytest.mark.parametrize("name", ["float32", "float16", "float64", "int8"])
def test_blocks_do_not_show(name):
    """Around the block size, each element is as if it were alone."""
    block = BLOCK_BYTES // dtype_of(name).itemsize
    for size in (0, 1, block - 1, block, block + 1, 2 * block + 3):
        sources = [values(name, r, size) for r in range(3)]
        expected = reduced(sources, ReduceOp.SUM)
        for i in range(3):
            mine = [s.copy() for s in sources]
            reduce_in_rank_order(mine, mine[i], ReduceOp.SUM)
            same(mine[i], expected)


def test_pieces_do_not_show():
    """However an array is cut, the bits are the same."""
    sources = [values("float32", r, 70_001) for r in range(4)]
    whole = np.empty_like(sources[0])
    reduce_in_rank_order(sources, whole, ReduceOp.AVG)
    for cuts in (2, 7, 1000):
        out = np.empty_like(whole)
        edges = np.linspace(0, out.size, cuts + 1).astype(int)
        for a, b in zip(edges[:-1], edges[1:], strict=True):
            reduce_in_rank_order([s[a:b] for s in sources], out[a:b], ReduceOp.AVG)
        same(out, whole)


def test_half_types_round_once():
    """Many small float16 addends survive beside a large one, because the sum is kept in float32."""
    sources = [np.array([2048.0], np.float16)] + [np.array([0.5], np.float16)] * 8
    out = np.empty(1, np.float16)
    reduce_in_rank_order(sources, out, ReduceOp.SUM)
    assert out[0] == np.float16(2052.0)


def test_average_of_equal_values_is_that_value():
    """Also for sizes that are no powers of two."""
    x = np.array([0.1, 1 / 3, 7.0, 1e-30], np.float32)
    for n in (2, 3, 5, 6, 7):
        out = np.empty_like(x)
        reduce_in_rank_order([x] * n, out, ReduceOp.AVG)
        assert np.allclose(out, x, rtol=1e-7 * n, atol=0)
    reduce_in_rank_order([x, x, x, x], out, ReduceOp.AVG)
    same(out, x)


def test_average_is_correctly_rounded_division():
    """For three ranks the average is the sum divided by three, rounded once more."""
    sources = [values("float64", r, 50) for r in range(3)]
    out = np.empty(50)
    reduce_in_rank_order(sources, out, ReduceOp.AVG)
    for value, a, b, c in zip(out, *sources, strict=True):
        exact = Fraction(float(a + b + c)) / 3
        assert abs(Fraction(float(value)) - exact) <= abs(exact) * Fraction(1, 2**53)
