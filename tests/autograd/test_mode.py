"""The switch that turns recording on and off."""

import threading

import pytest

from ddpflow.autograd.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from ddpflow.factories import tensor


def test_no_grad_as_block_and_as_decorator():
    """Inside nothing is recorded, afterwards it is again, also with parentheses left out."""
    x = tensor([1.0], requires_grad=True)
    with no_grad():
        assert not (x * 2).requires_grad

    @no_grad()
    def with_parentheses():
        return x * 2

    @no_grad
    def without():
        return x * 2

    assert not with_parentheses().requires_grad
    assert not without().requires_grad
    assert (x * 2).requires_grad


def test_blocks_nest_and_survive_exceptions():
    """Each block restores what was in force when it began, also after an exception."""
    with no_grad():
        with enable_grad():
            assert is_grad_enabled()
        assert not is_grad_enabled()
        with pytest.raises(KeyError), enable_grad():
            raise KeyError
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_one_object_can_be_entered_twice():
    """A block object may be re-used, nested too."""
    block = no_grad()
    with block, block:
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_set_grad_enabled_as_function_as_block_and_as_decorator():
    """Called it switches at once; in a with it lasts until the end; as a decorator it belongs to the calls."""
    try:
        set_grad_enabled(False)
        assert not is_grad_enabled()
    finally:
        set_grad_enabled(True)
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()

    @set_grad_enabled(False)
    def state():
        return is_grad_enabled()

    assert is_grad_enabled()
    assert state() is False
    assert is_grad_enabled()


def test_generators_do_not_leak_the_switch():
    """Between two items of a decorated generator the consumer's own mode is in force."""

    @no_grad()
    def items():
        yield is_grad_enabled()
        yield is_grad_enabled()
        return "end"

    generator = items()
    assert next(generator) is False
    assert is_grad_enabled()
    assert next(generator) is False
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "end"


def test_each_thread_has_its_own_switch():
    """no_grad in one thread does not touch another, whose start is recording."""
    seen = []
    with no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_inference_mode():
    """inference_mode is no_grad under another name; inference_mode(False) changes nothing."""
    with inference_mode():
        assert not is_grad_enabled()
    with inference_mode(False):
        assert is_grad_enabled()

    @inference_mode()
    def state():
        return is_grad_enabled()

    assert state() is False
