"""How the ranks of a group find each other on one host: a Unix socket that hands out file descriptors.

The group's first rank, the hub, listens on a socket and tells the others its address through the store. Each rank and
the hub prove to each other that they know the job's token (HMAC over both sides' random numbers) before anything else
is read; user ids are compared as well, for jobs whose launcher gave no secret. Then the hub sends the descriptor of the
group's shared file and a handle (pidfd) on every other process, and all sockets are closed.

Messages are packets (SOCK_SEQPACKET): a message arrives whole or not at all, so a slow or lying client can send a wrong
packet, which ends its connection, but cannot make the hub wait.
"""

import contextlib
import hmac
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from ddpflow.comm.backends.shm_segment import process_start_time
from ddpflow.errors import CommError, PeerError

__all__ = ["Hub", "PeerHandle", "host_identity", "join"]

_MAGIC = b"ddpflow-shm-1\n"
_NONCE = 16
_PROOF = 32
_RANK = struct.Struct("<I")
_PEER = struct.Struct("<cIqqB")  # kind, rank, pid, start time, whether a pidfd comes with it
_LARGEST_PACKET = 512
_PATIENCE_S = 5.0  # for a rank that does not take what it is sent
_LARGEST_CROWD = 64  # connections that have not proved themselves yet; more push the oldest out


@dataclass(frozen=True)
class PeerHandle:
    """What identifies a process: its pid as its own namespace counts, its start time, and a pidfd or None."""

    pid: int
    start_time: int
    pidfd: int | None


def host_identity() -> str:
    """Returns a text that is equal for processes that can reach each other through abstract Unix sockets.

    That is the running kernel (boot id), and its network namespace, to which abstract sockets are confined.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/net')}"
    except OSError:  # a sandbox without /proc
        return socket.gethostname()


def own_handle() -> PeerHandle:
    """Returns this process's own handle."""
    try:
        pidfd = os.pidfd_open(os.getpid())
    except (OSError, AttributeError):  # a kernel before 5.3, or a seccomp filter
        pidfd = None
    return PeerHandle(os.getpid(), process_start_time(os.getpid()) or 0, pidfd)


