"""Gradients that are known to be zero."""

import numpy as np
import pytest

from ddpflow.autograd.ops.tie import select_first
from ddpflow.autograd.zeros import StaticZeros, gradients_of_zero
from ddpflow.errors import ShapeError
from ddpflow.factories import tensor


def test_arithmetic_keeps_it_static():
    """Added to something it gives that thing itself; scaled, itself; another dtype costs nothing."""
    zeros = StaticZeros((2,), np.dtype(np.float32))
    array = np.array([1.0, 2.0], np.float32)
    assert zeros + array is array
    other = StaticZeros((2,), np.dtype(np.float32))
    assert zeros + other is other
    assert zeros * 3 is zeros and 3 * zeros is zeros
    assert zeros.astype(np.dtype(np.float16)).dtype == np.float16
    assert repr(zeros) == "StaticZeros((2,), float32)"


def test_it_becomes_an_array_when_asked():
    """Materialized it is a fresh array of the shape and dtype."""
    made = StaticZeros((2, 3), np.dtype(np.float16)).materialize()
    assert made.shape == (2, 3) and made.dtype == np.float16 and not made.any()


def test_shapes_must_fit():
    """Another shape is an error that names both."""
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        StaticZeros((2,), np.dtype(np.float32)) + np.zeros(3)


def test_in_a_backward_pass():
    """It runs through the graph without arrays, fires hooks, and sets grad to zeros; a real gradient replaces it."""
    x, unused, both = (tensor([v, v], requires_grad=True) for v in (1.0, 2.0, 3.0))
    calls = []
    unused.register_post_accumulate_grad_hook(lambda p: calls.append("unused"))
    out = select_first(x * both, unused * 2, both)
    out.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and both.grad.tolist() == [1.0, 1.0]
    assert calls == ["unused"]
    assert unused.grad is not None and unused.grad.tolist() == [0.0, 0.0]


def test_what_is_passed_on_of_nothing_and_of_zeros():
    """An absent gradient stays absent; zeros become zeros in the shape and type of each node and leaf."""
    x = tensor(np.ones((2, 3), np.float32), requires_grad=True)
    y = tensor(np.ones((3, 4)), requires_grad=True)
    edges = (x, None, (y * 2.0).node)
    zeros = StaticZeros((2, 4), np.dtype(np.float64))
    assert gradients_of_zero(edges, None) == [None, None, None]
    first, none, last = gradients_of_zero(edges, zeros)
    assert none is None
    assert [(z.shape, z.dtype) for z in (first, last)] == [((2, 3), np.float32), ((3, 4), np.float64)]
