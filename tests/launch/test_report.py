"""The report on a failed run."""

import json
import signal

import pytest

from ddpflow.comm.failure import FailureRecord
from ddpflow.launch.gang import Outcome
from ddpflow.launch.report import exit_code, failure_report, rank_list, write_json

ROOT = FailureRecord(
    rank=5,
    node=1,
    pid=77,
    type="ValueError",
    message="bad batch\nsecond line",
    traceback="Traceback\n  x\n",
    exitcode=1,
    time=0,
)


def outcome(
    *others: FailureRecord, root: FailureRecord = ROOT, ended: tuple[int, ...] = (), err: bytes = b""
) -> Outcome:
    """Returns an outcome with this root cause and these other failures."""
    return Outcome(root, [root, *others], list(ended), [], {root.rank: err}, False)


def test_root_cause_first_and_the_others_folded():
    """Who, where, when and what; the traceback; the last 20 lines; then one line for each kind of other end."""
    peers = [
        FailureRecord(rank, type="PeerError", message="rank 5 raised ValueError: bad batch") for rank in (0, 1, 2, 4)
    ]
    err = b"".join(b"line %d\n" % i for i in range(50)) + b"\r1%\r2%\n"
    lines = failure_report(outcome(*peers, FailureRecord(3, signal=9), ended=(6, 7), err=err), range(4, 8)).splitlines()
    assert lines[0].startswith("ddprun: rank 5 failed first (node 1, pid 77, ")
    assert lines[0].endswith("): ValueError: bad batch ...")
    assert lines[1:4] == ["  Traceback", "    x", "  last lines of rank 5's stderr:"]
    assert lines[4:24] == [f"    line {i}" for i in range(31, 50)] + ["    2%"]
    assert lines[24:] == [
        "  then ranks 0-2, 4 raised PeerError: rank 5 raised ValueError: bad batch",
        "  then rank 3 was killed by SIGKILL",
        "  then ranks 6-7 were ended by ddprun",
    ]


def test_root_cause_on_another_host_is_short():
    """Elsewhere, one line names the root cause; its details stand on its own host."""
    assert len(failure_report(outcome(err=b"x\n"), range(4)).splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (signal.SIGKILL, "out of memory"),
        (signal.SIGBUS, "/dev/shm"),
        (signal.SIGSEGV, "native code"),
        (signal.SIGHUP, ""),
    ],
)
def test_signals_have_names_and_hints(number, hint):
    """A signal is named, and explained where there is something to explain."""
    text = failure_report(outcome(root=FailureRecord(0, signal=number)), [0])
    assert f"it was killed by {signal.Signals(number).name}" in text
    assert hint in text


def test_unknown_signal_number():
    """A real-time signal has a number only."""
    assert "it was killed by signal 41" in failure_report(outcome(root=FailureRecord(0, signal=41)), [0])


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (FailureRecord(0, exitcode=3), 3),
        (FailureRecord(0, exitcode=256), 1),
        (FailureRecord(0, exitcode=-1), 255),
        (FailureRecord(0), 1),
        (FailureRecord(0, signal=9), 137),
    ],
)
def test_exit_code_is_the_root_causes(record, code):
    """The rank's own code, 128 + the signal, and never 0."""
    assert exit_code(record) == code


def test_rank_lists():
    """Neighbours are joined."""
    assert [rank_list(ranks) for ranks in ([3], [2, 1], [5, 0, 2, 3])] == ["rank 3", "ranks 1-2", "ranks 0, 2-3, 5"]


def test_json_has_it_all(tmp_path):
    """The same for programs: whole message, traceback, stderr lines, the other ranks."""
    path = tmp_path / "error.json"
    write_json(str(path), outcome(FailureRecord(0, signal=9), ended=(1,), err=b"a\nb\n"), "run7")
    content = json.loads(path.read_text())
    assert content["run_id"] == "run7" and content["exit_code"] == 1 and content["ended_by_ddprun"] == [1]
    root = content["root_cause"]
    assert (root["rank"], root["type"], root["message"]) == (5, "ValueError", "bad batch\nsecond line")
    assert (root["stderr"], root["traceback"]) == (["a", "b"], "Traceback\n  x\n")
    assert content["others"][0]["signal"] == 9
    assert [path.name for path in tmp_path.iterdir()] == ["error.json"]
