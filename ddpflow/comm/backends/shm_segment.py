"""Memory that several processes of one host map: nameless, reserved before use, gone with its last user.

The file behind it is a ``memfd_create`` file. It has no name, so nothing is left in /dev/shm after ``kill -9``, and the
size limit of /dev/shm (64 MB in many containers) does not apply. Where memfd does not exist or is forbidden, an unnamed
temporary file takes its place: ``O_TMPFILE`` where the file system has it, else a named file that is unlinked before
anybody uses it. Peers get the descriptor over a socket (``shm_handshake.py``), never a name.

Space is reserved before it is written (``SharedFile.reserve``): a full memory shows as an ``OSError`` there, not as a
SIGBUS in the middle of a training step.
"""

import contextlib
import mmap
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["HUGE_BYTES", "Mapping", "SharedFile", "create_file", "page_align", "process_start_time", "sweep_leftovers"]

_PREFIX = "ddpflow_"
_NAME = re.compile(r"ddpflow_(\d+)_(\d+)_(\d+)_[0-9a-f]{16}")
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the mmap module has no name for it
_MADV_HUGEPAGE = getattr(mmap, "MADV_HUGEPAGE", None)
HUGE_BYTES = 2 << 20


def page_align(n_bytes: int) -> int:
    """Rounds a size in bytes up to whole pages."""
    return -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def process_start_time(pid: int) -> int | None:
    """Returns the start time of a process in clock ticks since boot, or None where it is gone or not visible."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])  # the name in brackets may itself hold brackets


def _shared_directory() -> str:
    """Returns where the fallback files go: /dev/shm if it can be written, else the temporary directory."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else tempfile.gettempdir()


def sweep_leftovers(directory: str | None = None) -> list[str]:
    """Removes named files of this user whose maker is dead, and returns their names.

    Only the last fallback names its files at all, for the microseconds between creation and unlink; a process killed
    exactly there leaves one behind. Files of living processes, other users and other programs are not touched.
    """
    removed = []
    base = Path(directory or _shared_directory())
    for path in sorted(base.glob(_PREFIX + "*")):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) != os.getuid():
            continue
        if process_start_time(int(match[2])) != int(match[3]):  # a reused pid has another start time
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return removed


def _create_named_file(directory: str) -> int:
    """Makes a file that is unlinked before this returns, for file systems without O_TMPFILE."""
    sweep_leftovers(directory)
    pid = os.getpid()
    name = f"{_PREFIX}{os.getuid()}_{pid}_{process_start_time(pid) or 0}_{secrets.token_hex(8)}"
    path = os.path.join(directory, name)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return fd


def create_file(n_bytes: int, *, directory: str | None = None) -> int:
    """Makes an empty nameless file of ``n_bytes`` (nothing reserved yet) and returns its descriptor.

    Args:
        n_bytes: size of the file.
        directory: forces the fallback, an unnamed file in this directory; by default only where memfd is missing.
    """
    fd = -1
    if directory is None:
        with contextlib.suppress(OSError, AttributeError):  # old kernel, seccomp filter, or not Linux
            fd = os.memfd_create("ddpflow", os.MFD_CLOEXEC)
    if fd < 0:
        base = directory or _shared_directory()
        try:
            fd = os.open(base, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        except (OSError, AttributeError):
            fd = _create_named_file(base)
    try:
        os.ftruncate(fd, n_bytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


class Mapping:
    """A part of a shared file in this process's address space; unmapped when the last view of it is gone.

    Attributes:
        bytes: the whole mapping as a uint8 array.
    """

    __slots__ = ("_map", "bytes")

    def __init__(self, fd: int, start: int, size: int) -> None:
        self._map = mmap.mmap(fd, size, offset=start)
        self.bytes = np.frombuffer(self._map, np.uint8)

    def array(self, n: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Returns the first ``n`` elements as an array whose base is no array, so that it is the base of its views."""
        return np.frombuffer(self._map, dtype, n)

    def map_in(self, start: int, stop: int) -> None:
        """Makes the first touch of the bytes [start, stop) quick, in large pages where the system lets it."""
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        with contextlib.suppress(OSError):  # a hint: old kernels (before 5.14) and full memory are not an error here
            if _MADV_HUGEPAGE is not None and stop - start >= HUGE_BYTES:
                self._map.madvise(_MADV_HUGEPAGE, start, stop - start)
            self._map.madvise(_MADV_POPULATE_WRITE, start, stop - start)

    def give_back(self) -> None:
        """Returns the memory to the system; the mapping stays, and reads as zeros."""
        with contextlib.suppress(OSError):
            self._map.madvise(mmap.MADV_REMOVE)

    def words(self) -> memoryview:
        """Returns the mapping as signed 8-byte integers; one item is read and written as one aligned machine word."""
        return memoryview(self._map).cast("q")


class SharedFile:
    """Owner of the descriptor of a shared file."""

    __slots__ = ("_fd", "size")

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over."""
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._fd

    def map(self, start: int, stop: int) -> Mapping:
        """Maps the bytes [start, stop); ``start`` is a multiple of the page size."""
        return Mapping(self._fd, start, stop - start)

    def reserve(self, start: int, stop: int) -> None:
        """Reserves the bytes [start, stop) for good.

        Raises:
            OSError: the memory is not there (ENOSPC, ENOMEM).
        """
        if start < stop:
            os.posix_fallocate(self._fd, start, stop - start)

    def close(self) -> None:
        """Closes the descriptor; mappings stay."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Closes the descriptor with the last reference."""
        self.close()
