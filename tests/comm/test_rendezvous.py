"""How ranks meet, and every way in which they do not."""

import json
import socket
import subprocess
import sys
import threading

import pytest

from ddpflow.comm.env import ProcessContext
from ddpflow.comm.file_store import FileStore
from ddpflow.comm.rendezvous import agree, check_method, close_servers, explicit_context, open_store
from ddpflow.comm.store import HashStore
from ddpflow.errors import CollectiveTimeout, ConfigError, MismatchError, PeerError


def meet(calls, **options) -> list[BaseException | None]:
    """Runs agree in a thread per (rank, text), and returns what each raised."""
    store = HashStore(5)
    errors: list[BaseException | None] = [None] * len(calls)

    def body(i: int, rank: int, text: str) -> None:
        try:
            arguments = {"ranks": range(2), "what": "init", "timeout_s": 0.3, **options}
            agree(store, rank, text=text, **arguments)
        except Exception as error:
            errors[i] = error

    threads = [threading.Thread(target=body, args=(i, *call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_meeting():
    """Ranks that say the same go on."""
    assert meet([(0, "size=2"), (1, "size=2")]) == [None, None]


def test_a_rank_claimed_twice():
    """Two processes with one rank are told at once, on all ranks."""
    errors = meet([(0, "x"), (0, "x")], timeout_s=20)
    assert all(isinstance(e, ConfigError) and "rank 0 was claimed twice" in str(e) for e in errors)


def test_differing_texts():
    """A difference is shown with both sides, on all ranks."""
    errors = meet([(0, "world_size=2"), (1, "world_size=3")], timeout_s=20)
    assert all(isinstance(e, MismatchError) for e in errors)
    assert all("world_size=2" in str(e) and "world_size=3" in str(e) for e in errors)


def test_missing_ranks():
    """All that did not come are named, by all that did."""
    errors = meet([(0, "x"), (2, "x")], ranks=range(4), where=" at host:1")
    assert all(isinstance(e, CollectiveTimeout) for e in errors)
    assert all("ranks {1, 3} did not come in 0.3 s at host:1" in str(e) for e in errors)


def test_a_rank_that_has_ended(tmp_path):
    """A rank whose process has ended without coming is told long before the deadline."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (tmp_path / "job.json").write_text(json.dumps({"ranks": [{"rank": 1, "pid": process.pid}]}))
    (error,) = meet([(0, "x")], timeout_s=30, run_dir=str(tmp_path))
    assert isinstance(error, PeerError) and str(error) == "rank 0: init: rank 1 has ended without calling it"


def test_a_failure_meanwhile():
    """What the store's idle hook raises ends the meeting, with what was going on."""
    store = HashStore(5)

    def fail() -> None:
        raise PeerError("rank 1 raised ValueError: early")

    store.on_idle = fail
    with pytest.raises(PeerError, match="^rank 0: init cannot finish: rank 1 raised ValueError: early$"):
        agree(store, 0, range(2), "x", "init", 5.0)


def test_a_notice_is_printed(capfd, monkeypatch):
    """A long wait prints once whom it waits for."""
    monkeypatch.setattr("ddpflow.comm.rendezvous._QUIET_S", 0.05)
    monkeypatch.setattr("ddpflow.comm.rendezvous._LOOK_S", 0.02)
    meet([(0, "x")], where=" at host:1")
    assert capfd.readouterr().err == "ddpflow: rank 0: init waits for ranks {1} at host:1\n"


BASE = ProcessContext()


@pytest.mark.parametrize(
    ("method", "rank", "size", "expected"),
    [
        ("tcp://10.0.0.1:29500", 1, 2, (1, 2, "10.0.0.1", 29500)),
        ("tcp://10.0.0.1:29500?rank=1&world_size=3", -1, -1, (1, 3, "10.0.0.1", 29500)),
        ("tcp://[::1]:5000", 0, 1, (0, 1, "::1", 5000)),
        ("file:///tmp/x", 0, 4, (0, 4, "127.0.0.1", 0)),
    ],
)
def test_explicit_places(method, rank, size, expected):
    """Rank and size come from the arguments or the query, the address from the method."""
    context = explicit_context(BASE, method, rank, size)
    assert (context.rank, context.world_size, context.master_addr, context.master_port) == expected


@pytest.mark.parametrize(
    ("method", "rank", "size", "text"),
    [
        ("tcp://10.0.0.1:29500", -1, 2, "both rank and world_size"),
        ("tcp://10.0.0.1:29500", 2, 2, "rank=2 must be below world_size=2"),
        ("tcp://10.0.0.1", 0, 2, "must look like tcp://"),
        ("tcp://10.0.0.1:99999", 0, 2, "[Pp]ort"),
        ("tcp://h:1?rank=x&world_size=2", -1, -1, "invalid literal"),
    ],
)
def test_wrong_places(method, rank, size, text):
    """Incomplete or contradictory arguments are refused with what is missing."""
    with pytest.raises(ConfigError, match=text):
        explicit_context(BASE, method, rank, size)


def test_launched_places():
    """A launcher's rank and size serve tcp:// and file:// too."""
    launched = ProcessContext(rank=1, world_size=2, launcher="env", master_addr="h", master_port=1)
    context = explicit_context(launched, "tcp://10.0.0.1:29500", -1, -1)
    assert (context.rank, context.world_size, context.master_addr) == (1, 2, "10.0.0.1")


def test_open_store(tmp_path):
    """Each method opens its kind of store; what is not understood is refused."""
    store = open_store(BASE.with_rank(0, 1, "127.0.0.1", 0), f"file://{tmp_path}/store", 5.0, lambda: None)
    assert isinstance(store, FileStore)
    store.close()
    with pytest.raises(ConfigError, match="not understood"):
        check_method("http://x")
    with pytest.raises(ConfigError, match="must look like file"):
        open_store(BASE, "file://", 5.0, lambda: None)
    with pytest.raises(ConfigError, match="set MASTER_ADDR and MASTER_PORT"):
        open_store(ProcessContext(world_size=2, launcher="mpich", master_addr=""), None, 5.0, lambda: None)


def test_the_server_outlives_a_world():
    """Rank 0 serves an address once, for all worlds of its life."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = BASE.with_rank(0, 1, "127.0.0.1", port)
    a = open_store(context, "env://", 5.0, lambda: None)
    a.set("k", b"v")
    b = open_store(context, "env://", 5.0, lambda: None)
    assert b.get("k") == b"v"
    b.close()
    close_servers()
