"""How a failing rank tells the others why: small records in the run directory or the store, polled by every wait."""

import contextlib
import json
import os
import signal as signals
import time
import traceback as tracebacks
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ddpflow.errors import PeerError

__all__ = ["FailureRecord", "FailureWatch", "describe_exit", "ended_ranks", "first", "read_all"]

_LARGEST_RECORD = 1 << 20
# Failures that only pass on what another rank did: never the root cause while another record exists.
_SECONDARY = frozenset({"PeerError"})


@dataclass(frozen=True)
class FailureRecord:
    """What is known of one rank's failure.

    Attributes:
        rank: Global rank that failed.
        node: Host number of that rank.
        pid: Its process id.
        type: Name of the exception's class, or "" where the process died without one.
        message: Text of the exception.
        traceback: Its formatted traceback, or "".
        exitcode: Exit code of the process where known.
        signal: Number of the signal that ended it, or None.
        time: Seconds since the epoch at which it failed.
    """

    rank: int
    node: int = 0
    pid: int = 0
    type: str = ""
    message: str = ""
    traceback: str = ""
    exitcode: int | None = None
    signal: int | None = None
    time: float = field(default_factory=time.time)

    @classmethod
    def from_exception(cls, rank: int, error: BaseException, node: int = 0) -> "FailureRecord":
        """Makes the record of an uncaught exception of this process."""
        text = "".join(tracebacks.format_exception(error))
        return cls(rank, node, os.getpid(), type(error).__name__, str(error), text, exitcode=1)

    @classmethod
    def from_json(cls, data: bytes) -> "FailureRecord":
        """Reads a record.

        Raises:
            ValueError: The bytes are not a record.
        """
        raw: Any = json.loads(data)
        if not isinstance(raw, dict) or not isinstance(raw.get("rank"), int):
            raise ValueError("not a failure record")
        return cls(**{f.name: raw[f.name] for f in fields(cls) if f.name in raw})

    def to_json(self) -> bytes:
        """Returns the record as JSON, with long texts cut to keep it below the size that readers take."""
        data = asdict(self)
        data["message"], data["traceback"] = self.message[:20_000], self.traceback[-100_000:]
        return json.dumps(data).encode()

    @property
    def is_secondary(self) -> bool:
        """Whether the rank failed only because another had failed before it."""
        return self.type in _SECONDARY

    def summary(self) -> str:
        """Returns "rank 1 raised ValueError: bad batch", or how the process ended."""
        if self.type:
            return (
                f"rank {self.rank} raised {self.type}: {self.message}"
                if self.message
                else f"rank {self.rank} raised {self.type}"
            )
        return f"rank {self.rank} {describe_exit(self.exitcode, self.signal)}"

    def write(self, run_dir: str) -> bool:
        """Publishes the record as ``failed.<rank>.json``, atomically; the first record of a rank stays.

        Returns:
            Whether this record is the one that stands. False also where the directory is gone: the job is over.
        """
        try:
            temporary = os.path.join(run_dir, f".failed.{self.rank}.{os.getpid()}.{time.monotonic_ns()}")
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(self.to_json())
            try:
                os.link(temporary, os.path.join(run_dir, f"failed.{self.rank}.json"))
            finally:
                os.unlink(temporary)
        except OSError:
            return False
        return True


def describe_exit(exitcode: int | None, signal: int | None) -> str:
    """Returns "was killed by SIGKILL", "exited with code 3" or "is gone"."""
    if signal:
        try:
            name = signals.Signals(signal).name
        except ValueError:
            name = f"signal {signal}"
        return f"was killed by {name}"
    return "is gone" if exitcode is None else f"exited with code {exitcode}"


def read_all(run_dir: str) -> list[FailureRecord]:
    """Returns the readable records of a run directory in order of rank; what is not a record is passed over."""
    records = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.listdir(run_dir)):
            if entry.startswith("failed.") and entry.endswith(".json"):
                with (
                    contextlib.suppress(OSError, ValueError, TypeError),
                    open(os.path.join(run_dir, entry), "rb") as file,
                ):
                    records.append(FailureRecord.from_json(file.read(_LARGEST_RECORD)))
    return sorted(records, key=lambda r: r.rank)


