"""Starting processes under PyTorch's name, beside what scripts use of the standard library's ``multiprocessing``."""

from multiprocessing import Event, Lock, Manager, Pipe, Pool, Process, Queue, cpu_count, get_context, set_start_method
from typing import Any

from ddpflow.errors import LaunchError
from ddpflow.launch import spawning

__all__ = [
    "Event",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "Queue",
    "cpu_count",
    "get_context",
    "set_start_method",
    "spawn",
]


def spawn(
    fn: Any,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Run ``fn(i, *args)`` in ``nprocs`` fresh processes, numbered from 0, and wait for them all.

    They are started as by ``ddprun``: the first failure ends the others and is raised here, nothing is left behind, and
    ``init_process_group()`` needs no address.

    Args:
        fn: The function, which the processes import by name.
        args: Its further arguments.
        nprocs: How many processes.
        join: Must be True: there is no waiting later.
        daemon: Accepted; no process outlives this one in any case.
        start_method: Accepted; processes always start fresh.

    Raises:
        LaunchError: When ``join`` is False, or the processes cannot be started.
    """
    if not join:
        raise LaunchError("multiprocessing.spawn(join=False) is not supported: start a thread that calls spawn()")
    spawning.spawn(fn, nprocs, tuple(args))
