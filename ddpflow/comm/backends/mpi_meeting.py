"""Where the store of an MPI job listens: mpiexec gives no address, so the ranks find one through MPI itself."""

import contextlib
import fcntl
import hashlib
import os
import socket
import struct
import time
from typing import Any

import numpy as np
from mpi4py import MPI

from ddpflow.comm.env import ProcessContext
from ddpflow.comm.store_server import listen_on
from ddpflow.errors import CollectiveTimeout, CommError, ConfigError

__all__ = ["host_identity", "local_addresses", "meet"]

_RECORD_BYTES = 1024
_SIOCGIFADDR = 0x8915
_MEET_S = 300.0


def host_identity() -> bytes:
    """Returns 32 bytes that are equal for processes with a common loopback: one kernel, one network namespace."""
    text = socket.gethostname()
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        text += file.read()
    with contextlib.suppress(OSError):
        text += os.readlink("/proc/self/ns/net")
    return hashlib.sha256(text.encode()).digest()


def local_addresses() -> list[str]:
    """Returns this host's IPv4 addresses, without loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                found.append(address)
    return found


def _exchange(comm: Any, record: bytes) -> list[bytes]:
    """Returns the records of all ranks, in order."""
    mine = np.zeros(_RECORD_BYTES, np.uint8)
    mine[: len(record)] = np.frombuffer(record, np.uint8)
    everyone = np.empty((comm.Get_size(), _RECORD_BYTES), np.uint8)
    request = comm.Iallgather([mine, MPI.BYTE], [everyone, MPI.BYTE])
    deadline = time.monotonic() + _MEET_S
    while not request.Test():
        if time.monotonic() > deadline:
            rank = comm.Get_rank()
            raise CollectiveTimeout(f"rank {rank}: not all ranks of mpiexec called init_process_group in {_MEET_S:g} s")
        time.sleep(0.001)
    return [row.tobytes() for row in everyone]


def _choose_address(records: list[bytes], given: str) -> str:
    """Returns the address of rank 0 that all ranks can reach."""
    if given:
        return given
    others = [record for record in records if record[:32] != records[0][:32]]
    if not others:
        return "127.0.0.1"
    for peer in others[0][32:].rstrip(b"\0").decode().split():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                # Sends nothing: it asks the kernel from which address it would reach the peer.
                probe.connect((peer, 9))
                address = str(probe.getsockname()[0])
            except OSError:
                continue
        if not address.startswith("127."):
            return address
    raise ConfigError("rank 0 finds no address that the other hosts can reach; set MASTER_ADDR to one for all ranks")


def meet(comm: Any, context: ProcessContext) -> tuple[str, int, int | None, bytes]:
    """Agrees on where rank 0 serves the store; all ranks of ``comm`` call it.

    Args:
        comm: MPI's world.
        context: What the environment says; a MASTER_ADDR there is respected.

    Returns:
        Address, port, on rank 0 the descriptor of the listening socket, and a fresh secret.
    """
    records = _exchange(comm, host_identity() + " ".join(local_addresses()).encode()[: _RECORD_BYTES - 32])
    record, fd = b"", None
    if comm.Get_rank() == 0:
        try:
            address = _choose_address(records, context.master_addr)
            listener = listen_on(address, 0)
        except (OSError, CommError, ConfigError) as error:
            record = b"error " + str(error).encode()[: _RECORD_BYTES - 6]
        else:
            port = listener.getsockname()[1]
            fd = listener.detach()
            record = f"ok {address} {port} {os.urandom(32).hex()}".encode()
    verdict = _exchange(comm, record)[0].rstrip(b"\0").decode()
    if not verdict.startswith("ok "):
        raise ConfigError(f"rank {comm.Get_rank()}: rank 0 cannot serve the store: {verdict.removeprefix('error ')}")
    _, address, port_text, token = verdict.split()
    return address, int(port_text), fd, bytes.fromhex(token)
