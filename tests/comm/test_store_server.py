"""The store's server against strangers: garbage, truncation, slowness, wrong tokens."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import pytest

from ddpflow.comm import wire
from ddpflow.comm.store_server import StoreServer, listen_on
from ddpflow.comm.tcp_store import TCPStore

TOKEN = b"the job's secret"


@pytest.fixture
def server():
    """Returns a running server."""
    running = StoreServer(listen_on("127.0.0.1", 0), TOKEN)
    yield running
    running.close()


@pytest.fixture
def client(server):
    """Returns a client that belongs to the job."""
    store = TCPStore("127.0.0.1", server.port, timeout=10, token=TOKEN)
    yield store
    store.close()


def connect(server: StoreServer) -> socket.socket:
    """Returns a raw connection."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def read(connection: socket.socket, n: int) -> bytes:
    """Reads n bytes, or up to the end."""
    data = b""
    while len(data) < n:
        try:
            more = connection.recv(n - len(data))
        except ConnectionError:
            break
        if not more:
            break
        data += more
    return data


def admitted(server: StoreServer) -> socket.socket:
    """Returns a raw connection that has proved the token."""
    connection = connect(server)
    question = read(connection, wire.CHALLENGE_BYTES)
    answer = wire.answer(TOKEN, question)
    connection.sendall(answer)
    assert wire.verify_proof(TOKEN, question, answer, read(connection, wire.PROOF_BYTES))
    return connection


def check_alive(client: TCPStore) -> None:
    """The real client still gets answers."""
    number = client.add("alive", 1)
    client.set(f"key {number}", b"value")
    assert client.get(f"key {number}") == b"value"


def test_strangers_are_dropped(server, client):
    """Whoever answers the challenge wrongly is cut off without a word, and nothing that they sent is obeyed."""
    for answer in (os.urandom(64), bytes(64), wire.answer(b"wrong token", b"x")):
        with connect(server) as stranger:
            read(stranger, wire.CHALLENGE_BYTES)
            stranger.sendall(answer + wire.pack([b"set", b"evil", b"1"]))
            assert read(stranger, 1) == b""
    with connect(server) as replay:
        # An answer to another challenge is worth nothing.
        read(replay, wire.CHALLENGE_BYTES)
        replay.sendall(wire.answer(TOKEN, wire.challenge()))
        assert read(replay, 1) == b""
    assert client.try_get("evil") is None
    check_alive(client)


def test_a_request_right_behind_the_answer(server):
    """Bytes that follow a right answer at once are read as requests."""
    with connect(server) as connection:
        question = read(connection, wire.CHALLENGE_BYTES)
        connection.sendall(wire.answer(TOKEN, question) + wire.pack([b"num_keys"]))
        read(connection, wire.PROOF_BYTES)
        assert read(connection, 15) == wire.pack([b"ok", b"0"])


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!I", 1 << 31),
        struct.pack("!I", wire.LARGEST_FRAME + 1),
        wire.pack([]),
        wire.pack([b"unknown"]),
        wire.pack([b"set"]),
        wire.pack([b"set", b"key"]),
        wire.pack([b"set", b"\xff\xfe", b"1"]),
        wire.pack([b"add", b"key", b"1e5"]),
        wire.pack([b"wait"]),
        wire.pack([b"wait", b"soon", b"key"]),
        wire.pack([b"compare_set", b"key", b"1"]),
        struct.pack("!II", 8, 100) + b"1234",
        struct.pack("!I", 2) + b"12",
    ],
)
def test_malformed_requests(server, client, frame):
    """A member that sends nonsense is dropped; the others go on."""
    with admitted(server) as connection:
        connection.sendall(frame)
        assert read(connection, 1) == b""
    check_alive(client)


def test_pipelined_requests(server):
    """Many requests in one packet are answered one by one, in order, however they are cut."""
    data = b"".join(wire.pack([b"add", b"n", b"1"]) for _ in range(3000))
    with admitted(server) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        buffer = bytearray()
        sums = []
        while len(sums) < 3000:
            buffer += connection.recv(777)
            while (body := wire.take_frame(buffer)) is not None:
                sums.append(int(wire.unpack(body)[1]))
        sender.join()
    assert sums == list(range(1, 3001))


