"""Waiting for peers: cheap, quick where it can be, and aware of who is alive."""

import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from ddpflow.comm.backends import shm_wait
from ddpflow.comm.backends.shm_handshake import PeerHandle
from ddpflow.comm.backends.shm_segment import process_start_time
from ddpflow.comm.backends.shm_wait import PeerProcess, Peers, Waiter


def a_process() -> subprocess.Popen:
    """Starts a process that waits for its input to end."""
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def handle_of(process: subprocess.Popen, with_pidfd: bool) -> PeerHandle:
    """Returns a handle on a process, with or without a pidfd."""
    pidfd = os.pidfd_open(process.pid) if with_pidfd else None
    return PeerHandle(process.pid, process_start_time(process.pid) or 0, pidfd)


@pytest.mark.parametrize("with_pidfd", [True, False])
def test_a_killed_process_is_dead_before_it_is_collected(with_pidfd):
    """Life, a stop and death are seen with a pidfd and without one; a zombie counts as dead."""
    process = a_process()
    peer = PeerProcess.of(handle_of(process, with_pidfd))
    assert peer.is_alive()
    assert not peer.is_stopped()
    process.send_signal(signal.SIGSTOP)
    while not peer.is_stopped():
        time.sleep(0.005)
    assert peer.is_alive()
    process.kill()
    while peer.is_alive():  # the kernel needs a moment; the process is not collected meanwhile
        time.sleep(0.005)
    process.communicate()
    assert not peer.is_alive()
    assert not peer.is_stopped()


def test_one_object_and_descriptor_per_process():
    """Many groups share one handle on a process, and close it with the last of them."""
    process = a_process()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    groups = [Peers({0: handle_of(process, True), 1: handle_of(process, True)}) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert groups[0].processes[0] is groups[2].processes[1]
    del groups
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    process.communicate()


def test_a_pid_used_again_is_another_process():
    """Without a pidfd, a process with the pid but another start time is not taken for the peer."""
    process = a_process()
    peer = PeerProcess(PeerHandle(process.pid, (process_start_time(process.pid) or 0) - 1, None))
    assert not peer.is_alive()
    process.communicate()


def test_spin_sees_the_word():
    """A word that is there ends the wait at once; one that never comes ends it soon."""
    words = memoryview(bytearray(64)).cast("q")
    words[3] = 5
    waiter = Waiter(words, ranks_here=1)
    assert waiter.spin(3, 5)
    assert waiter.spin(3, 4)
    assert not waiter.spin(3, 6)


def test_a_glance(monkeypatch):
    """A glance sees a word that is there or comes meanwhile, gives up soon, and is none in a crowd."""

    class Words:
        """A word that counts how often it is looked at."""

        looks = 0

        def __getitem__(self, index):
            self.looks += 1
            return self.looks

    monkeypatch.setattr(shm_wait, "usable_cores", lambda: 2)
    assert Waiter(Words(), 2).glance(0, 1)
    assert Waiter(words := Words(), 2).glance(0, 20)
    assert words.looks == 20
    assert not Waiter(words := Words(), 2).glance(0, 10**6)
    assert 20 < words.looks < 10**4
    assert not Waiter(words := Words(), 3).glance(0, 1)
    assert words.looks == 0


def test_spinning_adapts(monkeypatch):
    """Spins that were in vain become fewer, and more again once they help; there are always some."""
    monkeypatch.setattr(shm_wait, "usable_cores", lambda: 1)
    monkeypatch.setattr(shm_wait, "_YIELDS", 0)
    words = memoryview(bytearray(8)).cast("q")
    waiter = Waiter(words, ranks_here=1)
    spins = []
    for _ in range(9):
        assert not waiter.spin(0, 1)
        spins.append(waiter._spins)
    assert spins == sorted(spins, reverse=True)
    assert spins[-1] == spins[-2] > 0
    words[0] = 1
    for _ in range(9):
        assert waiter.spin(0, 1)
    assert waiter._spins > spins[0]


def test_no_spinning_where_ranks_outnumber_cores(monkeypatch):
    """With more ranks than cores a rank gives its core away from the first look on."""
    monkeypatch.setattr(shm_wait, "usable_cores", lambda: 2)
    yields = []
    monkeypatch.setattr(os, "sched_yield", lambda: yields.append(words.__setitem__(0, 1)))
    for ranks, spins in ((2, True), (3, False)):
        words = memoryview(bytearray(8)).cast("q")
        yields.clear()
        waiter = Waiter(words, ranks)
        assert waiter.may_spin is spins
        assert waiter.spin(0, 1)
        assert len(yields) == 1  # the first yield lets the other rank write


def test_sleeps_grow_and_end(monkeypatch):
    """Sleeps are a small part of the time waited, between 50 microseconds and a few milliseconds."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    waiter = Waiter(memoryview(bytearray(8)).cast("q"), 1)
    for waited in (0.0, 0.001, 0.01, 0.1, 1.0, 100.0):
        waiter.sleep(waited)
    assert slept == sorted(slept)
    assert slept[0] == 50e-6
    assert slept[-1] == 4e-3
    assert slept[2] == pytest.approx(0.01 / 16)
