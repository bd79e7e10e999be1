"""Messages between a test and its rank processes: length-prefixed pickles on a socket pair, with descriptors."""

import pickle
import select
import socket
import struct
import time
from typing import Any

__all__ = ["Channel"]

_LENGTH = struct.Struct("!Q")


class Channel:
    """One end of a socket pair between processes that trust each other."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, message: Any, descriptors: tuple[int, ...] = ()) -> None:
        """Sends an object, and copies of open descriptors with it."""
        data = pickle.dumps(message)
        head = _LENGTH.pack(len(data))
        if descriptors:
            socket.send_fds(self.socket, [head], list(descriptors))
        else:
            self.socket.sendall(head)
        self.socket.sendall(data)

    def receive(self, timeout_s: float | None = None) -> tuple[Any, list[int]]:
        """Returns the next object and the descriptors that came with it.

        Raises:
            EOFError: The other end is closed.
            TimeoutError: Nothing came in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        head, descriptors, _, _ = self._receive_head(deadline)
        while len(head) < _LENGTH.size:
            head += self._read(_LENGTH.size - len(head), deadline)
        (length,) = _LENGTH.unpack(head)
        data = bytearray()
        while len(data) < length:
            data += self._read(length - len(data), deadline)
        return pickle.loads(data), list(descriptors)

    def _receive_head(self, deadline: float | None) -> tuple[bytes, list[int], int, Any]:
        self._wait(deadline)
        try:
            received = socket.recv_fds(self.socket, _LENGTH.size, 4)
        except ConnectionError as error:
            raise EOFError from error
        if not received[0]:
            raise EOFError
        return received

    def _read(self, n: int, deadline: float | None) -> bytes:
        self._wait(deadline)
        try:
            data = self.socket.recv(min(n, 1 << 20))
        except ConnectionError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        return data

    def _wait(self, deadline: float | None) -> None:
        if deadline is not None:
            ready, _, _ = select.select([self.socket], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError

    def close(self) -> None:
        """Closes this end."""
        self.socket.close()
