"""The file store: what is in the file, who may read it, and what a dead writer leaves."""

import os
import stat
import subprocess
import sys

import pytest

from ddpflow.comm.file_store import FileStore
from ddpflow.errors import CollectiveTimeout, CommError

WRITER = """
import os, sys
from ddpflow.comm.file_store import FileStore
store = FileStore(sys.argv[1], timeout=20)
for i in range(200):
    store.add("n", 1)
    store.set(f"key {os.getpid()} {i}", os.urandom(i))
"""


def test_processes_share_it(tmp_path):
    """Several processes write at once, and nothing is lost."""
    path = str(tmp_path / "store")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path]) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    store = FileStore(path)
    assert store.get("n") == b"600" and store.num_keys() == 601
    store.close()


@pytest.mark.parametrize("cut", [1, 5, 13, 20])
def test_a_half_written_record_is_cut_off(tmp_path, cut):
    """A writer that died inside a record spoils nothing but that record."""
    path = str(tmp_path / "store")
    a = FileStore(path)
    a.set("whole", b"value")
    size = os.path.getsize(path)
    a.set("half", b"0123456789" * 3)
    a.close()
    os.truncate(path, size + cut)
    b = FileStore(path)
    assert b.get("whole") == b"value" and b.try_get("half") is None
    b.set("next", b"1")
    b.close()
    c = FileStore(path)
    assert c.get("next") == b"1" and c.num_keys() == 2
    c.close()


def test_garbage_in_the_tail(tmp_path):
    """Bytes that are no record are not taken for one."""
    path = str(tmp_path / "store")
    a = FileStore(path)
    a.set("k", b"v")
    with open(path, "ab") as file:
        file.write(os.urandom(1000))
    assert a.num_keys() == 1
    a.close()


def test_refusals(tmp_path):
    """Other content, links and missing folders are clear errors."""
    other = tmp_path / "other"
    other.write_text("something else, longer than the head of a store")
    with pytest.raises(CommError, match="is not a file store"):
        FileStore(str(other))
    assert other.read_text().startswith("something")
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(CommError, match="cannot open"):
        FileStore(str(tmp_path / "link"))
    with pytest.raises(CommError, match="No such file"):
        FileStore(str(tmp_path / "no" / "store"))


def test_private_and_removed(tmp_path):
    """The file is its owner's alone, and goes with the last rank that closes it."""
    path = str(tmp_path / "store")
    a, b = FileStore(path, world_size=2), FileStore(path, world_size=2)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    a.close()
    assert os.path.exists(path)
    b.close()
    b.close()
    assert not os.path.exists(path)
    with pytest.raises(CommError, match="closed"):
        a.set("k", b"v")


def test_a_lock_that_stays(tmp_path):
    """A process that keeps the lock is told of after the deadline."""
    path = str(tmp_path / "store")
    a, b = FileStore(path), FileStore(path, timeout=0.1)
    with a._locked(), pytest.raises(CollectiveTimeout, match="stays locked"):
        b.set("k", b"v")
    b.set("k", b"v")
    a.close()
    b.close()
