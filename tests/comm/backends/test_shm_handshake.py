"""The socket that hands out descriptors: gives them to the job's own ranks, to nobody else, whatever strangers send."""

import gc
import os
import random
import socket
import struct
import threading
import time

import pytest

from ddpflow.comm.backends import shm_handshake
from ddpflow.comm.backends.shm_handshake import Hub, host_identity, join
from ddpflow.comm.backends.shm_segment import create_file
from ddpflow.errors import CollectiveTimeout, CommError, PeerError
from tests.comm.backends.shm_world import at_once

TOKEN = b"a secret of sixteen bytes"


class Deadline:
    """A check that gives up after some seconds."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.until = time.monotonic() + seconds

    def __call__(self, missing):
        """Raises when the time is over."""
        if time.monotonic() > self.until:
            raise CollectiveTimeout(f"still waits for {missing}")


def connect(address: str) -> socket.socket:
    """Connects as a stranger."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect("\0" + address)
    except OSError:
        connection.close()
        raise
    return connection


def open_descriptors() -> int:
    """Returns how many descriptors this process has open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def meet(n: int, *, token_of=lambda rank: TOKEN, group_of=lambda rank: "world", seconds: float = 10.0, strangers=()):
    """Lets n ranks meet while strangers are about; returns each rank's result or exception."""
    hub = Hub(TOKEN, group_of(0), n)
    fd = create_file(4096)
    check = Deadline(seconds)
    ranks = [lambda: hub.serve(fd, check)]
    for rank in range(1, n):
        ranks.append(lambda rank=rank: join(hub.address, token_of(rank), group_of(rank), rank, n, check))
    try:
        return at_once(*ranks, *(lambda s=s: s(hub.address) for s in strangers))[:n], os.fstat(fd).st_ino
    finally:
        os.close(fd)


def close_handles(results) -> None:
    """Closes the pidfds of tables of handles."""
    for handles in results:
        for handle in handles.values():
            os.close(handle.pidfd)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_all_get_the_file_and_a_handle_on_each_other(n):
    """Every rank ends with the same file and with the pid of every rank; no descriptor is left over."""
    before = open_descriptors()
    results, inode = meet(n)
    for _, (fd, _) in zip(range(1, n), results[1:], strict=True):
        assert os.fstat(fd).st_ino == inode
        os.close(fd)
    tables = [results[0], *(handles for _, handles in results[1:])]
    for handles in tables:
        assert sorted(handles) == list(range(n))
        assert {handle.pid for handle in handles.values()} == {os.getpid()}
    close_handles(tables)
    assert open_descriptors() == before


@pytest.mark.parametrize("what", ["token", "group", "rank"])
def test_others_are_turned_away(what):
    """A process with another token, of another group or with a rank that does not exist gets a reason and no file."""
    hub = Hub(TOKEN, "world", 3)
    fd = create_file(4096)
    check = Deadline(0.5)
    token = b"another secret, same size" if what == "token" else TOKEN
    group = "other" if what == "group" else "world"
    rank = 7 if what == "rank" else 1
    served, refused = at_once(lambda: hub.serve(fd, check), lambda: join(hub.address, token, group, rank, 3, check))
    os.close(fd)
    assert isinstance(served, CollectiveTimeout)
    assert "[1, 2]" in str(served)
    assert isinstance(refused, CommError)
    assert "turned away" in str(refused)
    assert ("not in a group of 3" if what == "rank" else "token") in str(refused)


def test_a_rank_is_taken_once():
    """The second process that claims a rank is told so; the first keeps its place."""
    hub = Hub(TOKEN, "world", 3)
    fd = create_file(4096)
    check = Deadline(1.0)
    results = at_once(
        lambda: hub.serve(fd, check), *[lambda: join(hub.address, TOKEN, "world", 1, 3, check) for _ in range(2)]
    )
    os.close(fd)
    texts = sorted(str(result) for result in results[1:])
    assert any("rank 1 was claimed twice" in text for text in texts), texts