def test_slow_clients_do_not_block(server, client):
    """Clients that send a byte at a time, stop in the middle, or never read, cost the others nothing."""
    slow, half, deaf = connect(server), admitted(server), admitted(server)
    half.sendall(wire.pack([b"set", b"k", b"v"])[:-1])
    deaf.setblocking(False)
    client.set("big", bytes(1 << 20))
    request = wire.pack([b"try_get", b"big"])
    sent = 0
    for _ in range(500):
        try:
            sent += deaf.send(request)
        except BlockingIOError:
            break
    for byte in os.urandom(20):
        slow.sendall(bytes([byte]))
        check_alive(client)
    for connection in (slow, half, deaf):
        connection.close()
    check_alive(client)


def test_too_many_strangers(server, client):
    """Connections that never answer the challenge are limited in number, the oldest go first, and members get in."""
    strangers = [connect(server) for _ in range(200)]
    check_alive(client)
    late = TCPStore("127.0.0.1", server.port, timeout=10, token=TOKEN)
    check_alive(late)
    assert read(strangers[0], wire.CHALLENGE_BYTES + 1)[wire.CHALLENGE_BYTES :] == b""
    for stranger in strangers:
        stranger.close()
    late.close()


def test_waiters_that_leave(server, client):
    """A client that goes away in the middle of a wait leaves no trace."""
    for _ in range(20):
        with admitted(server) as connection:
            connection.sendall(wire.pack([b"wait", b"60", b"never"]))
    client.set("never", b"")
    check_alive(client)


def test_close_ends_the_thread():
    """Closing ends the serving thread and frees the port, at once and twice."""
    before = threading.active_count()
    server = StoreServer(listen_on("127.0.0.1", 0), TOKEN)
    port = server.port
    with connect(server):
        server.close()
        server.close()
    assert threading.active_count() == before
    listen_on("127.0.0.1", port).close()


def test_lingering(client, server):
    """A server that is to end still serves its clients until they go, or the time is up."""
    closing = threading.Thread(target=server.close, args=(30.0,))
    closing.start()
    check_alive(client)
    assert closing.is_alive()
    client.close()
    closing.join(10)
    assert not closing.is_alive() and not server._thread.is_alive()


def test_lingering_ends():
    """A client that stays does not keep the server for ever."""
    server = StoreServer(listen_on("127.0.0.1", 0), TOKEN)
    stays = TCPStore("127.0.0.1", server.port, timeout=10, token=TOKEN)
    server.close(0.05)
    assert not server._thread.is_alive()
    stays.close()


def fuzz(server: StoreServer, client: TCPStore, n_frames: int, seed: int) -> None:
    """Sends random, mutated and truncated frames, from strangers and from members."""
    draw = random.Random(seed)
    valid = [
        wire.pack([b"set", b"fuzz", b"1"]),
        wire.pack([b"add", b"fuzz n", b"2"]),
        wire.pack([b"compare_set", b"fuzz", b"", b"x"]),
        wire.pack([b"wait", b"0.001", b"nothing"]),
        wire.pack([b"check", b"a", b"b"]),
        wire.pack([b"delete", b"fuzz"]),
    ]
    sent = 0
    while sent < n_frames:
        member = draw.random() < 0.5
        connection = admitted(server) if member else connect(server)
        frames = []
        for _ in range(draw.randrange(1, 9)):
            kind = draw.random()
            frame = bytearray(draw.choice(valid))
            if kind < 0.2:
                frame = bytearray(draw.randbytes(draw.randrange(1, 80)))
            elif kind < 0.5:
                frame[draw.randrange(len(frame))] ^= 1 << draw.randrange(8)
            elif kind < 0.6:
                del frame[draw.randrange(len(frame)) :]
            frames.append(bytes(frame))
        sent += len(frames)
        with contextlib.suppress(OSError):
            connection.sendall(b"".join(frames))
            connection.shutdown(socket.SHUT_WR)
            read(connection, 1 << 30)
        connection.close()
        if draw.random() < 0.02:
            check_alive(client)
    check_alive(client)


def test_random_frames(server, client):
    """Thousands of random frames neither crash nor block the server."""
    fuzz(server, client, 5_000, seed=1)
    assert server._thread.is_alive()


@pytest.mark.slow
def test_a_hundred_thousand_random_frames(server, client):
    """The same with 100,000 frames, while a real client works beside them."""
    stop = threading.Event()
    slowest = [0.0]

    def work() -> None:
        other = client.clone()
        while not stop.is_set():
            start = time.monotonic()
            check_alive(other)
            slowest[0] = max(slowest[0], time.monotonic() - start)
        other.close()

    worker = threading.Thread(target=work)
    worker.start()
    fuzz(server, client, 100_000, seed=2)
    stop.set()
    worker.join()
    assert server._thread.is_alive() and slowest[0] < 10
