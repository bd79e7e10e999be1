"""Quiet floating point."""

import threading

import numpy as np
import pytest

from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.factories import tensor


def test_silence_and_restore():
    """Between the two NumPy warns of nothing; afterwards its settings are what they were, in this thread."""
    with np.errstate(divide="raise", over="print"):
        inside = np.geterr()
        before = silence(QUIET)
        try:
            assert set(np.geterr().values()) == {"ignore"}
        finally:
            restore(before)
        assert np.geterr() == inside


def test_operations_neither_warn_nor_change_settings():
    """Under settings that raise, operations still give infinities, and the user's NumPy code still raises."""
    with np.errstate(all="raise"):
        x = tensor([0.0], requires_grad=True)
        y = (1 / x).sum() + (x - float("inf")).exp().sum()
        y.backward()
        assert y.item() == float("inf")
        with pytest.raises(FloatingPointError):
            np.array([1.0]) / np.array([0.0])


def test_an_operation_that_raises_restores_them():
    """Also when shapes do not fit."""
    before = np.geterr()
    with pytest.raises(RuntimeError):
        tensor([1.0, 2.0]) + tensor([1.0, 2.0, 3.0])
    with pytest.raises(IndexError):
        tensor([1.0, 2.0]).sum(5)
    assert np.geterr() == before


def test_other_threads_are_not_touched():
    """The settings of another thread stay its own."""
    seen = []
    before = silence(QUIET)
    try:
        thread = threading.Thread(target=lambda: seen.append(np.geterr()["divide"]))
        thread.start()
        thread.join()
    finally:
        restore(before)
    assert seen == ["warn"]