class Hub:
    """The listening side: gives the shared file to each rank that proves it knows the token.

    Args:
        token: the job's secret.
        group: name of the group; part of every proof, so that groups cannot be mixed up.
        size: ranks of the group, the hub (rank 0) included.
    """

    def __init__(self, token: bytes, group: str, size: int) -> None:
        self.token, self.group, self.size = token, group, size
        self._connections: dict[int, socket.socket] = {}
        self._handles: dict[int, PeerHandle] = {0: own_handle()}
        self._crowd: dict[int, tuple[socket.socket, bytes]] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(False)
        self._poll = select.poll()
        self.address = f"ddpflow-{secrets.token_hex(16)}"
        try:
            self._listener.bind("\0" + self.address)
            self._listener.listen(max(128, size))
        except OSError:
            self._listener.close()
            raise
        self._poll.register(self._listener, select.POLLIN)

    def serve(self, shared_fd: int, check: Callable[[list[int]], None]) -> dict[int, PeerHandle]:
        """Waits until every rank has joined, and returns their processes; the listening socket is closed then.

        Args:
            shared_fd: the descriptor to hand out.
            check: called every few milliseconds with the ranks still missing; raises when it is time to give up.
        """
        try:
            while len(self._handles) < self.size:
                for fd, _ in self._poll.poll(20):
                    if fd == self._listener.fileno():
                        self._accept()
                    else:
                        self._hear(fd, shared_fd)
                missing = [r for r in range(self.size) if r not in self._handles]
                if missing:
                    check(missing)
            for rank, connection in self._connections.items():
                for other, handle in self._handles.items():
                    if other != rank:
                        _send_handle(connection, other, handle)
        except BaseException:
            _close_all([h.pidfd for h in self._handles.values() if h.pidfd is not None])
            raise
        finally:
            self.close()
        return self._handles

    def close(self) -> None:
        """Closes all sockets; a hub that has served is closed already."""
        self._listener.close()
        for connection in [*self._connections.values(), *(c for c, _ in self._crowd.values())]:
            connection.close()
        self._connections.clear()
        self._crowd.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the client may be gone again
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            nonce = secrets.token_bytes(_NONCE)
            if len(self._crowd) >= _LARGEST_CROWD:
                self._drop(next(iter(self._crowd)))
            try:
                connection.send(_MAGIC + nonce)
            except OSError:
                connection.close()
                return
            self._crowd[connection.fileno()] = (connection, nonce)
            self._poll.register(connection, select.POLLIN)

    def _drop(self, fd: int, reason: bytes = b"") -> None:
        connection, _ = self._crowd.pop(fd)
        self._poll.unregister(fd)
        if reason:
            with contextlib.suppress(OSError):
                connection.send(b"X" + reason)
        connection.close()

    def _hear(self, fd: int, shared_fd: int) -> None:
        """Reads the one packet that a client may send before it is trusted."""
        connection, nonce = self._crowd[fd]
        descriptors: list[int] = []
        try:
            packet, descriptors, _, _ = socket.recv_fds(connection, _LARGEST_PACKET, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        taken = False
        try:
            reason = self._judge(packet, nonce, connection)
            if reason is None:
                rank = _RANK.unpack_from(packet, _NONCE + _PROOF)[0]
                pid, start_time = struct.unpack_from("<qq", packet, _NONCE + _PROOF + _RANK.size)
                answer = _proof(self.token, b"hub", self.group, rank, nonce, packet[:_NONCE])
                del self._crowd[fd]
                self._poll.unregister(fd)
                try:
                    socket.send_fds(connection, [b"W" + answer], [shared_fd])
                except OSError:
                    connection.close()
                    return
                connection.settimeout(_PATIENCE_S)
                self._connections[rank] = connection
                self._handles[rank] = PeerHandle(pid, start_time, descriptors[0] if descriptors else None)
                taken = True
            else:
                self._drop(fd, reason)
        finally:
            if not taken:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _judge(self, packet: bytes, nonce: bytes, connection: socket.socket) -> bytes | None:
        """Returns why a client is turned away, or None."""
        if len(packet) != _NONCE + _PROOF + _RANK.size + 16:
            return b"not a ddpflow client"
        rank = _RANK.unpack_from(packet, _NONCE + _PROOF)[0]
        proof = packet[_NONCE : _NONCE + _PROOF]
        if not hmac.compare_digest(proof, _proof(self.token, b"rank", self.group, rank, packet[:_NONCE], nonce)):
            return b"it does not know this job's token, or belongs to another group"
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            return b"it runs as another user"
        if not 0 < rank < self.size:
            return f"rank {rank} is not in a group of {self.size}".encode()
        if rank in self._handles:
            return f"rank {rank} was claimed twice".encode()
        return None


def join(
    address: str, token: bytes, group: str, rank: int, size: int, check: Callable[[list[int]], None]
) -> tuple[int, dict[int, PeerHandle]]:
    """Joins a hub, and returns the shared file's descriptor and the processes of all ranks.

    Args:
        address: ``Hub.address`` of the hub.
        token: the job's secret.
        group: name of the group.
        rank: own index in the group.
        size: ranks of the group.
        check: called every few milliseconds with the ranks waited for; raises when it is time to give up.

    Raises:
        CommError: the hub refuses this rank, or does not know the token itself.
    """
    own = own_handle()
    try:
        while True:
            # A full queue, or being pushed out by a crowd of strangers: try again.
            with (
                contextlib.suppress(BlockingIOError, ConnectionResetError, BrokenPipeError),
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
            ):
                connection.setblocking(False)
                try:
                    connection.connect("\0" + address)
                except ConnectionRefusedError as error:  # the socket was there, its address came from the store
                    raise PeerError(f"the first rank of group {group!r} gave up while the group was made") from error
                shared_fd = _introduce(connection, token, group, rank, own, check)
                if shared_fd is not None:
                    return shared_fd, _hear_peers(connection, group, rank, size, own, shared_fd, check)
            check([0])
            time.sleep(0.005)
    except BaseException:
        if own.pidfd is not None:
            os.close(own.pidfd)
        raise


def _introduce(
    connection: socket.socket, token: bytes, group: str, rank: int, own: PeerHandle, check: Callable[[list[int]], None]
) -> int | None:
    """Does the exchange of proofs; returns the file's descriptor, or None where the hub hung up without a word."""
    packet, descriptors = _receive(connection, check)
    _close_all(descriptors)
    if not packet:
        return None
    if packet[: len(_MAGIC)] != _MAGIC or len(packet) != len(_MAGIC) + _NONCE:
        raise CommError("the shm socket of the group is served by something that is not ddpflow, or another version")
    theirs, ours = packet[len(_MAGIC) :], secrets.token_bytes(_NONCE)
    hello = ours + _proof(token, b"rank", group, rank, ours, theirs) + _RANK.pack(rank)
    hello += struct.pack("<qq", own.pid, own.start_time)
    socket.send_fds(connection, [hello], [] if own.pidfd is None else [own.pidfd])
    packet, descriptors = _receive(connection, check)
    if not packet:
        return None
    if packet[:1] == b"X":
        _close_all(descriptors)
        raise CommError(f"rank {rank} was turned away from group {group!r}: {packet[1:].decode(errors='replace')}")
    expected = b"W" + _proof(token, b"hub", group, rank, theirs, ours)
    if len(descriptors) != 1 or not hmac.compare_digest(packet, expected):
        _close_all(descriptors)
        raise CommError(f"the process that serves group {group!r} does not know this job's token")
    return descriptors[0]


def _hear_peers(
    connection: socket.socket,
    group: str,
    rank: int,
    size: int,
    own: PeerHandle,
    shared_fd: int,
    check: Callable[[list[int]], None],
) -> dict[int, PeerHandle]:
    """Receives the handles of all other ranks, which the hub sends once everybody has joined."""
    handles = {rank: own}
    try:
        while len(handles) < size:
            packet, descriptors = _receive(connection, check)
            if len(packet) != _PEER.size or packet[:1] != b"P":
                _close_all(descriptors)
                raise PeerError(f"the first rank of group {group!r} gave up while the group was made")
            _, other, pid, start_time, has_pidfd = _PEER.unpack(packet)
            handles[other] = PeerHandle(pid, start_time, descriptors[0] if has_pidfd and descriptors else None)
    except BaseException:
        os.close(shared_fd)
        _close_all([h.pidfd for r, h in handles.items() if r != rank and h.pidfd is not None])
        raise
    return handles


def _send_handle(connection: socket.socket, rank: int, handle: PeerHandle) -> None:
    packet = _PEER.pack(b"P", rank, handle.pid, handle.start_time, handle.pidfd is not None)
    with contextlib.suppress(OSError):  # dead or stopped: noticed by all at the first collective
        socket.send_fds(connection, [packet], [] if handle.pidfd is None else [handle.pidfd])


def _receive(connection: socket.socket, check: Callable[[list[int]], None]) -> tuple[bytes, list[int]]:
    """Waits for one packet from the hub; b"" where the connection is closed."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while not poll.poll(10):
        check([0])
    packet, descriptors, _, _ = socket.recv_fds(connection, _LARGEST_PACKET, 1, socket.MSG_CMSG_CLOEXEC)
    return packet, descriptors


def _proof(token: bytes, side: bytes, group: str, rank: int, first: bytes, second: bytes) -> bytes:
    """Returns the HMAC that shows knowledge of the token; bound to the side, group, rank and both random numbers."""
    text = b"\0".join([_MAGIC, side, group.encode(), _RANK.pack(rank), first, second])
    return hmac.digest(token or b"ddpflow", text, "sha256")


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
