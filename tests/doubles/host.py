"""Pinned memory of the CuPy stand-in, and copies between it and devices that end only when the host learns of it.

Such a copy goes on behind the host's back. To the host it delivers at the last moment that CUDA allows: until then the
target holds rubbish. From the host it has read at the last moment: memory that the host changed meanwhile is a broken
rule, and so is memory that was handed back. It proves nothing about CUDA.
"""

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.doubles.timeline import state

RUBBISH = 0xFF  # as floating numbers: NaN


class PinnedMemoryPointer(bytearray):
    """What ``cupy.cuda.alloc_pinned_memory`` gives: a buffer."""

    __hash__, __eq__ = object.__hash__, object.__eq__

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.ptr = np.frombuffer(self, np.uint8).__array_interface__["data"][0]
        self.copies: list[HostCopy] = []
        self.machine = state()
        self.machine.pinned.add(weakref.ref(self, self.machine.pinned.discard))

    def size(self) -> int:
        """Bytes."""
        return len(self)

    def __del__(self) -> None:
        if any(not copy.done for copy in self.copies):
            self.machine.violations.append(f"{len(self)} bytes of pinned memory freed while a GPU copies")


class HostCopy:
    """A copy between pinned memory and a device, in flight.

    Args:
        pinned: The memory.
        start: First byte in it.
        data: The bytes that are copied.
        to_host: The direction.
    """

    def __init__(self, pinned: PinnedMemoryPointer, start: int, data: bytes, to_host: bool) -> None:
        self._pinned, self._start, self._data, self._to_host = weakref.ref(pinned), start, data, to_host
        self.done = False
        pinned.copies = [*[c for c in pinned.copies if not c.done], self]
        state().current_stream().pending.append(self)
        if to_host:
            self._bytes(pinned)[:] = RUBBISH

    def _bytes(self, pinned: PinnedMemoryPointer) -> Any:
        return np.frombuffer(pinned, np.uint8)[self._start : self._start + len(self._data)]

    def look(self) -> None:
        """The host asks whether it has ended: it ends, unless the GPU is held up."""
        if not state().held:
            self.wait(0.0)

    def wait(self, timeout: float) -> None:
        """It ends."""
        pinned = self._pinned()
        if pinned is not None and not self.done:
            if self._to_host:
                self._bytes(pinned)[:] = np.frombuffer(self._data, np.uint8)
            elif self._bytes(pinned).tobytes() != self._data:
                state().violations.append("the host changed pinned memory while a GPU copied from it")
        self.done = True


def pinned_at(a: np.ndarray) -> tuple[PinnedMemoryPointer, int] | None:
    """The pinned memory that an array lies in, and where in it."""
    address = a.__array_interface__["data"][0]
    for reference in list(state().pinned):
        found = reference()
        if found is not None and 0 <= address - found.ptr < len(found):
            return found, address - found.ptr
    return None


def send(a: np.ndarray) -> None:
    """``cupy.asarray`` copies a NumPy array: contiguous pinned memory straight, else through a buffer of its own."""
    found = pinned_at(a)
    if found is not None and a.ndim and (a.flags.c_contiguous or a.flags.f_contiguous):
        HostCopy(*found, a.tobytes("A"), False)


def receive(values: np.ndarray, out: Any) -> None:
    """``ndarray.get(out=out, blocking=False)`` copies a device's values to pinned memory."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"Only numpy.ndarray can be obtained from cupy.ndarray, not {type(out)}")
    if out.dtype != values.dtype or out.shape != values.shape:
        raise ValueError(f"out is {out.dtype} {out.shape}, the array {values.dtype} {values.shape}")
    if not out.flags.c_contiguous:
        raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
    found = pinned_at(out)
    assert found is not None, "a copy that nobody waits for needs pinned memory"
    HostCopy(*found, values.tobytes(), True)


def pointer_attributes(address: int) -> Any:
    """``cupy.cuda.runtime.pointerGetAttributes`` of main memory: pinned is of type 1, all else 0."""
    inside = any(m is not None and 0 <= address - m.ptr < len(m) for m in [r() for r in list(state().pinned)])
    return SimpleNamespace(type=int(inside))