def first(run_dir: str) -> FailureRecord | None:
    """Returns the root cause: the earliest record that does not merely pass on another rank's failure."""
    return min(read_all(run_dir), key=lambda r: (r.is_secondary, r.time), default=None)


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or has ended and is kept by its parent for inspection (a zombie)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return os.path.isdir("/proc/self")


def ended_ranks(run_dir: str) -> set[int]:
    """Returns the ranks of this host whose process has ended, well or not, as far as the launcher's list tells."""
    ended = set()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with open(os.path.join(run_dir, "job.json"), "rb") as file:
            job = json.load(file)
        for entry in job["ranks"]:
            if _has_ended(int(entry["pid"])):
                ended.add(entry["rank"])
    return ended


class FailureWatch:
    """Tells a waiting rank that another rank has failed; every wait loop of a transport calls ``check`` while idle.

    Args:
        rank: Own global rank, whose records are passed over.
        run_dir: Run directory of the launcher, or None.
        fetch: Returns the JSON of the failure published through the store, or None; for jobs without a run directory.
        interval_s: The directory is looked at this often, the store four times less often.
        ranks: Only these ranks' failures count; all for None.
    """

    def __init__(
        self,
        rank: int,
        run_dir: str | None = None,
        fetch: Callable[[], bytes | None] | None = None,
        interval_s: float = 0.05,
        ranks: Collection[int] | None = None,
    ) -> None:
        self.rank, self.run_dir, self.fetch, self.interval_s = rank, run_dir, fetch, interval_s
        self.ranks = None if ranks is None else frozenset(ranks)
        self._next_look = 0.0
        self._next_fetch = 0.0
        self._seen_mtime = -1

    def for_ranks(self, ranks: Collection[int]) -> "FailureWatch":
        """Returns a watch for a group of ranks: the others may fail without disturbing it."""
        return FailureWatch(self.rank, self.run_dir, self.fetch, self.interval_s, ranks)

    def _concerns(self, record: FailureRecord) -> bool:
        return record.rank != self.rank and (self.ranks is None or record.rank in self.ranks)

    def check(self) -> None:
        """Raises PeerError naming the rank and its exception if another rank has failed; costs a clock read mostly."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + self.interval_s
        record = self.poll()
        if record is not None:
            raise PeerError(record.summary())

    def poll(self) -> FailureRecord | None:
        """Looks now, and returns the failure of another rank or None."""
        record = self._poll_directory()
        if record is None and self.fetch is not None and time.monotonic() >= self._next_fetch:
            self._next_fetch = time.monotonic() + 4 * self.interval_s
            data = self.fetch()
            if data is not None:
                with contextlib.suppress(ValueError, TypeError):
                    record = FailureRecord.from_json(data)
        return record if record is not None and self._concerns(record) else None

    def explain(self, rank: int, what: str, grace_s: float = 1.0) -> str:
        """Returns the published reason for the death of ``rank``, or "rank <rank> <what>".

        Where somebody else writes the record (the launcher, after it has collected the process), waits up to
        ``grace_s`` for it.
        """
        deadline = time.monotonic() + (grace_s if self.run_dir is not None or self.fetch is not None else 0.0)
        while True:
            self._next_fetch = 0.0
            record = self.poll()
            if record is not None and not record.is_secondary:
                return record.summary()
            if time.monotonic() >= deadline:
                return f"rank {rank} {what}" if record is None else record.summary()
            time.sleep(0.02)

    def _poll_directory(self) -> FailureRecord | None:
        if self.run_dir is None:
            return None
        try:
            mtime = os.stat(self.run_dir).st_mtime_ns
        except OSError:
            return None
        # The time stamp has the kernel's clock tick for its grain: a change is settled only when it is a bit old.
        settled = time.time_ns() - mtime > 100_000_000
        if mtime == self._seen_mtime:
            return None
        if settled:
            self._seen_mtime = mtime
        others = [r for r in read_all(self.run_dir) if self._concerns(r)]
        record = min(others, key=lambda r: (r.is_secondary, r.time), default=None)
        if record is not None:
            self._seen_mtime = -1
        return record
