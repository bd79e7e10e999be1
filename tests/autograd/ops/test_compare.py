"""Comparisons, logic and where."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import detect_anomaly, grad
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor

NAN, INF = float("nan"), float("inf")


def test_operators():
    """Every comparison operator gives booleans, with tensors and numbers on either side."""
    x, y = tensor([1.0, 2.0, 3.0]), tensor([3.0, 2.0, 1.0])
    assert (x == y).tolist() == [False, True, False]
    assert (x != y).tolist() == [True, False, True]
    assert (x < y).tolist() == [True, False, False] and (2 < x).tolist() == [False, False, True]
    assert (x <= y).tolist() == [True, True, False] and (x >= 2).tolist() == [False, True, True]
    assert (x > y).dtype is ddpflow.bool


def test_comparison_with_what_is_no_number():
    """A tensor equals neither None nor text; it stays usable as a dictionary key."""
    x = tensor([1.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    assert {x: 1}[x] == 1


def test_comparisons_take_no_part_in_the_graph():
    """Results require no gradient."""
    x = tensor([1.0], requires_grad=True)
    assert not (x > 0).requires_grad and not ddpflow.isnan(x).requires_grad


def test_element_tests():
    """NaN, infinities and signs, on floats and on integers."""
    x = tensor([NAN, INF, -INF, -0.0, 1.0])
    assert ddpflow.isnan(x).tolist() == [True, False, False, False, False]
    assert ddpflow.isinf(x).tolist() == [False, True, True, False, False]
    assert ddpflow.isfinite(x).tolist() == [False, False, False, True, True]
    assert ddpflow.isposinf(x).tolist() == [False, True, False, False, False]
    assert ddpflow.isneginf(x).tolist() == [False, False, True, False, False]
    assert ddpflow.signbit(x).tolist()[1:] == [False, True, True, False]
    assert ddpflow.isnan(tensor([1])).tolist() == [False] and ddpflow.isfinite(tensor([1])).tolist() == [True]


def test_closeness():
    """Allclose and equal give Python booleans; NaN equals NaN only where asked."""
    x = tensor([1.0, NAN])
    assert ddpflow.allclose(x, x) is False
    assert ddpflow.allclose(x, x, equal_nan=True) is True
    assert ddpflow.equal(tensor([1.0]), tensor([1.0])) is True
    assert ddpflow.equal(tensor([1.0]), tensor([1.0, 2.0])) is False
    assert ddpflow.isclose(tensor([1.0]), tensor([1.1]), rtol=0.2).tolist() == [True]


def test_logic_and_bits():
    """Logical functions take any dtype; bitwise operators integers and booleans."""
    a, b = tensor([True, True, False]), tensor([True, False, False])
    assert (a & b).tolist() == [True, False, False] and (a | b).tolist() == [True, True, False]
    assert (a ^ b).tolist() == [False, True, False] and (~a).tolist() == [False, False, True]
    assert ddpflow.logical_and(tensor([1.5, 0.0]), tensor([2, 3])).tolist() == [True, False]
    assert (tensor([6]) & 3).tolist() == [2] and (5 | tensor([2])).tolist() == [7]
    assert (tensor([1]) << 3).tolist() == [8] and (tensor([-8]) >> 1).tolist() == [-4]
    with pytest.raises(TypeError, match="bitwise_and"):
        tensor([1.0]) & tensor([2.0])


def test_where_selects():
    """Values, broadcasting, numbers on either side, and dtypes by PyTorch's promotion."""
    c = tensor([True, False])
    assert ddpflow.where(c, tensor([1.0, 2.0]), -1.0).tolist() == [1.0, -1.0]
    assert ddpflow.where(c, 1.0, 2.0).dtype is ddpflow.float32
    assert ddpflow.where(c, 1, 2).dtype is ddpflow.int64
    assert ddpflow.where(c, tensor([1, 2]), 0.5).dtype is ddpflow.float32
    assert [t.tolist() for t in ddpflow.where(tensor([[0, 1], [1, 0]]))] == [[0, 1], [1, 0]]
    with pytest.raises(TypeError, match="boolean"):
        ddpflow.where(tensor([1.0]), 1.0, 2.0)


def test_where_stops_nan_of_the_other_branch():
    """A branch that was not taken gives its input exactly 0, whatever its values are."""
    x = tensor([1.0, 2.0], requires_grad=True)
    (g,) = grad(ddpflow.where(tensor([True, False]), x, tensor([NAN, NAN])).sum(), [x])
    assert g.tolist() == [1.0, 0.0]


def test_double_where():
    """The documented recipe: guard the input of a function whose gradient is infinite."""
    x = tensor([-1.0, 4.0], requires_grad=True)
    safe = ddpflow.where(x > 0, x, 1.0)
    ddpflow.where(x > 0, safe.sqrt(), x).sum().backward()
    assert x.grad.tolist() == [1.0, 0.25]


def test_anomaly_mode_names_the_first_nan():
    """Without the recipe, anomaly mode says which operation made the NaN."""
    x = tensor([0.0, 4.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AutogradError, match="'sqrt' made the first NaN"):
        ddpflow.where(x > 0, x.sqrt(), 0.0).sum().backward()
    ddpflow.where(x > 0, x.sqrt(), 0.0).sum().backward()
    assert math.isnan(x.grad[0].item())


def test_comparison_of_different_dtypes():
    """Operands are brought to their common dtype first."""
    assert (tensor([1, 2]) == tensor([1.0, 2.5])).tolist() == [True, False]
    assert (tensor([1, 2]) < 1.5).tolist() == [True, False]
    assert np.asarray(tensor([True]) == tensor([1])).tolist() == [True]