def test_a_false_hub_is_not_believed():
    """A rank refuses a file from a process that answers without knowing the token."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0ddpflow-test-false-hub")
    listener.listen()

    def lie():
        connection, _ = listener.accept()
        with connection:
            connection.send(shm_handshake._MAGIC + bytes(16))
            connection.recv(512)
            with open("/dev/null") as file:
                socket.send_fds(connection, [b"W" + bytes(32)], [file.fileno()])

    before = open_descriptors()
    _, refused = at_once(lie, lambda: join("ddpflow-test-false-hub", TOKEN, "world", 1, 2, Deadline()))
    assert "does not know this job's token" in str(refused)
    assert open_descriptors() == before

    def speak_another_language():
        connection, _ = listener.accept()
        with connection:
            connection.send(b"HTTP/1.1 400 Bad Request")

    _, refused = at_once(
        speak_another_language, lambda: join("ddpflow-test-false-hub", TOKEN, "world", 1, 2, Deadline())
    )
    assert "not ddpflow" in str(refused)
    listener.close()


def test_a_hub_that_is_gone_is_told():
    """A rank that comes when the first rank has given up does not wait for it."""
    hub = Hub(TOKEN, "world", 2)
    hub.close()
    with pytest.raises(PeerError, match="gave up"):
        join(hub.address, TOKEN, "world", 1, 2, Deadline())


def random_packets(address: str, n: int, seed: int) -> int:
    """Sends n random, truncated or altered packets on connections of their own; returns how many got a file."""
    draw = random.Random(seed)
    taken = 0
    for _ in range(n):
        try:
            with connect(address) as connection:
                connection.settimeout(0.05)
                kind = draw.randrange(5)
                greeting = connection.recv(512)
                hello = draw.randbytes(16) + draw.randbytes(32) + struct.pack("<Iqq", draw.randrange(4), 1, 1)
                if kind == 0:
                    hello = draw.randbytes(draw.randrange(1, 400))
                elif kind == 1:
                    hello = hello[: draw.randrange(1, len(hello))]
                elif kind == 2:
                    proof = shm_handshake._proof(b"wrong", b"rank", "world", 1, hello[:16], greeting[-16:])
                    hello = hello[:16] + proof + hello[48:]
                elif kind == 3:  # what the hub itself would send
                    proof = shm_handshake._proof(TOKEN, b"hub", "world", 1, hello[:16], greeting[-16:])
                    hello = hello[:16] + proof + hello[48:]
                with open("/dev/null") as file:
                    socket.send_fds(connection, [hello], [file.fileno()] * draw.randrange(3))
                _, descriptors, _, _ = socket.recv_fds(connection, 512, 4)
                taken += len(descriptors)
        except (ConnectionError, TimeoutError, BlockingIOError):
            continue
    return taken


def test_strangers_change_nothing():
    """Random, truncated and altered packets, floods and silent clients neither get the file nor keep the ranks out."""
    before = open_descriptors()
    hub = Hub(TOKEN, "world", 3)
    fd = create_file(4096)
    check = Deadline(60)
    stop = threading.Event()
    taken = []

    def annoy(seed: int) -> None:
        while not stop.is_set():
            taken.append(random_packets(hub.address, 10, seed))
            seed += 100

    silent = [connect(hub.address) for _ in range(20)]
    serving = threading.Thread(target=lambda: results.append(hub.serve(fd, check)), daemon=True)
    results: list = []
    annoying = [threading.Thread(target=annoy, args=(seed,), daemon=True) for seed in range(3)]
    for thread in (serving, *annoying):
        thread.start()
    # More silent clients than the hub keeps, so that it has to drop some, while hundreds of packets arrive.
    silent += [connect(hub.address) for _ in range(80)]
    while sum(1 for _ in taken) < 60 and serving.is_alive():
        time.sleep(0.01)
    joined = at_once(*[lambda rank=rank: join(hub.address, TOKEN, "world", rank, 3, check) for rank in (1, 2)])
    serving.join(30)
    stop.set()
    for thread in annoying:
        thread.join(30)
    for connection in silent:
        connection.close()
    assert not serving.is_alive()
    assert sum(taken) == 0
    for shared, _ in joined:
        os.close(shared)
    close_handles([results[0], *(handles for _, handles in joined)])
    os.close(fd)
    assert open_descriptors() == before


def test_missing_ranks_are_named_to_the_check():
    """While it waits, the hub says who is missing, so that the deadline's error can."""
    hub = Hub(TOKEN, "world", 4)
    asked = []

    def check(missing):
        asked.append(missing)
        raise CollectiveTimeout("enough")

    with pytest.raises(CollectiveTimeout, match="enough"):
        hub.serve(0, check)
    assert asked == [[1, 2, 3]]


def test_host_identity():
    """It is the same for all processes here, and names the kernel and the network namespace."""
    assert host_identity() == host_identity()
    boot, _, namespace = host_identity().partition("/")
    assert len(boot) == 36
    assert namespace.startswith("net:")
