"""An authenticated connection between two launchers: JSON messages, signs of life, and a reason when it ends."""

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any

from ddpflow.comm import wire
from ddpflow.errors import CommError
from ddpflow.launch.loop import Loop

__all__ = ["Channel", "Message"]

Message = dict[str, Any]
_MISSED = 5
_HANDSHAKE_S = 10.0


class Channel:
    """One end of a connection, which proves that both ends hold the same token before it says anything.

    Args:
        loop: Event loop.
        connection: A connected socket; this object closes it.
        token: The shared secret.
        is_server: Whether this end accepted the connection.
        interval_s: Time between two signs of life; five missed ones end the connection.
        on_open: Called once both ends have proved the token.
        on_message: Called with each message.
        on_lost: Called once, with the reason, when the connection ends without ``close``.
    """

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        token: bytes,
        is_server: bool,
        interval_s: float,
        on_open: Callable[["Channel"], None],
        on_message: Callable[["Channel", Message], None],
        on_lost: Callable[["Channel", str], None],
    ) -> None:
        self._loop, self._socket, self._token, self._is_server = loop, connection, token, is_server
        self._interval_s, self._on_open, self._on_message, self._on_lost = interval_s, on_open, on_message, on_lost
        self.is_open = False
        self._closed = False
        self._inbox, self._outbox = bytearray(), bytearray()
        self._challenge = wire.challenge() if is_server else b""
        self._answer = b""
        self._last_seen = time.monotonic()
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(connection.fileno(), self._read)
        self._timer = loop.call_later(interval_s, self._tick)
        self._write(self._challenge)

    def send(self, message: Message) -> None:
        """Sends a message; nothing happens where the connection has ended."""
        self._write(wire.pack([json.dumps(message).encode()]))

    def close(self, linger_s: float = 1.0) -> None:
        """Ends the connection, after what is still to be sent."""
        if not self._closed:
            with contextlib.suppress(OSError):
                self._socket.settimeout(linger_s)
                self._socket.sendall(self._outbox)
            self._end()

    def _lost(self, reason: str) -> None:
        if not self._closed:
            self._end()
            self._on_lost(self, reason)

    def _end(self) -> None:
        self._closed, self.is_open = True, False
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()

    def _tick(self) -> None:
        """Shows a sign of life, and looks for one."""
        patience_s = _MISSED * self._interval_s if self.is_open else _HANDSHAKE_S
        if time.monotonic() - self._last_seen > patience_s:
            self._lost(f"no sign of life for {patience_s:g} s")
            return
        self._timer = self._loop.call_later(self._interval_s, self._tick)
        if self.is_open:
            self.send({"kind": "alive"})

    def _write(self, data: bytes) -> None:
        if self._closed or not data:
            return
        if not self._outbox:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        self._outbox += data

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        del self._outbox[:sent]
        if not self._outbox:
            self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        if not data:
            # A server that does not like our answer says nothing more.
            self._lost("it refused our token" if self._answer and not self.is_open else "it closed the connection")
            return
        self._inbox += data
        self._last_seen = time.monotonic()
        try:
            if not self.is_open:
                self._shake_hands()
            while self.is_open and (body := wire.take_frame(self._inbox)) is not None:
                message = json.loads(wire.unpack(body)[0])
                if message["kind"] != "alive":
                    self._on_message(self, message)
        except (CommError, ValueError, KeyError, IndexError, TypeError):
            self._lost("it sent something else than launchers say")

    def _shake_hands(self) -> None:
        size = wire.ANSWER_BYTES if self._is_server else wire.PROOF_BYTES if self._answer else wire.CHALLENGE_BYTES
        if len(self._inbox) < size:
            return
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        if self._is_server:
            if not wire.verify_answer(self._token, self._challenge, data):
                self._lost("it does not have our token")
                return
            self._write(wire.proof(self._token, self._challenge, data))
        elif not self._answer:
            if not wire.is_challenge(data):
                self._lost("it is no launcher")
                return
            self._challenge, self._answer = data, wire.answer(self._token, data)
            self._write(self._answer)
            return
        elif not wire.verify_proof(self._token, self._challenge, self._answer, data):
            self._lost("it does not have our token")
            return
        self.is_open = True
        self._on_open(self)
