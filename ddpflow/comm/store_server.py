"""The server side of TCPStore: one thread, no blocking call, no trust before the token is proved."""

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Sequence

from ddpflow.comm import wire
from ddpflow.comm.store import add_to, compare
from ddpflow.errors import CommError, ValueRangeError

__all__ = ["StoreServer", "listen_on"]

_HANDSHAKE_S = 10.0
_MOST_STRANGERS = 128  # connections that have not proved the token; beyond it the oldest is dropped
_READ_BYTES = 1 << 16


def listen_on(host: str, port: int) -> socket.socket:
    """Returns a socket that listens on exactly this address; port 0 picks a free one.

    Raises:
        OSError: The address is not one of this host's, or the port is taken.
    """
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


class _Client:
    """One connection: what has come in, what has to go out, and what it waits for."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.question = wire.challenge()
        self.deadline = time.monotonic() + _HANDSHAKE_S
        self.known = False
        self.inbox = bytearray()
        self.outbox = bytearray(self.question)
        self.waits_for: list[str] = []
        self.wait_deadline = 0.0


class StoreServer:
    """Serves a key-value store on a listening socket until ``close``.

    Survives any bytes from anybody: a connection that has not proved the token within seconds, announces an oversized
    frame or sends a malformed one is dropped; one that does not read its replies is not read from either.

    Args:
        listener: A listening socket; closed together with the server.
        token: Secret that clients must prove to hold.
    """

    def __init__(self, listener: socket.socket, token: bytes) -> None:
        self._listener, self._token = listener, token
        self._data: dict[str, bytes] = {}
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        listener.setblocking(False)
        self._accepting_after = 0.0
        self._end_by: float | None = None
        self._unfinished: list[_Client] = []  # their replies are out, and more requests may have come in
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="ddpflow-store", daemon=True)
        self._thread.start()

    def close(self, linger_s: float = 0.0) -> None:
        """Stops serving; may be called twice.

        Args:
            linger_s: Serves on for up to this time while there are clients: a rank that is a little behind may need it.
        """
        self._end_by = time.monotonic() + linger_s
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"x")
        self._thread.join(2.0 + linger_s)

    def _serve(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        try:
            while True:
                for key, events in self._selector.select(self._next_deadline()):
                    if key.fileobj is self._wake_receiver:
                        self._wake_receiver.recv(16)
                    elif key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.data, _Client) and key.data.socket in self._clients:
                        self._handle(key.data, events)
                self._expire()
                while self._unfinished:
                    self._work_off(self._unfinished.pop())
                if self._end_by is not None and self._is_over(self._end_by):
                    return
        finally:
            for client in list(self._clients.values()):
                self._drop(client)
            self._selector.close()
            for end in (self._listener, self._wake_receiver, self._wake_sender):
                end.close()

    def _is_over(self, end_by: float) -> bool:
        return time.monotonic() >= end_by or not any(client.known for client in self._clients.values())

    def _next_deadline(self) -> float | None:
        times = [c.wait_deadline for c in self._clients.values() if c.waits_for]
        times += [c.deadline for c in self._clients.values() if not c.known]
        if self._accepting_after:
            times.append(self._accepting_after)
        if self._end_by is not None:
            times.append(self._end_by)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _expire(self) -> None:
        now = time.monotonic()
        for client in list(self._clients.values()):
            if not client.known and now >= client.deadline:
                self._drop(client)
            elif client.waits_for and now >= client.wait_deadline:
                missing = [key.encode() for key in client.waits_for if key not in self._data]
                self._reply(client, [b"timeout", *missing])
        if self._accepting_after and now >= self._accepting_after:
            self._accepting_after = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                # Out of descriptors: the connection stays queued; look again later, instead of spinning on it.
                self._selector.unregister(self._listener)
                self._accepting_after = time.monotonic() + 0.1
            return
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        strangers = [c for c in self._clients.values() if not c.known]
        if len(strangers) >= _MOST_STRANGERS:
            self._drop(strangers[0])
        client = self._clients[connection] = _Client(connection)
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
        self._flush(client)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.socket, None) is not None:
            self._selector.unregister(client.socket)
            client.socket.close()

    def _handle(self, client: _Client, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if events & selectors.EVENT_READ and client.socket in self._clients:
            try:
                # Up to the handshake's end, not a byte more than the answer is read.
                data = client.socket.recv(_READ_BYTES if client.known else wire.ANSWER_BYTES - len(client.inbox))
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(client)
                return
            client.inbox += data
            if client.waits_for and len(client.inbox) > wire.LARGEST_FRAME:
                self._drop(client)
                return
            self._work_off(client)

    def _work_off(self, client: _Client) -> None:
        """Handles what has come in, as long as the client reads its replies and is not waiting."""
        if client.socket not in self._clients:
            return
        try:
            if not client.known:
                if len(client.inbox) == wire.ANSWER_BYTES:
                    self._admit(client, bytes(client.inbox))
                return
            while not client.outbox and not client.waits_for and client.socket in self._clients:
                body = wire.take_frame(client.inbox)
                if body is None:
                    return
                self._request(client, wire.unpack(body))
        except (CommError, ValueError, IndexError, UnicodeDecodeError):
            self._drop(client)

    def _admit(self, client: _Client, data: bytes) -> None:
        if not wire.verify_answer(self._token, client.question, data):
            self._drop(client)
            return
        client.known = True
        client.inbox.clear()
        client.outbox += wire.proof(self._token, client.question, data)
        self._flush(client)

    def _request(self, client: _Client, fields: list[bytes]) -> None:
        name, arguments = fields[0], fields[1:]
        key = arguments[0].decode() if arguments else ""
        if name == b"set":
            self._store(key, arguments[1])
            self._reply(client, [b"ok"])
        elif name == b"add":
            try:
                total = str(add_to(self._data.get(key), key, int(arguments[1]))).encode()
            except ValueRangeError as error:
                self._reply(client, [b"error", str(error).encode()])
                return
            self._store(key, total)
            self._reply(client, [b"ok", total])
        elif name == b"compare_set":
            result, store = compare(self._data.get(key), arguments[1], arguments[2])
            if store:
                self._store(key, result)
            self._reply(client, [b"ok", result])
        elif name == b"try_get":
            value = self._data.get(key)
            self._reply(client, [b"none"] if value is None else [b"ok", value])
        elif name == b"check":
            self._reply(client, [b"ok", b"1" if all(k.decode() in self._data for k in arguments) else b"0"])
        elif name == b"wait":
            client.waits_for = [k.decode() for k in arguments[1:]]
            client.wait_deadline = time.monotonic() + float(arguments[0])
            self._serve_waiter(client)
        elif name == b"delete":
            self._reply(client, [b"ok", b"1" if self._data.pop(key, None) is not None else b"0"])
        elif name == b"num_keys":
            self._reply(client, [b"ok", str(len(self._data)).encode()])
        else:
            raise CommError(f"unknown request {name!r}")

    def _store(self, key: str, value: bytes) -> None:
        self._data[key] = value
        for client in list(self._clients.values()):
            if key in client.waits_for:
                self._serve_waiter(client)

    def _serve_waiter(self, client: _Client) -> None:
        if all(key in self._data for key in client.waits_for):
            self._reply(client, [b"ok"])

    def _reply(self, client: _Client, fields: Sequence[bytes]) -> None:
        client.waits_for = []
        client.outbox += wire.pack(fields)
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        try:
            while client.outbox:
                del client.outbox[: client.socket.send(client.outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        wanted = selectors.EVENT_WRITE if client.outbox else selectors.EVENT_READ
        if client.socket in self._clients:
            self._selector.modify(client.socket, wanted, client)
            if client.inbox and not client.outbox:
                self._unfinished.append(client)
