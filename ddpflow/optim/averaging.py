"""Averaging models and sharing optimizer state across ranks."""

from collections.abc import Iterable, Sequence
from typing import Any

from ddpflow.comm.objects import broadcast_object
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.world import current_group
from ddpflow.device import array_module
from ddpflow.errors import ValueRangeError

__all__ = ["PeriodicModelAverager", "average_parameters", "broadcast_optimizer_state"]

_CHUNK_BYTES = 16 << 20


def average_parameters(params: Any, process_group: Any = None) -> None:
    """Replace each parameter by its mean over the ranks, in place; a tensor that appears twice is averaged once.

    Args:
        params: Tensors, parameter groups, or a module.
        process_group: The ranks; the current group when None.
    """
    group = current_group() if process_group is None else process_group
    if group.size() == 1:
        return
    unique = {id(p): p for p in _tensors(params)}
    by_kind: dict[Any, list[Any]] = {}
    for p in unique.values():
        by_kind.setdefault((p.array.dtype, p.device), []).append(p)
    for same in by_kind.values():
        chunk: list[Any] = []
        for p in same:
            if chunk and sum(q.array.nbytes for q in chunk) + p.array.nbytes > _CHUNK_BYTES:
                _average(group, chunk)
                chunk = []
            chunk.append(p)
        _average(group, chunk)


def _tensors(params: Any) -> Iterable[Any]:
    if hasattr(params, "parameters"):
        params = params.parameters()
    for p in params:
        if isinstance(p, dict):
            yield from p["params"]
        else:
            yield p


def _average(group: Any, params: Sequence[Any]) -> None:
    flat = array_module(params[0].array).concatenate([p.array.reshape(-1) for p in params])
    group.all_reduce(flat, ReduceOp.AVG, tag="average of parameters")
    at = 0
    for p in params:
        p.array[...] = flat[at : at + p.array.size].reshape(p.array.shape)
        p.bump_version()
        at += p.array.size


class PeriodicModelAverager:
    """Averages parameters every ``period`` steps instead of gradients in each (local SGD; Lin et al. 2018).

    Args:
        period: Steps between averages.
        warmup_steps: Steps before the first; gradients are to be averaged in them.
        process_group: The ranks; the current group when None.

    Raises:
        ValueRangeError: When ``period`` or ``warmup_steps`` makes no sense.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        if period < 1:
            raise ValueRangeError(f"period must be at least 1, not {period}")
        if warmup_steps < 0:
            raise ValueRangeError(f"warmup_steps must not be negative, not {warmup_steps}")
        self.period = period
        self.warmup_steps = warmup_steps
        self.process_group = process_group
        self.step = 0

    def average_parameters(self, params: Any) -> None:
        """Count a step, and average when it is due; call it after each optimizer step, on every rank."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters(params, self.process_group)
        self.step += 1


def broadcast_optimizer_state(optimizer: Any, src: int = 0, process_group: Any = None) -> None:
    """Give all ranks the state and options of rank ``src``'s optimizer; for resuming where only one rank loaded."""
    group = current_group() if process_group is None else process_group
    if group.size() > 1:
        optimizer.load_state_dict(broadcast_object(optimizer.state_dict(), src, group))
