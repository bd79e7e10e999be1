"""Allocations of the CuPy stand-in: where they lie, which stream used them last, and what a captured graph may keep."""

import weakref
from typing import Any

import numpy as np

from tests.doubles.graphs import private_pool
from tests.doubles.timeline import StreamOrderError, merge, state


class Memory:
    """One allocation: where it lies, and who used it last."""

    def __init__(self, root: np.ndarray, device: int) -> None:
        machine = state()
        self.root = root
        self.device = device
        self.home = machine.current_stream()
        with machine.lock:
            self.address = machine.next_address
            machine.next_address += (root.nbytes // 512 + 1) * 512
            machine.used[device] = machine.used.get(device, 0) + root.nbytes
        self.machine = machine
        self.written: tuple[Any, int] | None = None
        self.reads: dict[Any, int] = {}
        self.pool = private_pool()
        self.loose: Any = None  # what stands for it in a graph
        self.recording = self.home.recording  # the capture in which it was allocated
        self.pending: list[Any] = []  # collectives that have not been carried out yet and write here

    def use(self, stream: Any, tick: int, write: bool, anywhere: bool = False) -> None:
        """Check one use and remember it."""
        if stream._device != self.device and not anywhere:
            raise ValueError(
                f"Array device must be same as the current device: array device = {self.device} while current = "
                f"{stream._device}"
            )
        if stream.recording is not None:
            stream.recording.touch(self, write)
        last = self.written
        if last is not None and last[0] is not stream and stream.clock.get(last[0].number, 0) < last[1]:
            raise StreamOrderError(f"{stream} uses what {last[0]} wrote, without waiting for it")
        if write:
            for reader, at in self.reads.items():
                if reader is not stream and stream.clock.get(reader.number, 0) < at:
                    raise StreamOrderError(f"{stream} writes where {reader} still reads, without waiting for it")
            self.written = (stream, tick)
            self.reads.clear()
        else:
            self.reads[stream] = tick

    def __del__(self) -> None:
        # CuPy hands freed memory to the next allocation on its home stream; only that stream's order protects it.
        machine = self.machine
        machine.used[self.device] -= self.root.nbytes
        clock = dict(self.home.clock)
        merge(clock, machine.host_clock())
        uses = dict(self.reads)
        if self.written is not None:
            uses[self.written[0]] = max(uses.get(self.written[0], 0), self.written[1])
        for stream, tick in uses.items():
            if stream is not self.home and not (stream.is_null and not self.home.is_non_blocking):
                if clock.get(stream.number, 0) < tick:
                    machine.violations.append(f"{self.root.nbytes} bytes of {self.home} freed while {stream} uses them")


_memories: "weakref.WeakValueDictionary[int, Memory]" = weakref.WeakValueDictionary()


def root_of(a: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a
