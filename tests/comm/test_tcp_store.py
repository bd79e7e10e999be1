"""The TCP store from the client's side: meeting, refusing, losing its server."""

import os
import socket
import threading
import time

import pytest

from ddpflow.comm.tcp_store import TCPStore
from ddpflow.errors import CollectiveTimeout, CommError, PeerError, ValueRangeError


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_server_may_come_later():
    """Clients wait for rank 0, and ask whether to go on meanwhile."""
    port = free_port()
    asked = threading.Event()
    stores: list[TCPStore] = []

    def serve() -> None:
        asked.wait(10)
        stores.append(TCPStore("127.0.0.1", port, is_master=True, timeout=10))

    thread = threading.Thread(target=serve)
    thread.start()
    client = TCPStore("127.0.0.1", port, timeout=10, on_idle=asked.set)
    client.set("k", b"v")
    thread.join()
    assert stores[0].get("k") == b"v"
    client.close()
    stores[0].close()


def test_nobody_there():
    """Without a server the deadline's error gives the address and the usual reasons."""
    port = free_port()
    with pytest.raises(CollectiveTimeout, match=f"127.0.0.1:{port} after 0.2 s.*MASTER_ADDR"):
        TCPStore("127.0.0.1", port, timeout=0.2)


def test_a_taken_port_is_told_at_once():
    """Serving on a taken port names it; serving on a foreign address names the remedy."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommError, match=f"127.0.0.1:{port}.*choose another MASTER_PORT"):
            TCPStore("127.0.0.1", port, is_master=True, timeout=5)
    with pytest.raises(CommError, match="an address of rank 0's host"):
        TCPStore("192.0.2.1", 0, is_master=True, timeout=5)
    with pytest.raises(ValueRangeError, match="70000"):
        TCPStore("127.0.0.1", 70000, timeout=5)


def test_another_job():
    """A client with another token is refused, and learns why."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5, token=b"a" * 16)
    with pytest.raises(CommError, match="belongs to another job"):
        TCPStore("127.0.0.1", server.port, timeout=5, token=b"b" * 16)
    server.set("k", b"v")
    assert server.get("k") == b"v"
    server.close()


def test_another_program():
    """What is no store is recognised, whether it speaks or not."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        def speak() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + b" " * 100)
            connection.close()

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(CommError, match="is not a ddpflow store"):
            TCPStore("127.0.0.1", port, timeout=5)
        thread.join()
        with pytest.raises(CollectiveTimeout, match="does not answer"):
            TCPStore("127.0.0.1", port, timeout=0.3)


def test_a_server_with_a_wrong_proof():
    """A server that does not hold the token either gets no request."""
    received = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def pretend() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"ddpflow-store-1\n" + b"n" * 32)
            received.append(connection.recv(1000))
            connection.sendall(b"p" * 32)
            received.append(connection.recv(1000))
            connection.close()

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(CommError, match="belongs to another job"):
            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, token=b"secret token")
        thread.join()
    assert len(received[0]) == 64 and b"secret" not in received[0] and received[1] == b""


def test_losing_the_server():
    """When the server ends, waits and later calls say so instead of hanging."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5)
    client = TCPStore("127.0.0.1", server.port, timeout=5)
    timer = threading.Timer(0.1, server.close)
    timer.start()
    start = time.monotonic()
    with pytest.raises(PeerError, match="rank 0 has ended or failed"):
        client.wait(["absent"], 60)
    assert time.monotonic() - start < 30
    client.set_timeout(0.1)
    client._grace_s = 0.1
    with pytest.raises(CommError):
        client.get("k")
    client.close()
    with pytest.raises(CommError, match="closed"):
        client.get("k")
    timer.join()


def test_waiting_for_workers():
    """With a world size the constructor returns when all are there, and otherwise says how many came."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5)
    stores = []

    def join() -> None:
        stores.append(TCPStore("127.0.0.1", server.port, world_size=2, timeout=5))

    threads = [threading.Thread(target=join) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 2
    with pytest.raises(CollectiveTimeout, match="only 3 of 5 ranks"):
        TCPStore("127.0.0.1", server.port, world_size=5, timeout=0.2).close()
    for store in [*stores, server]:
        store.close()


def test_large_values_and_limits():
    """Megabytes pass; what is beyond the limit is refused before it is sent."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5)
    value = os.urandom(5 << 20)
    server.set("big", value)
    assert server.get("big") == value
    with pytest.raises(ValueRangeError, match="larger than the limit"):
        server.set("huge", bytes(65 << 20))
    assert server.num_keys() == 1
    server.close()


def test_a_listening_socket_can_be_given():
    """The server takes a socket that somebody else has opened, and leaves the original open."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        for _ in range(2):
            store = TCPStore("127.0.0.1", port, is_master=True, timeout=5, listen_fd=listener.fileno())
            store.set("k", b"v")
            assert store.port == port and store.num_keys() == 1
            store.close()


def test_clone_has_its_own_connection():
    """While one connection waits, a clone works."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5)
    clone = server.clone(2)
    thread = threading.Thread(target=server.wait, args=(["go"],))
    thread.start()
    clone.set("go", b"")
    thread.join()
    clone.close()
    server.close()


def test_no_use_after_fork():
    """A forked child cannot disturb its parent's connection."""
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5)
    pid = os.fork()
    if pid == 0:
        try:
            server.set("k", b"child")
        except CommError as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    server.set("k", b"parent")
    assert server.get("k") == b"parent"
    server.close()
