"""TCPStore: a key-value store served by rank 0 and used by all ranks over TCP."""

import contextlib
import errno
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from ddpflow.comm import wire
from ddpflow.comm.store import DEFAULT_TIMEOUT_S, Store, as_bytes, missing_keys
from ddpflow.comm.store_server import StoreServer, listen_on
from ddpflow.comm.work import seconds
from ddpflow.errors import CollectiveTimeout, CommError, PeerError, ValueRangeError

__all__ = ["TCPStore"]

_POLL_S = 0.05
# The server keeps a wait's deadline; the client allows this much more before it takes the server to be stuck.
_SERVER_GRACE_S = 5.0
_NOT_YET = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class TCPStore(Store):
    """A store reached over TCP; with ``is_master=True`` this process serves it as well.

    Args:
        host_name: Address of the server.
        port: Its port; 0 with ``is_master`` picks a free one (see the attribute ``port``).
        world_size: With ``wait_for_workers``, the number of ranks to wait for; None for any number.
        is_master: Whether to serve the store from a thread of this process, on this address only.
        timeout: Deadline of connecting and of later waits, in seconds or as a timedelta.
        wait_for_workers: Whether the constructor returns only when ``world_size`` ranks have connected.
        listen_fd: Descriptor of a listening socket to serve on; it is duplicated, not taken over.
        token: Secret of the job; client and server must hold the same.
        on_idle: See ``Store.on_idle``.

    Raises:
        CommError: The port is taken, or what listens there is no store of this job.
        CollectiveTimeout: The server, or some ranks, did not appear in time.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: float | timedelta = DEFAULT_TIMEOUT_S,
        wait_for_workers: bool = True,
        *,
        listen_fd: int | None = None,
        token: bytes = b"",
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(timeout)
        if not 0 <= port <= 65535:
            raise ValueRangeError(f"port must be between 0 and 65535, not {port}")
        self.on_idle = on_idle
        self.host, self.port, self._token = host_name, port, token
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._inbox = bytearray()
        self._closed = False
        self._grace_s = _SERVER_GRACE_S
        self._pid = os.getpid()
        self._server = self._start_server(listen_fd) if is_master else None
        try:
            with self._lock:
                self._connect(time.monotonic() + self.timeout_s)
            if world_size is not None and wait_for_workers:
                self._wait_for_workers(world_size)
        except BaseException:
            self.close()
            raise

    def _start_server(self, listen_fd: int | None) -> StoreServer:
        try:
            if listen_fd is None:
                listener = listen_on(self.host, self.port)
            else:
                listener = socket.socket(fileno=os.dup(listen_fd))
        except OSError as error:
            where = f"descriptor {listen_fd}" if listen_fd is not None else f"{self.host}:{self.port}"
            hint = "MASTER_ADDR must be an address of rank 0's host"
            if error.errno == errno.EADDRINUSE:
                hint = "another program listens there; choose another MASTER_PORT"
            raise CommError(f"rank 0 cannot serve the store on {where}: {error.strerror or error}; {hint}") from error
        server = StoreServer(listener, self._token)
        self.port = server.port
        return server

    def _wait_for_workers(self, world_size: int) -> None:
        everyone = f"ddpflow/workers/{world_size}"
        here = self.add("ddpflow/workers", 1)
        if here >= world_size:
            self.set(everyone, b"1")
        try:
            self.wait([everyone])
        except CollectiveTimeout as error:
            here = int(self.try_get("ddpflow/workers") or b"0")
            raise CollectiveTimeout(
                f"only {here} of {world_size} ranks reached the store at {self.host}:{self.port} "
                f"in {self.timeout_s:g} s"
            ) from error

    # Connection

    def _connect(self, deadline: float) -> None:
        pause = 0.01
        while True:
            try:
                left = max(0.05, min(5.0, deadline - time.monotonic()))
                connection = socket.create_connection((self.host, self.port), timeout=left)
                break
            except OSError as error:
                refused = isinstance(error, TimeoutError) or error.errno in _NOT_YET
                if not refused and not isinstance(error, socket.gaierror):
                    raise CommError(f"cannot connect to the store at {self.host}:{self.port}: {error}") from error
                if time.monotonic() + pause > deadline:
                    raise CollectiveTimeout(
                        f"nobody serves the store at {self.host}:{self.port} after {self.timeout_s:g} s ({error}); "
                        "is rank 0 running, and are MASTER_ADDR and MASTER_PORT its address?"
                    ) from error
            if self.on_idle is not None:
                self.on_idle()
            time.sleep(pause)
            pause = min(0.25, pause * 1.5)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._inbox.clear()
        try:
            self._handshake(deadline)
        except BaseException:
            self._disconnect()
            raise

    def _handshake(self, deadline: float) -> None:
        question = self._receive(wire.CHALLENGE_BYTES, deadline)
        if not wire.is_challenge(question):
            raise CommError(
                f"what listens on {self.host}:{self.port} is not a ddpflow store; choose another MASTER_PORT"
            )
        answer = wire.answer(self._token, question)
        self._send(answer, deadline)
        try:
            received = self._receive(wire.PROOF_BYTES, deadline)
        except PeerError:
            received = b""
        if not wire.verify_proof(self._token, question, answer, received):
            raise CommError(
                f"the store at {self.host}:{self.port} belongs to another job (the job tokens differ); "
                "choose another MASTER_PORT, or set the same DDPFLOW_JOB_TOKEN for all ranks"
            )

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _gone(self) -> PeerError:
        return PeerError(f"rank 0's store at {self.host}:{self.port} closed the connection: rank 0 has ended or failed")

    def _poll(self, reading: bool, deadline: float) -> None:
        """Waits until the socket is ready, calling ``on_idle`` meanwhile."""
        assert self._socket is not None
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise CollectiveTimeout(f"the store at {self.host}:{self.port} does not answer")
            ends = [self._socket]
            ready = select.select(ends if reading else [], [] if reading else ends, [], min(left, _POLL_S))
            if ready[0] or ready[1]:
                return
            if self.on_idle is not None:
                self.on_idle()

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._socket is not None
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                self._poll(False, deadline)
            except OSError as error:
                raise self._gone() from error

    def _more(self, deadline: float) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            self._poll(True, deadline)
            return
        except OSError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        self._inbox += data

    def _receive(self, n: int, deadline: float) -> bytes:
        while len(self._inbox) < n:
            self._more(deadline)
        data = bytes(self._inbox[:n])
        del self._inbox[:n]
        return data

    def _ask(self, fields: Sequence[bytes], timeout_s: float | None = None) -> list[bytes]:
        """Sends one request and returns the reply's fields; after any error the next request uses a new connection."""
        frame = wire.pack(fields)
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                raise CommError("this store was closed" if self._closed else "a store cannot be used after a fork")
            deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s) + self._grace_s
            try:
                if self._socket is None:
                    self._connect(min(deadline, time.monotonic() + self._grace_s))
                self._send(frame, deadline)
                while (body := wire.take_frame(self._inbox)) is None:
                    self._more(deadline)
            except BaseException:
                self._disconnect()
                raise
        reply = wire.unpack(body)
        if reply[0] == b"error":
            raise ValueRangeError(reply[1].decode())
        return reply

    # The store

    def set(self, key: str, value: str | bytes) -> None:
        """Stores ``value`` under ``key``."""
        self._ask([b"set", key.encode(), as_bytes(value)])

    def add(self, key: str, amount: int) -> int:
        """Adds to the integer under ``key`` and returns the sum."""
        return int(self._ask([b"add", key.encode(), str(int(amount)).encode()])[1])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Stores ``desired`` if the value is ``expected``."""
        return self._ask([b"compare_set", key.encode(), as_bytes(expected), as_bytes(desired)])[1]

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all the keys exist now."""
        return self._ask([b"check", *(key.encode() for key in keys)])[1] == b"1"

    def try_get(self, key: str) -> bytes | None:
        """Returns the value or None."""
        reply = self._ask([b"try_get", key.encode()])
        return None if reply[0] == b"none" else reply[1]

    def wait(self, keys: Iterable[str], timeout: float | timedelta | None = None) -> None:
        """Returns once all the keys exist."""
        limit = seconds(timeout, self.timeout_s)
        reply = self._ask([b"wait", repr(limit).encode(), *(key.encode() for key in keys)], limit)
        if reply[0] == b"timeout":
            raise missing_keys([key.decode() for key in reply[1:]], limit)

    def delete(self, key: str) -> bool:
        """Removes the key."""
        return self._ask([b"delete", key.encode()])[1] == b"1"

    def num_keys(self) -> int:
        """Returns the number of keys."""
        return int(self._ask([b"num_keys"])[1])

    def clone(self, timeout: float | timedelta | None = None) -> "TCPStore":
        """Returns a client of the same store with a connection of its own, for another thread."""
        client = TCPStore(self.host, self.port, timeout=seconds(timeout, self.timeout_s), token=self._token)
        client._grace_s = min(_SERVER_GRACE_S, client.timeout_s)
        return client

    def close(self, linger_s: float = 0.0) -> None:
        """Closes the connection, and the server where this process runs it; may be called twice.

        Args:
            linger_s: The server waits up to this time for the other clients to go first.
        """
        self._closed = True
        with contextlib.suppress(OSError):
            self._disconnect()
        if self._server is not None and os.getpid() == self._pid:
            self._server.close(linger_s)
