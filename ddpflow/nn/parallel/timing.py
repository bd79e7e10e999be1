"""When buckets were ready, launched and waited for, and what the plan looks like as a table."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any

__all__ = ["BucketRow", "Plan", "Recorder", "make_plan"]


class Recorder:
    """Times of one round, in seconds since its first gradient was ready.

    Attributes:
        ready: When each bucket's last gradient was ready.
        launched: When its communication was started.
        waited: How long the end of backward waited for it.
        backward: When the last operation of backward was done.
    """

    def __init__(self, buckets: int) -> None:
        self.start = perf_counter()
        self.ready = [0.0] * buckets
        self.launched = [0.0] * buckets
        self.waited = [0.0] * buckets
        self.backward = 0.0

    def now(self) -> float:
        """Seconds since the round began."""
        return perf_counter() - self.start


@dataclass(frozen=True)
class BucketRow:
    """One bucket of the plan.

    Attributes:
        index: Its place in the launch order.
        names: Its parameters, in the order in which they lie.
        nbytes: Bytes that are communicated.
        dtype: Of the gradients.
        ready_ms, launched_ms: When, after the first gradient of the last step; None before a step was timed.
        waited_ms: How long the end of backward waited for it.
    """

    index: int
    names: tuple[str, ...]
    nbytes: int
    dtype: str
    ready_ms: float | None = None
    launched_ms: float | None = None
    waited_ms: float | None = None


@dataclass(frozen=True)
class Plan:
    """The buckets of a model in launch order, and where the last timed step's communication went.

    Attributes:
        buckets: A row for each.
        divisor: What sums are divided by; 1 where a hook decides.
        exposed: Share of the time from first launch to the end that backward did not hide; None before a timed step.
    """

    buckets: tuple[BucketRow, ...]
    divisor: int
    exposed: float | None

    def __str__(self) -> str:
        head = f"{'bucket':>6} {'KiB':>9} {'dtype':>8} {'ready':>8} {'launched':>8} {'waited':>8}  parameters"
        lines = [head]
        for row in self.buckets:
            times = [
                f"{t:8.3f}" if t is not None else f"{'-':>8}" for t in (row.ready_ms, row.launched_ms, row.waited_ms)
            ]
            names = ", ".join(row.names[:3]) + (f", ... {len(row.names) - 3} more" if len(row.names) > 3 else "")
            lines.append(f"{row.index:6d} {row.nbytes / 1024:9.1f} {row.dtype:>8} {' '.join(times)}  {names}")
        if self.exposed is not None:
            lines.append(f"not hidden behind backward: {self.exposed:.0%} of the communication; times in ms")
        return "\n".join(lines)


def make_plan(buckets: Any, record: Recorder | None, divisor: int) -> Plan:
    """The plan of some buckets, with the times of a round when it was recorded."""
    rows = []
    for k, bucket in enumerate(buckets):
        times = (None, None, None) if record is None else (record.ready[k], record.launched[k], record.waited[k])
        ms = [None if t is None else t * 1e3 for t in times]
        rows.append(BucketRow(k, tuple(bucket.names), bucket.nbytes, bucket.flat.dtype.name, *ms))
    exposed = None
    if record is not None:
        total = record.backward + sum(record.waited) - min(record.launched)
        exposed = sum(record.waited) / total if total > 0 else 0.0
    return Plan(tuple(rows), divisor, exposed)
