"""A world whose ranks are threads of this process."""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from ddpflow.comm.default import abandon_world, destroy_process_group, init_process_group
from ddpflow.comm.store import HashStore
from ddpflow.testing.outcome import Outcome, note

__all__ = ["run_threads"]


def run_threads(
    fn: Callable[..., Any],
    n: int,
    backend: str,
    args: tuple[Any, ...],
    timeout_s: float,
    group_timeout_s: float,
    init: bool,
) -> list[Outcome]:
    """Runs ``fn(rank, *args)`` in ``n`` threads; see ``run_ranks``."""
    store = HashStore(group_timeout_s)
    outcomes: list[Outcome | None] = [None] * n
    stop = threading.Event()

    def idle() -> None:
        if stop.is_set():
            raise TimeoutError("the run is over")

    store.on_idle = idle

    def body(rank: int) -> None:
        try:
            if init:
                init_process_group(backend, store=store, rank=rank, world_size=n, timeout=group_timeout_s)
            value = fn(rank, *args)
            outcomes[rank] = Outcome(rank, value)
        except BaseException as error:
            outcomes[rank] = Outcome(rank, error=note(error, rank))
            abandon_world(error)
        finally:
            destroy_process_group()

    threads = [threading.Thread(target=body, args=(r,), name=f"rank-{r}", daemon=True) for r in range(n)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = [r for r, thread in enumerate(threads) if thread.is_alive()]
    if late:
        stacks = _stacks({threads[r].ident: r for r in late})
        stop.set()
        error = TimeoutError(f"ranks {late} of {n} did not end in {timeout_s:g} s\n{stacks}")
        return [outcomes[r] or Outcome(r, error=error, time=0.0) for r in range(n)]
    return [outcome if outcome is not None else Outcome(r) for r, outcome in enumerate(outcomes)]


def _stacks(idents: dict[int | None, int]) -> str:
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident in idents:
            parts.append(f"rank {idents[ident]}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)
