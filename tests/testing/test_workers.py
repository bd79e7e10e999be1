"""The pool of rank processes."""

import os
import sys

import pytest

from ddpflow.errors import LaunchError
from ddpflow.testing import workers


def test_idle_workers_come_back():
    """A worker that was given back is taken again."""
    workers.end_idle_workers()
    (first,) = workers.take(1, "shm")
    workers.give_back([first])
    (again,) = workers.take(1, "shm")
    assert again is first and again.pid != os.getpid()
    again.end()
    assert again.channel.socket.fileno() == -1


def test_output_and_exit():
    """What a worker prints can be read, and how it ended."""
    (worker,) = workers.take(1, "shm")
    os.kill(worker.pid, 15)
    with pytest.raises(EOFError):
        worker.channel.receive(30)
    assert worker.exit_status() == (None, 15) and worker.read_output() == ""
    worker.end()


def test_no_mpiexec(monkeypatch):
    """Without mpiexec the extra is named."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LaunchError, match=r"ddpflow\[mpi\]"):
        workers.MpiWorld(2)
