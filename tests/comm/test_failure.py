"""Failure records and the watch that finds them."""

import json
import os
import subprocess
import sys

import pytest

from ddpflow.comm.failure import FailureRecord, FailureWatch, describe_exit, ended_ranks, first, read_all
from ddpflow.errors import PeerError


def caught(error: BaseException) -> BaseException:
    """Returns the exception with a traceback."""
    try:
        raise error
    except BaseException as raised:
        return raised


def test_record_of_an_exception(tmp_path):
    """A record carries type, text and traceback through its file."""
    record = FailureRecord.from_exception(2, caught(ValueError("bad batch")), node=1)
    assert record.write(str(tmp_path))
    (read,) = read_all(str(tmp_path))
    assert read == record
    assert (read.rank, read.node, read.pid, read.type) == (2, 1, os.getpid(), "ValueError")
    assert "raise error" in read.traceback
    assert read.summary() == "rank 2 raised ValueError: bad batch"


def test_summaries():
    """Exits and signals are told by name."""
    assert FailureRecord(1, signal=9).summary() == "rank 1 was killed by SIGKILL"
    assert FailureRecord(1, exitcode=3).summary() == "rank 1 exited with code 3"
    assert FailureRecord(1, type="KeyError").summary() == "rank 1 raised KeyError"
    assert describe_exit(None, None) == "is gone"
    assert describe_exit(None, 200) == "was killed by signal 200"


def test_the_first_record_of_a_rank_stays(tmp_path):
    """What the rank wrote is not replaced by what the launcher adds later."""
    assert FailureRecord(0, type="ValueError", message="x").write(str(tmp_path))
    assert not FailureRecord(0, exitcode=1).write(str(tmp_path))
    assert read_all(str(tmp_path))[0].type == "ValueError"
    assert sorted(os.listdir(tmp_path)) == ["failed.0.json"]


def test_a_directory_that_is_gone(tmp_path):
    """Writing and reading without the directory is quiet."""
    gone = str(tmp_path / "gone")
    assert not FailureRecord(0).write(gone)
    assert read_all(gone) == [] and first(gone) is None and ended_ranks(gone) == set()


def test_garbage_is_passed_over(tmp_path):
    """Files that are no records, truncated or of other shape, hide nothing."""
    for name, data in (
        ("failed.0.json", b"{"),
        ("failed.1.json", b"[1]"),
        ("failed.2.json", b'{"rank": "x"}'),
        ("x", b""),
    ):
        (tmp_path / name).write_bytes(data)
    FailureRecord(3, type="OSError").write(str(tmp_path))
    assert [r.rank for r in read_all(str(tmp_path))] == [3]


def test_root_cause(tmp_path):
    """The first failure is the earliest that does not merely pass on another's."""
    FailureRecord(0, type="PeerError", time=1.0).write(str(tmp_path))
    FailureRecord(1, type="ValueError", time=3.0).write(str(tmp_path))
    FailureRecord(2, type="KeyError", time=2.0).write(str(tmp_path))
    found = first(str(tmp_path))
    assert found is not None and found.rank == 2


def test_watch(tmp_path):
    """The watch is quiet until another rank fails, and then names it; its own record does not count."""
    watch = FailureWatch(0, str(tmp_path), interval_s=0.0)
    watch.check()
    FailureRecord(0, type="ValueError").write(str(tmp_path))
    watch.check()
    FailureRecord(1, type="ValueError", message="bad").write(str(tmp_path))
    for _ in range(2):
        with pytest.raises(PeerError, match="^rank 1 raised ValueError: bad$"):
            watch.check()


def test_watch_is_cheap(tmp_path, monkeypatch):
    """Between two looks a check reads a clock and no file."""
    watch = FailureWatch(0, str(tmp_path), interval_s=1000.0)
    watch.check()
    monkeypatch.setattr(os, "stat", None)
    watch.check()


def test_watch_over_a_function():
    """Without a directory the record comes from elsewhere, and garbage there is no failure."""
    answers = [None, b"garbage", FailureRecord(0).to_json(), FailureRecord(1, signal=9).to_json()]
    watch = FailureWatch(0, fetch=lambda: answers.pop(0), interval_s=0.0)
    for _ in range(3):
        watch.check()
    with pytest.raises(PeerError, match="rank 1 was killed by SIGKILL"):
        watch.check()


def test_explain(tmp_path):
    """The published reason is preferred to what was seen."""
    watch = FailureWatch(0, str(tmp_path))
    assert watch.explain(1, "is gone", grace_s=0.05) == "rank 1 is gone"
    FailureRecord(1, signal=9).write(str(tmp_path))
    assert watch.explain(1, "is gone") == "rank 1 was killed by SIGKILL"
    assert FailureWatch(0).explain(1, "is gone", grace_s=60) == "rank 1 is gone"


def test_long_texts_are_cut():
    """A record never grows past what readers take."""
    record = FailureRecord(0, type="E", message="m" * 10**6, traceback="t" * 10**6)
    assert len(record.to_json()) < 1 << 20
    assert FailureRecord.from_json(record.to_json()).rank == 0


def test_ended_ranks(tmp_path):
    """Processes of the launcher's list that are gone, or zombies, count as ended; living ones do not."""
    zombie = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert zombie.stdout is not None
    zombie.stdout.read()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    job = {"ranks": [{"rank": 0, "pid": os.getpid()}, {"rank": 1, "pid": zombie.pid}, {"rank": 2, "pid": 2**22 + 5}]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert ended_ranks(str(tmp_path)) == {1, 2}
    zombie.stdout.close()
    zombie.wait()
    (tmp_path / "job.json").write_text("{")
    assert ended_ranks(str(tmp_path)) == set()


def test_watch_of_a_group(tmp_path):
    """A watch for some ranks does not mind the others."""
    watch = FailureWatch(0, str(tmp_path), interval_s=0.0)
    part = watch.for_ranks([0, 2])
    FailureRecord(1, type="ValueError").write(str(tmp_path))
    part.check()
    with pytest.raises(PeerError, match="rank 1"):
        watch.check()
    FailureRecord(2, type="KeyError").write(str(tmp_path))
    with pytest.raises(PeerError, match="rank 2 raised KeyError"):
        part.check()
