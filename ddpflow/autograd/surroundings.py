"""What a function is run in, remembered so that backward can run it again in the same: for checkpointed functions."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from ddpflow.autograd.autocast import autocast_mode

__all__ = ["surroundings", "within"]


class _Scopes(threading.local):
    """The context managers' makers of the blocks that this thread is in, the outermost first."""

    now: tuple[Callable[[], AbstractContextManager[None]], ...] = ()


_scopes = _Scopes()


@contextlib.contextmanager
def within(scope: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Run a block in ``scope()``, and again in ``scope()`` whatever of it a backward runs again."""
    before = _scopes.now
    _scopes.now = (*before, scope)
    try:
        with scope():
            yield
    finally:
        _scopes.now = before


def surroundings() -> Callable[[], AbstractContextManager[None]]:
    """What is in force now, autocast blocks and `within` scopes, as a context that puts it in force again."""
    scopes, cpu, cuda = _scopes.now, autocast_mode.cpu, autocast_mode.cuda

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        before = _scopes.now, autocast_mode.cpu, autocast_mode.cuda
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(scope())
            _scopes.now, autocast_mode.cpu, autocast_mode.cuda = scopes, cpu, cuda
            try:
                yield
            finally:
                _scopes.now, autocast_mode.cpu, autocast_mode.cuda = before

    return again
