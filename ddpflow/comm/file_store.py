"""FileStore: a key-value store in one file that all ranks can open, such as on a shared file system."""

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

from ddpflow.comm.store import DEFAULT_TIMEOUT_S, Store, add_to, as_bytes, compare, missing_keys
from ddpflow.comm.work import seconds
from ddpflow.errors import CollectiveTimeout, CommError

__all__ = ["FileStore"]

_MAGIC = b"ddpflow-file-store-1\n"
_RECORD = struct.Struct("!IIBI")  # bytes after this header, their checksum, 1 = set or 0 = delete, bytes of the key
_LARGEST_RECORD = 64 << 20
T = TypeVar("T")


class FileStore(Store):
    """A store kept as a log of changes in a file, guarded by an advisory lock.

    A writer that dies in the middle of a record leaves a tail whose checksum is wrong; the next writer cuts it off. The
    file is created readable by its owner only, and a file of another user is refused.

    Args:
        file_name: Path that all ranks can open; the directory must exist.
        world_size: When this many ranks have called ``close``, the last one removes the file; None keeps it.
        timeout: Deadline of waits and of getting the lock.

    Raises:
        CommError: The file cannot be opened, is another user's, or holds something else.
    """

    def __init__(
        self, file_name: str, world_size: int | None = None, timeout: float | timedelta = DEFAULT_TIMEOUT_S
    ) -> None:
        super().__init__(timeout)
        self.path, self._world_size = os.fspath(file_name), world_size
        self._data: dict[str, bytes] = {}
        self._at = len(_MAGIC)
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CommError(f"cannot open the file store {self.path}: {error.strerror}") from error
        try:
            if os.fstat(self._fd).st_uid != os.geteuid():
                raise CommError(f"the file store {self.path} belongs to another user")
            with self._locked():
                head = os.pread(self._fd, len(_MAGIC), 0)
                if not head:
                    os.pwrite(self._fd, _MAGIC, 0)
                elif head != _MAGIC:
                    raise CommError(f"{self.path} is not a file store; delete it or choose another file")
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._fd < 0:
            raise CommError("this store was closed")
        deadline = time.monotonic() + self.timeout_s
        pause = 0.0005
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CollectiveTimeout(
                        f"{self.path} stays locked by another process after {self.timeout_s:g} s"
                    ) from None
                if self.on_idle is not None:
                    self.on_idle()
                time.sleep(pause)
                pause = min(0.02, pause * 1.5)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _read(self) -> None:
        """Applies the records that others have appended; cuts off what a dead writer left half done. Needs the lock."""
        size = os.fstat(self._fd).st_size
        while self._at < size:
            header = os.pread(self._fd, _RECORD.size, self._at)
            body = b""
            if len(header) == _RECORD.size:
                length, checksum, is_set, key_length = _RECORD.unpack(header)
                if key_length <= length <= _LARGEST_RECORD:
                    body = os.pread(self._fd, length, self._at + _RECORD.size)
            if not body or len(body) != length or zlib.crc32(header[8:] + body) != checksum:
                os.ftruncate(self._fd, self._at)
                return
            key = body[:key_length].decode()
            if is_set:
                self._data[key] = body[key_length:]
            else:
                self._data.pop(key, None)
            self._at += _RECORD.size + length

    def _append(self, key: str, value: bytes | None) -> None:
        name = key.encode()
        body = name + (value or b"")
        if len(body) > _LARGEST_RECORD:
            raise CommError(f"a store entry of {len(body)} bytes is larger than the limit of {_LARGEST_RECORD} bytes")
        tail = struct.pack("!BI", value is not None, len(name))
        record = struct.pack("!II", len(body), zlib.crc32(tail + body)) + tail + body
        os.pwrite(self._fd, record, self._at)
        self._at += len(record)
        if value is None:
            self._data.pop(key, None)
        else:
            self._data[key] = value

    def _change(self, action: Callable[[], T]) -> T:
        with self._locked():
            self._read()
            return action()

    def set(self, key: str, value: str | bytes) -> None:
        """Stores ``value`` under ``key``."""
        data = as_bytes(value)
        self._change(lambda: self._append(key, data))

    def add(self, key: str, amount: int) -> int:
        """Adds to the integer under ``key`` and returns the sum."""

        def action() -> int:
            total = add_to(self._data.get(key), key, amount)
            self._append(key, str(total).encode())
            return total

        return self._change(action)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Stores ``desired`` if the value is ``expected``."""

        def action() -> bytes:
            result, store = compare(self._data.get(key), as_bytes(expected), as_bytes(desired))
            if store:
                self._append(key, result)
            return result

        return self._change(action)

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all the keys exist now."""
        wanted = list(keys)
        return self._change(lambda: all(key in self._data for key in wanted))

    def try_get(self, key: str) -> bytes | None:
        """Returns the value or None."""
        return self._change(lambda: self._data.get(key))

    def wait(self, keys: Iterable[str], timeout: float | timedelta | None = None) -> None:
        """Returns once all the keys exist."""
        wanted = list(keys)
        limit = seconds(timeout, self.timeout_s)
        deadline = time.monotonic() + limit
        pause = 0.001
        while missing := self._change(lambda: [key for key in wanted if key not in self._data]):
            if time.monotonic() >= deadline:
                raise missing_keys(missing, limit)
            if self.on_idle is not None:
                self.on_idle()
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)

    def delete(self, key: str) -> bool:
        """Removes the key."""

        def action() -> bool:
            existed = key in self._data
            if existed:
                self._append(key, None)
            return existed

        return self._change(action)

    def num_keys(self) -> int:
        """Returns the number of keys."""
        return self._change(lambda: len(self._data))

    def close(self) -> None:
        """Closes the file, and removes it if all ranks have closed it; may be called twice."""
        if self._fd < 0:
            return
        try:
            if self._world_size is not None and self.add("ddpflow/closed", 1) >= self._world_size:
                os.unlink(self.path)
        except (OSError, CommError):
            pass
        finally:
            os.close(self._fd)
            self._fd = -1
