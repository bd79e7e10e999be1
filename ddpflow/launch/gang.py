"""All ranks of one host through one attempt: started together, watched, and ended together."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddpflow.comm.failure import FailureRecord, read_all
from ddpflow.launch.environment import Placement
from ddpflow.launch.loop import Loop, Timer
from ddpflow.launch.rank import Rank

__all__ = ["Gang", "Outcome"]

# After the first failure the other ranks get this long to notice by themselves, and so to say what they were doing.
NOTICE_S = 1.0
# A killed process that has not ended after this long is stuck in the kernel.
_GIVE_UP_S = 5.0
_LOOK_S = 0.25


@dataclass(frozen=True)
class Outcome:
    """How an attempt went on this host.

    Attributes:
        root: Root cause, or None where no rank failed.
        records: Records of all ranks that failed, the root cause among them, in order of rank.
        ended: Ranks that were ended because another had failed or a signal came.
        stuck: Process ids that could not be killed.
        recent: Last stretch of each local rank's standard error.
        all_zero: Whether every rank ended by itself with exit code 0.
    """

    root: FailureRecord | None
    records: list[FailureRecord]
    ended: list[int]
    stuck: list[int]
    recent: dict[int, bytes]
    all_zero: bool


class Gang:
    """The ranks of this host.

    Args:
        loop: Event loop.
        place: What the ranks share.
        grace_s: Time between the request to end and SIGKILL.
        on_failure: Called once, with the first failure on this host.
    """

    def __init__(
        self, loop: Loop, place: Placement, grace_s: float, on_failure: Callable[[FailureRecord], None]
    ) -> None:
        self.ranks: list[Rank] = []
        self.stopped_by: int | None = None
        self._loop, self._place, self._grace_s, self._on_failure = loop, place, grace_s, on_failure
        self._stage = "running"
        self._timer: Timer | None = None
        self._look_timer = loop.call_later(_LOOK_S, self._look)
        self._seen_mtime = 0
        self._ended_by_us: set[int] = set()
        self._stuck: list[int] = []
        self._told = False
        self._records: dict[int, FailureRecord] = {}

    def add(self, rank: Rank) -> None:
        """Watches a rank that was just started."""
        self.ranks.append(rank)
        rank.watch(self._loop, self._on_end)

    @property
    def is_over(self) -> bool:
        """Whether no rank runs any more, apart from those that cannot be killed."""
        return all(not rank.is_running or rank.pid in self._stuck for rank in self.ranks)

    def send(self, number: int) -> None:
        """Passes a signal on to every rank."""
        for rank in self.ranks:
            rank.send(number)

    def suspend(self) -> None:
        """Stops all ranks and their children (Ctrl-Z)."""
        self._send_groups(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets stopped ranks go on."""
        self._send_groups(signal.SIGCONT)

    def stop(self, number: int) -> None:
        """Passes on a signal that ends the run; ranks that run on after the grace period are killed."""
        if self.stopped_by is None:
            self.stopped_by = number
            self._stage = "stopping"
            self._mark_ended()
            self.send(number)
            self._then(self._grace_s, self.kill)

    def fail_from_elsewhere(self, record: FailureRecord) -> None:
        """Ends the gang because of a rank on another host, and tells the ranks here of it."""
        self._publish(record)
        self._wind_down()

    def look_for_ends(self) -> None:
        """Sees ranks that have ended, where the system cannot say so through a descriptor."""
        for rank in self.ranks:
            rank.look()

    def kill(self) -> None:
        """Kills what still runs, with everything in its process group."""
        self._stage = "killing"
        self._mark_ended()
        self._send_groups(signal.SIGKILL)
        self._then(_GIVE_UP_S, self._give_up)

    def finish(self) -> Outcome:
        """Cleans up after the last rank; call it once ``is_over``."""
        self._look_timer.cancel()
        if self._timer:
            self._timer.cancel()
        for rank in self.ranks:
            if not rank.is_running:
                rank.reap()
        records = self._all_records()
        failed = {record.rank for record in records}
        return Outcome(
            root=_root_cause(records),
            records=records,
            ended=sorted(self._ended_by_us - failed),
            stuck=self._stuck,
            recent={rank.rank: rank.recent_stderr() for rank in self.ranks},
            all_zero=all(rank.exitcode == 0 for rank in self.ranks) and not failed,
        )

    def _fail(self, record: FailureRecord) -> None:
        """Publishes a failure of this host and ends the gang."""
        self._publish(record)
        if not self._told:
            self._told = True
            local = [r for r in self._all_records() if r.node == self._place.node_rank]
            self._on_failure(_root_cause(local) or record)
        self._wind_down()

    def _publish(self, record: FailureRecord) -> None:
        self._records.setdefault(record.rank, record)
        # A Python rank has written its own record, which then stands.
        record.write(self._place.run_dir)

    def _all_records(self) -> list[FailureRecord]:
        """Returns all records in order of rank: the directory's, which know most, and ours, which need no disk."""
        found = {record.rank: record for record in read_all(self._place.run_dir)}
        return [record for _, record in sorted({**self._records, **found}.items())]

    def _wind_down(self) -> None:
        """Ends the gang: first by itself, then by SIGTERM, then by SIGKILL."""
        if self._stage == "running":
            self._stage = "noticing"
            self._then(NOTICE_S, self._terminate)

    def _then(self, delay_s: float, call: Callable[[], None]) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, call)

    def _terminate(self) -> None:
        self._stage = "terminating"
        self._mark_ended()
        self.send(signal.SIGTERM)
        self._then(self._grace_s, self.kill)

    def _give_up(self) -> None:
        self._stuck = [rank.pid for rank in self.ranks if rank.is_running]

    def _mark_ended(self) -> None:
        self._ended_by_us.update(rank.rank for rank in self.ranks if rank.is_running)

    def _send_groups(self, number: int) -> None:
        for rank in self.ranks:
            # The group of a rank that has ended may still hold its children.
            rank.send_group(number)

    def _on_end(self, rank: Rank) -> None:
        if rank.exitcode != 0 and self._stage in ("running", "noticing"):
            self._fail(
                FailureRecord(
                    rank=rank.rank,
                    node=self._place.node_rank,
                    pid=rank.pid,
                    exitcode=rank.exitcode,
                    signal=rank.signal,
                    time=rank.ended or time.time(),
                )
            )

    def _look(self) -> None:
        """Sees the record of a rank that has failed, but does not manage to exit."""
        self._look_timer = self._loop.call_later(_LOOK_S, self._look)
        if self._stage != "running":
            return
        with contextlib.suppress(OSError):
            mtime = os.stat(self._place.run_dir).st_mtime_ns
            # The time stamp's grain is a clock tick: a change is settled only when it is a bit old.
            if mtime != self._seen_mtime or time.time_ns() - mtime < 1_000_000_000:
                self._seen_mtime = mtime
                if record := _root_cause(read_all(self._place.run_dir)):
                    self._fail(record)


def _root_cause(records: Iterable[FailureRecord]) -> FailureRecord | None:
    """Returns the earliest record that does not merely pass on another rank's failure."""
    return min(records, key=lambda record: (record.is_secondary, record.time), default=None)
