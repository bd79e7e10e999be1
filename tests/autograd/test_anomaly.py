"""Anomaly mode."""

import pytest

from ddpflow.autograd.anomaly import check_gradients, detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from ddpflow.autograd.zeros import StaticZeros
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


def poisoned():
    """A loss whose gradient becomes NaN in sqrt's rule."""
    x = tensor([0.0, 4.0], requires_grad=True)
    return (x.sqrt() * tensor([0.0, 1.0])).sum()


def test_the_operation_is_named():
    """Backward stops at the first NaN and says which operation, input and shape."""
    with detect_anomaly(), pytest.raises(AutogradError, match=r"'sqrt' made the first NaN.*input 0, shape \(2,\)"):
        poisoned().backward()
    poisoned().backward()


def test_also_under_create_graph():
    """Recorded passes are looked through as well."""
    with detect_anomaly(), pytest.raises(AutogradError, match="'sqrt'"):
        poisoned().backward(create_graph=True)


def test_switches():
    """Blocks nest and restore, also after an exception; check_nan=False looks for nothing."""
    assert not is_anomaly_enabled()
    with detect_anomaly():
        assert is_anomaly_enabled()
        with set_detect_anomaly(False):
            assert not is_anomaly_enabled()
        with pytest.raises(KeyError), detect_anomaly(check_nan=False):
            assert not is_anomaly_enabled()
            raise KeyError
        assert is_anomaly_enabled()
    assert not is_anomaly_enabled()
    try:
        set_detect_anomaly(True)
        assert is_anomaly_enabled()
    finally:
        set_detect_anomaly(False)


def test_what_is_no_number_is_passed_over():
    """Absent and static zero gradients are fine."""
    node = (tensor([1.0], requires_grad=True) * 2).node
    zeros = StaticZeros((1,), node.dtype)
    check_gradients(node, [None, zeros])
