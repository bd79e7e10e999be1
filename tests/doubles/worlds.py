"""Worlds of ranks with a GPU each, on the CuPy stand-in: threads, NCCL between them."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

from ddpflow.comm import registry
from ddpflow.comm.backend import GroupSpec
from ddpflow.comm.backends.nccl import NcclBackend
from ddpflow.device import use_gpu
from ddpflow.testing.outcome import root_cause
from ddpflow.testing.threads import run_threads
from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import state


class ThreadedNccl(NcclBackend):
    """The NCCL transport alone, where each thread is a rank."""

    ranks_are_threads: ClassVar[bool] = True

    @classmethod
    def create(cls, spec: GroupSpec) -> Self:
        """Chooses the thread's device, as a process has its own by LOCAL_RANK."""
        use_gpu(spec.rank % state().devices)
        return super().create(spec)


registry._TARGETS.setdefault("nccl_threads", "tests.doubles.worlds:ThreadedNccl")

BOTH = "cpu:thread,cuda:nccl"
ALONE = "nccl_threads"


def run_gpu_ranks(
    fn: Callable[..., Any],
    n: int,
    backend: str = BOTH,
    *,
    args: tuple[Any, ...] = (),
    timeout_s: float = 20.0,
    group_timeout_s: float = 10.0,
    return_exceptions: bool = False,
    devices: int | None = None,
    violations: Callable[[list[str]], None] | None = None,
) -> list[Any]:
    """Runs ``fn(rank, *args)`` on n ranks, each with its own device, and returns the results or raises the root cause.

    Args:
        fn: The function.
        n: Number of ranks.
        backend: `BOTH` or `ALONE`.
        args: Further arguments.
        timeout_s: Deadline of the run.
        group_timeout_s: Deadline of operations.
        return_exceptions: Return exceptions in place of results.
        devices: Number of devices; rank r uses device r modulo this.
        violations: Gets the broken rules, where some are expected; otherwise any is an error.
    """
    with installed(devices or n):

        def body(rank: int, *more: Any) -> Any:
            use_gpu(rank % (devices or n))
            return fn(rank, *more)

        outcomes = run_threads(body, n, backend, args, timeout_s, group_timeout_s, True)
        if violations is not None:
            violations(list(state().violations))
            state().violations.clear()
    if return_exceptions:
        return [outcome.error or outcome.value for outcome in outcomes]
    error = root_cause(outcomes)
    if error is not None:
        raise error
    return [outcome.value for outcome in outcomes]
