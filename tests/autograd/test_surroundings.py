"""Blocks that are in force again when backward runs something again."""

import contextlib

import pytest

import ddpflow
from ddpflow.amp import autocast, get_autocast_dtype, is_autocast_enabled
from ddpflow.autograd.surroundings import surroundings, within
from ddpflow.utils.checkpoint import checkpoint


def test_scopes_come_back_in_order():
    """What is remembered is entered again, the outermost first, and left again, after an exception too."""
    events = []

    def scope(name):
        @contextlib.contextmanager
        def block():
            events.append(f"in {name}")
            try:
                yield
            finally:
                events.append(f"out {name}")

        return block

    with within(scope("a")), within(scope("b")), autocast("cpu", dtype=ddpflow.float16):
        again = surroundings()
    assert events == ["in a", "in b", "out b", "out a"]
    events.clear()
    with pytest.raises(KeyError), again():
        assert get_autocast_dtype("cpu") == ddpflow.float16
        inner = surroundings()
        raise KeyError
    assert not is_autocast_enabled("cpu")
    with inner():
        pass
    assert events == ["in a", "in b", "out b", "out a"] * 2
    with surroundings()():
        assert len(events) == 8


def test_checkpointed_functions_run_again_in_their_autocast_block():
    """Backward runs after the block; what it runs again gives the types of the first run."""
    types = []
    w = ddpflow.rand(3, 3, requires_grad=True)

    def function(x):
        out = x @ w
        types.append(out.dtype)
        return out

    with autocast("cpu", dtype=ddpflow.float16):
        out = checkpoint(function, ddpflow.rand(2, 3))
    out.float().sum().backward()
    assert types == [ddpflow.float16] * 2 and w.grad.dtype == ddpflow.float32
