"""Ranks of the shared-memory transport as objects of one process, so that a test can step them as it likes."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ddpflow.comm.backend import GroupSpec
from ddpflow.comm.backends.shm import ShmBackend
from ddpflow.comm.env import ProcessContext
from ddpflow.comm.failure import FailureWatch
from ddpflow.comm.signature import Call, Kind
from ddpflow.comm.store import HashStore
from ddpflow.testing.faults import InjectedError


def make_spec(rank: int, n: int, store: HashStore, timeout_s: float = 10.0, **changes: Any) -> GroupSpec:
    """Returns the spec of one rank of a world."""
    context = ProcessContext(rank=rank, world_size=n, local_rank=rank, local_world_size=n, token=b"secret of the test")
    fields: dict[str, Any] = {
        "name": "world",
        "ranks": tuple(range(n)),
        "group_rank": rank,
        "store": store,
        "context": context,
        "watch": FailureWatch(rank),
        "timeout_s": timeout_s,
        "stall_warning_s": 60.0,
    }
    return GroupSpec(**{**fields, **changes})


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Runs functions in threads, and returns their results or exceptions in order."""
    results: list[Any] = [None] * len(functions)

    def run(i: int) -> None:
        try:
            results[i] = functions[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


@contextlib.contextmanager
def small_layout(**options: int) -> Iterator[None]:
    """Makes groups with other sizes of rings and chunks."""
    before = ShmBackend.layout_options
    ShmBackend.layout_options = options
    try:
        yield
    finally:
        ShmBackend.layout_options = before


def make_world(n: int, timeout_s: float = 10.0, **options: int) -> list[ShmBackend]:
    """Returns the transports of ``n`` ranks."""
    store = HashStore()
    with small_layout(**options):
        specs = [make_spec(rank, n, store, timeout_s) for rank in range(n)]
        backends = at_once(*(lambda spec=spec: ShmBackend.create(spec) for spec in specs))
    for backend in backends:
        if isinstance(backend, Exception):
            raise backend
    return backends


def call(seq: int, kind: Kind = Kind.ALL_REDUCE, timeout_s: float = 10.0, root: int = -1, tag: str = "") -> Call:
    """Returns a call as a group would make it."""
    return Call(kind, seq, tag, timeout_s, root)


def strike(kind: str) -> None:
    """Ends, stops or fails this process."""
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "exit":
        os._exit(0)
    raise InjectedError("on purpose")


def strike_in(owner: Any, name: str, kind: str, after: bool, countdown: int) -> None:
    """Arranges that the ``countdown``-th call of a function from now ends in ``strike``, before or after its work."""
    original = getattr(owner, name)
    left = [countdown]

    def replacement(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not after:
            strike(kind)
        result = original(*args, **options)
        if left[0] == 0:
            strike(kind)
        return result

    setattr(owner, name, replacement)
