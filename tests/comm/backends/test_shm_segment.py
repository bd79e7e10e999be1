"""Shared files: nameless, reserved before use, gone with their last user."""

import gc
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

from ddpflow.comm.backends import shm_segment
from ddpflow.comm.backends.shm_segment import (
    SharedFile,
    create_file,
    page_align,
    process_start_time,
    sweep_leftovers,
)


def test_two_mappings_share_memory():
    """What is written through one mapping is read through another."""
    file = SharedFile(create_file(8 * mmap.PAGESIZE))
    file.reserve(0, file.size)
    first, second = file.map(0, file.size), file.map(mmap.PAGESIZE, file.size)
    first.words()[mmap.PAGESIZE // 8 + 3] = -(1 << 62)
    assert second.words()[3] == -(1 << 62)
    second.array(5, np.dtype("float64"))[4] = 2.5
    assert first.bytes[mmap.PAGESIZE + 32 :][:8].view(np.float64)[0] == 2.5


def test_memory_lives_as_long_as_an_array():
    """Views stay valid after the file object and the mapping object are gone."""
    file = SharedFile(create_file(mmap.PAGESIZE))
    array = file.map(0, mmap.PAGESIZE).array(7, np.dtype("int32"))
    del file
    gc.collect()
    array[:] = np.arange(7)
    assert array[2:5].tolist() == [2, 3, 4]


def test_given_back_memory_reads_zero():
    """Memory that is given back to the system loses its content and can be used again."""
    file = SharedFile(create_file(4 * mmap.PAGESIZE))
    mapping = file.map(0, file.size)
    mapping.bytes[:] = 7
    blocks = os.fstat(file.fileno()).st_blocks
    mapping.give_back()
    assert os.fstat(file.fileno()).st_blocks < blocks
    assert not mapping.bytes.any()


@pytest.mark.parametrize("missing", [("memfd_create",), ("memfd_create", "O_TMPFILE")])
def test_fallbacks_leave_no_name(monkeypatch, tmp_path, missing):
    """Without memfd, and without O_TMPFILE, a file is used that has no name when it is handed out."""
    for name in missing:
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(shm_segment, "_shared_directory", lambda: str(tmp_path))
    file = SharedFile(create_file(3 * mmap.PAGESIZE))
    assert list(tmp_path.iterdir()) == []
    file.reserve(0, file.size)
    mapping = file.map(0, file.size)
    mapping.map_in(0, file.size)
    mapping.bytes[-1] = 9
    assert mapping.bytes[-1] == 9


def test_memory_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    """Reserving fails with OSError where there is no room; nothing is found missing by a signal later."""
    file = SharedFile(create_file(1 << 44))
    monkeypatch.setattr(os, "posix_fallocate", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        file.reserve(0, 1 << 43)
    file.reserve(5, 5)  # nothing to reserve, nothing to fail


def test_sweep_removes_only_what_dead_processes_left(tmp_path):
    """Of the named files, those of this user whose maker is dead go; all others stay."""
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    started = process_start_time(dead.pid) or 0
    dead.wait()
    uid, own = os.getuid(), os.getpid()
    stays = [
        f"ddpflow_{uid}_{own}_{process_start_time(own)}_{'a' * 16}",  # of a living process
        f"ddpflow_{uid + 1}_{dead.pid}_{started}_{'b' * 16}",  # of another user
        "ddpflow_notes.txt",
        f"other_{uid}_{dead.pid}_{started}_{'c' * 16}",
    ]
    goes = [
        f"ddpflow_{uid}_{dead.pid}_{started}_{'d' * 16}",
        f"ddpflow_{uid}_{own}_{(process_start_time(own) or 0) + 1}_{'e' * 16}",  # its pid was used again
    ]
    for name in stays + goes:
        (tmp_path / name).touch()
    assert sorted(sweep_leftovers(str(tmp_path))) == sorted(goes)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stays)


def test_start_times():
    """A process has one start time all its life; one that is gone has none."""
    assert process_start_time(os.getpid()) == process_start_time(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert process_start_time(child.pid) is None
    assert page_align(1) == mmap.PAGESIZE
    assert page_align(mmap.PAGESIZE) == mmap.PAGESIZE


def test_descriptor_is_closed_once():
    """The file object closes its descriptor, and does not mind being closed twice."""
    file = SharedFile(create_file(mmap.PAGESIZE))
    fd = file.fileno()
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
