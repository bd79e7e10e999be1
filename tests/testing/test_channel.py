"""Messages between a test and its ranks."""

import os
import socket
import threading

import pytest

from ddpflow.testing.channel import Channel


@pytest.fixture
def ends():
    """Returns two connected channels."""
    a, b = (Channel(end) for end in socket.socketpair())
    yield a, b
    a.close()
    b.close()


def test_objects_of_any_size(ends):
    """Objects arrive whole and in order, also when they are larger than the socket's buffers."""
    a, b = ends
    messages = ["x", list(range(1000)), os.urandom(3 << 20), None]
    sender = threading.Thread(target=lambda: [a.send(m) for m in messages])
    sender.start()
    assert [b.receive(10)[0] for _ in messages] == messages
    sender.join()


def test_descriptors(ends):
    """Open descriptors travel along."""
    a, b = ends
    read_end, write_end = os.pipe()
    a.send("pipe", (write_end,))
    message, (copy,) = b.receive(10)
    assert message == "pipe"
    os.write(copy, b"hello")
    assert os.read(read_end, 10) == b"hello"
    for fd in (read_end, write_end, copy):
        os.close(fd)


def test_silence_and_the_end(ends):
    """A deadline and a closed end are told apart, also in the middle of a message."""
    a, b = ends
    with pytest.raises(TimeoutError):
        b.receive(0.01)
    a.socket.sendall(b"\0\0")
    with pytest.raises(TimeoutError):
        b.receive(0.01)
    a.close()
    with pytest.raises(EOFError):
        b.receive(10)
