"""run_ranks: one function on n ranks inside a test, as threads or as processes."""

from collections.abc import Callable, Sequence
from typing import Any

from ddpflow.comm.registry import load_backend
from ddpflow.errors import ValueRangeError
from ddpflow.testing.outcome import root_cause
from ddpflow.testing.processes import run_processes
from ddpflow.testing.threads import run_threads

__all__ = ["run_ranks"]


def run_ranks(
    fn: Callable[..., Any],
    n: int,
    backend: str = "thread",
    *,
    args: Sequence[Any] = (),
    timeout_s: float = 20.0,
    group_timeout_s: float | None = None,
    init: bool = True,
    return_exceptions: bool = False,
) -> list[Any]:
    """Runs ``fn(rank, *args)`` on ``n`` ranks of one world and returns the results in order of rank.

    With "thread" the ranks are threads: fast, any function works, and debuggers see all ranks. Otherwise they are
    processes from a pool that later calls use again; ``fn`` must then be a function at the top of a module, its
    arguments and results picklable. After a failure the processes are ended and later calls get fresh ones.

    Args:
        fn: Function of the rank and ``args``.
        n: Number of ranks.
        backend: "thread", or the backend that the processes use, such as "shm".
        args: Further arguments of ``fn``, the same on all ranks.
        timeout_s: Deadline of the whole run; the stacks of all ranks are then part of the error.
        group_timeout_s: ``timeout`` of ``init_process_group``; ``timeout_s`` for None.
        init: Whether ``init_process_group`` has been called when ``fn`` starts; otherwise only the variables are set.
        return_exceptions: Return exceptions in place of results, instead of raising one.

    Raises:
        BaseException: What the first failing rank raised (not what others raised because of it), with its traceback as
            a note; ``RankDied`` if a process ended without a result.
        TimeoutError: The run was not over in time.
    """
    if n < 1:
        raise ValueRangeError(f"run_ranks needs at least one rank, not {n}")
    run = run_threads if load_backend(backend).ranks_are_threads else run_processes
    outcomes = run(fn, n, backend, tuple(args), timeout_s, group_timeout_s or timeout_s, init)
    if return_exceptions:
        return [outcome.error or outcome.value for outcome in outcomes]
    error = root_cause(outcomes)
    if error is not None:
        raise error
    return [outcome.value for outcome in outcomes]
