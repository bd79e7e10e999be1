"""NCCL of the CuPy stand-in: communicators between threads, with raw pointers and streams as the real one has.

A collective is carried out when the last rank has launched it; until then the streams it was launched on, and whoever
waits for them, wait. Ranks that launch different operations get what real NCCL gives them: nothing, for ever. The
stand-in notes it as a violation. It proves nothing about NCCL.
"""

import os
import threading
import weakref
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from tests.doubles.memory import Memory, _memories
from tests.doubles.timeline import Stream, state

DTYPES = [np.dtype(t) for t in ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")] + [np.dtype(ml_dtypes.bfloat16)]
_UFUNCS = [np.add, np.multiply, np.maximum, np.minimum, np.add]
_CODES = "SUCCESS UNHANDLED_CUDA_ERROR SYSTEM_ERROR INTERNAL_ERROR INVALID_ARGUMENT INVALID_USAGE".split()
_rooms: "weakref.WeakValueDictionary[bytes, Room]" = weakref.WeakValueDictionary()
_grouped = threading.local()


class NcclError(RuntimeError):
    """``cupy.cuda.nccl.NcclError``, with a table that ends at 5, as older CuPy's (cupy issue 8661)."""

    def __init__(self, status: int) -> None:
        self.status = status
        names = dict(enumerate(_CODES))
        super().__init__(f"NCCL_ERROR_{names[status]}: stand-in")


class Entry:
    """One rank's part of an operation in flight."""

    def __init__(self, room: "Room", what: tuple[Any, ...], source: Any, target: Any, memories: list[Memory]) -> None:
        self.room, self.what, self.source, self.target, self.memories = room, what, source, target, memories
        self.done = False

    def finish(self) -> None:
        """The stream goes on."""
        self.done = True
        for memory in self.memories:
            if self in memory.pending:
                memory.pending.remove(self)

    def look(self) -> None:
        """The host asks: a collective ends when the last rank has come, and not by that."""

    def wait(self, timeout: float) -> None:
        """Wait a little."""
        with self.room.changed:
            if not self.done:
                self.room.changed.wait(timeout)

    def __repr__(self) -> str:
        return f"nccl {self.what}"


class Room:
    """What the ranks of a communicator share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.arrived: set[int] = set()
        self.posted: dict[int, dict[int, Entry]] = {}
        self.sends: dict[tuple[int, int], list[Entry]] = {}
        self.recvs: dict[tuple[int, int], list[Entry]] = {}
        self.lost: int | None = None  # the code that check_async_error gives, once a rank is lost


def array_at(pointer: int, count: int, dtype: np.dtype) -> tuple[np.ndarray, Memory]:
    """The elements behind a pointer."""
    for memory in list(_memories.values()):
        offset = pointer - memory.address
        if memory.machine is state() and 0 <= offset < max(1, memory.root.nbytes):
            raw = memory.root.reshape(-1, order="A").view(np.uint8)
            need = count * dtype.itemsize
            assert offset + need <= raw.size, f"{need} bytes at {offset} of an allocation of {raw.size}"
            return raw[offset : offset + need].view(dtype), memory
    raise AssertionError(f"{pointer:#x} is no device pointer")


def stream_at(handle: int) -> Stream:
    """The stream of a raw handle."""
    for streams in state().streams.values():
        for stream in streams:
            if stream.ptr == handle and (handle or stream._device == state().current_device()):
                return stream
    return state().null_stream(state().current_device())


class NcclCommunicator:
    """``cupy.cuda.nccl.NcclCommunicator``."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        assert isinstance(commId, bytes) and len(commId) == 128
        with _lock:
            self._room = _rooms.get(commId)
            if self._room is None:
                self._room = _rooms[commId] = Room(ndev)
        self._rank, self._device, self._seq = rank, state().current_device(), 0
        self._mine: list[Entry] = []
        self._ended = False
        room = self._room
        with room.changed:
            room.arrived.add(rank)
            room.changed.notify_all()
            assert room.changed.wait_for(lambda: len(room.arrived) == ndev, 20), "ncclCommInitRank would hang"

    def size(self) -> int:
        """Number of ranks."""
        return self._room.size

    def rank_id(self) -> int:
        """Own rank."""
        return self._rank

    def device_id(self) -> int:
        """Own device."""
        return self._device

    def check_async_error(self) -> None:
        """Raise what has gone wrong in the background."""
        if self._room.lost is not None:
            raise NcclError(self._room.lost)

    def abort(self) -> None:
        """End this rank's operations, wherever they are; twice is a crash in real NCCL."""
        assert not self._ended, "the communicator was aborted or destroyed before"
        self._ended = True
        with self._room.changed:
            for entry in self._mine:
                entry.finish()
            self._room.changed.notify_all()

    def destroy(self) -> None:
        """Free it."""
        assert not self._ended, "the communicator was aborted or destroyed before"
        self._ended = True

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        """Stands for ``ncclAllReduce``."""
        self._collective(("all_reduce", count, datatype, op), sendbuf, count, recvbuf, count, datatype, stream)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        """Stands for ``ncclReduce``."""
        target = recvbuf if root == self._rank else None
        self._collective(("reduce", count, datatype, op, root), sendbuf, count, target, count, datatype, stream)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """Stands for ``ncclBroadcast``."""
        source = sendbuff if root == self._rank else None
        self._collective(("broadcast", count, datatype, root), source, count, recvbuff, count, datatype, stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """Stands for ``ncclAllGather``."""
        size = count * self._room.size
        self._collective(("all_gather", count, datatype), sendbuf, count, recvbuf, size, datatype, stream)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        """Stands for ``ncclReduceScatter``."""
        size = recvcount * self._room.size
        self._collective(
            ("reduce_scatter", recvcount, datatype, op), sendbuf, size, recvbuf, recvcount, datatype, stream
        )

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Stands for ``ncclSend``."""
        self._launch(("send", peer, count, datatype), sendbuf, count, None, 0, datatype, stream, self._match)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Stands for ``ncclRecv``."""
        self._launch(("recv", peer, count, datatype), None, 0, recvbuf, count, datatype, stream, self._match)

    def _collective(
        self, what: tuple[Any, ...], source: Any, n: int, target: Any, m: int, code: int, stream: int
    ) -> None:
        self._launch(what, source, n, target, m, code, stream, self._post)

    def _launch(
        self, what: tuple[Any, ...], source: Any, n: int, target: Any, m: int, code: int, stream: int, then: Any
    ) -> Entry | None:
        assert not self._ended, "the communicator was aborted or destroyed"
        assert state().current_device() == self._device, "launched from another device than the communicator's"
        if getattr(_grouped, "depth", 0):
            _grouped.calls.append(lambda: self._launch(what, source, n, target, m, code, stream, then))
            return None
        dtype, where = DTYPES[code], stream_at(stream)
        tick = where.step()
        memories, arrays = [], []
        for pointer, count, write in ((source, n, False), (target, m, True)):
            if pointer is None or not count:
                arrays.append(np.empty(0, dtype))
                continue
            array, memory = array_at(pointer, count, dtype)
            memory.use(where, tick, write)
            arrays.append(array)
            if write:
                memories.append(memory)
        if where.recording is not None:

            def again(posted: list[Any]) -> None:
                now = state().current_stream().ptr
                posted.append(self._launch(what, source, n, target, m, code, now, then))

            where.recording.nodes.append(again)
            return None
        entry = Entry(self._room, what, *arrays, memories)
        for memory in memories:
            memory.pending.append(entry)
        where.pending.append(entry)
        self._mine = [e for e in self._mine if not e.done] + [entry]
        with self._room.changed:
            then(entry)
            self._room.changed.notify_all()
        return entry

    def _post(self, entry: Entry) -> None:
        self._seq += 1
        posted = self._room.posted.setdefault(self._seq, {})
        posted[self._rank] = entry
        if len({e.what for e in posted.values()}) > 1:
            calls = ", ".join(f"rank {r}: {e.what}" for r, e in sorted(posted.items()))
            state().violations.append(f"NCCL operation {self._seq} differs: {calls}")
        elif len(posted) == self._room.size:
            carry_out(entry.what, [posted[r] for r in range(self._room.size)])
            del self._room.posted[self._seq]

    def _match(self, entry: Entry) -> None:
        kind, peer = entry.what[:2]
        key = (self._rank, peer) if kind == "send" else (peer, self._rank)
        mine, others = (self._room.sends, self._room.recvs) if kind == "send" else (self._room.recvs, self._room.sends)
        waiting = others.setdefault(key, [])
        if not waiting:
            mine.setdefault(key, []).append(entry)
            return
        other = waiting.pop(0)
        if entry.what[2:] != other.what[2:]:
            state().violations.append(f"NCCL message differs: {entry.what} and {other.what}")
            return
        send, recv = (entry, other) if kind == "send" else (other, entry)
        recv.target[:] = send.source
        send.finish()
        recv.finish()


def carry_out(what: tuple[Any, ...], entries: list[Entry]) -> None:
    """Do a collective for all ranks."""
    kind = what[0]
    sources = [e.source for e in entries]
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        op, dtype = what[3], sources[0].dtype
        wide = [s.astype(np.float32) for s in sources] if dtype.itemsize == 2 else [s.copy() for s in sources]
        with np.errstate(all="ignore"):
            total = wide[0]
            for s in wide[1:]:
                total = _UFUNCS[op](total, s)
            if op == 4:
                total = total / len(sources)
        total = total.astype(dtype)
        for r, entry in enumerate(entries):
            n = entry.target.size
            entry.target[:] = total[r * n : (r + 1) * n] if kind == "reduce_scatter" else total[:n]
    elif kind == "broadcast":
        for entry in entries:
            entry.target[:] = sources[what[3]]
    else:
        whole = np.concatenate(sources)
        for entry in entries:
            entry.target[:] = whole
    for entry in entries:
        entry.finish()


_lock = threading.Lock()


def group_start() -> None:
    """Stands for ``ncclGroupStart``."""
    _grouped.depth = getattr(_grouped, "depth", 0) + 1
    if _grouped.depth == 1:
        _grouped.calls = []


def group_end() -> None:
    """Stands for ``ncclGroupEnd``: everything since the start is launched."""
    _grouped.depth -= 1
    if not _grouped.depth:
        for call in _grouped.calls:
            call()


def module() -> ModuleType:
    """``cupy.cuda.nccl``."""
    made = ModuleType("cupy.cuda.nccl")
    made.available = True
    made.get_version = lambda: 23203
    made.get_unique_id = lambda: os.urandom(120).ljust(128, b"\0")
    made.NcclCommunicator, made.NcclError = NcclCommunicator, NcclError
    made.groupStart, made.groupEnd = group_start, group_end
    return made
