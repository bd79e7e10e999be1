"""Streams and events of the CuPy stand-in: who may use which memory when, told by vector clocks.

Every operation on a stream moves its clock on. A stream has *seen* another's operation when an event, a
synchronisation of the host, or the rules of the default stream put that operation before its own next one. Memory
remembers its last write and its last reads; an operation on a stream that has not seen them is a race: an error here.

This proves nothing about CUDA: it checks that our code asks for the order that it needs.
"""

import threading
import time
from typing import Any

LIMIT_S = 20.0  # an operation that waits longer than this for a collective will never run: on a GPU it would hang


class StreamOrderError(AssertionError):
    """Memory was used on a stream that had not waited for an earlier use on another."""


class CUDARuntimeError(RuntimeError):
    """What CuPy raises for an error of the CUDA runtime."""


class State:
    """What one machine of the stand-in knows: its devices, streams, counters and broken rules."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.lock = threading.RLock()
        self.local = threading.local()
        self.null: dict[int, Stream] = {}
        self.streams: dict[int, list[Stream]] = {}
        self.syncs: list[str] = []  # what made the host wait
        self.launches = 0
        self.violations: list[str] = []
        self.next_address = 0x7F00_0000_0000
        self.used: dict[int, int] = {}
        self.pinned: set[Any] = set()  # weak references to pinned memory
        self.math_modes: dict[Any, int] = {}  # of cuBLAS handles, which are a thread's own for each device
        self.compute_types: dict[str, int] = {}  # how CuPy multiplies matrices of a dtype, in all threads
        self.capability = "90"
        self.held = False  # while set, copies between pinned memory and devices do not end by themselves

    def null_stream(self, device: int) -> "Stream":
        """The default stream of a device."""
        with self.lock:
            if device not in self.null:
                self.null[device] = Stream(null=True, _device=device)
            return self.null[device]

    def host_clock(self) -> dict[int, int]:
        """What the calling thread has seen."""
        clock: dict[int, int] = self.local.__dict__.setdefault("clock", {})
        return clock

    def current_device(self) -> int:
        """The calling thread's device."""
        device: int = self.local.__dict__.get("device", 0)
        return device

    def current_stream(self) -> "Stream":
        """The calling thread's stream on its current device."""
        chosen: dict[int, Stream] = self.local.__dict__.setdefault("streams", {})
        return chosen.get(self.current_device()) or self.null_stream(self.current_device())


STATE = State(1)


def reset(devices: int) -> None:
    """A new machine."""
    global STATE
    fresh = State(devices)
    fresh.next_address = STATE.next_address  # no machine has an address that an earlier one had
    STATE = fresh


def state() -> State:
    """The machine."""
    return STATE


def merge(into: dict[int, int], other: dict[int, int]) -> None:
    """Make one clock see what another has seen."""
    for key, tick in other.items():
        if into.get(key, 0) < tick:
            into[key] = tick


def host_waits(why: str) -> None:
    """Note that the host waits for the current stream, which it cannot while the stream captures."""
    recording = state().current_stream().recording
    if recording is not None:
        recording.refuse(f"cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing ({why})")
    state().syncs.append(why)


class _Null:
    """``Stream.null``: the default stream of the current device."""

    def __get__(self, instance: Any, owner: Any) -> "Stream":
        return state().null_stream(state().current_device())


class Stream:
    """``cupy.cuda.Stream``."""

    _numbers = iter(range(1, 1 << 30))
    null = _Null()

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: Any = None,
        _device: Any = None,
    ) -> None:
        machine = state()
        self._device = machine.current_device() if _device is None else _device
        check_device(self._device)
        self.number = next(Stream._numbers)
        self.ptr = 0 if null else 0x5000_0000 + self.number
        self.device_id = -1 if null else self._device
        self.is_non_blocking = non_blocking
        self.priority = priority or 0
        self.is_null = null
        self.clock: dict[int, int] = {}
        self.pending: list[Any] = []
        self._before: list[Any] = []
        self.recording: Any = None  # the capture that it takes part in
        with machine.lock:
            machine.streams.setdefault(self._device, []).append(self)

    def step(self) -> int:
        """Start an operation: see what the rules put before it, and move the clock on."""
        machine = state()
        with machine.lock:
            merge(self.clock, machine.host_clock())
            if self.is_null:
                for other in machine.streams[self._device]:
                    if not other.is_non_blocking:
                        merge(self.clock, other.clock)
                        self.pending += [p for p in other.pending if p not in self.pending]
            elif not self.is_non_blocking:
                merge(self.clock, machine.null_stream(self._device).clock)
            tick = self.clock[self.number] = self.clock.get(self.number, 0) + 1
            return tick

    def wait_event(self, event: "Event") -> None:
        """What is launched from now on runs after the event."""
        if event.clock is None:
            return  # CUDA: an event that was never recorded is complete
        if event.recording is not None:
            event.recording.join(self)
        elif self.recording is not None:
            self.recording.refuse("cudaErrorStreamCaptureIsolation: dependency created on uncaptured work")
        with state().lock:
            merge(self.clock, event.clock)
            self.pending = [p for p in {*self.pending, *event.pending} if not p.done]

    def record(self, event: "Event | None" = None) -> "Event":
        """Record an event (a new one when None)."""
        found = Event() if event is None else event
        found.record(self)
        return found

    @property
    def done(self) -> bool:
        """Whether everything launched has ended."""
        if self.recording is not None:
            self.recording.refuse("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")
        look(self.pending)
        self.pending = [p for p in self.pending if not p.done]
        return not self.pending

    def synchronize(self) -> None:
        """Make the host wait."""
        machine = state()
        host_waits("stream.synchronize")
        wait_for(self.pending)
        with machine.lock:
            self.step()
            merge(machine.host_clock(), self.clock)

    def use(self) -> "Stream":
        """Make it the thread's current stream on its device."""
        state().local.__dict__.setdefault("streams", {})[self._device] = self
        return self

    def __enter__(self) -> "Stream":
        chosen = state().local.__dict__.setdefault("streams", {})
        self._before.append((self._device, chosen.get(self._device)))
        chosen[self._device] = self
        return self

    def __exit__(self, *exc: object) -> None:
        device, before = self._before.pop()
        chosen = state().local.streams
        if before is None:
            del chosen[device]
        else:
            chosen[device] = before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.number == other.number

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"


class Event:
    """``cupy.cuda.Event``."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.clock: dict[int, int] | None = None
        self.pending: list[Any] = []
        self.timed = not disable_timing
        self.time = 0.0
        self.ptr = id(self)
        self.recording: Any = None  # the capture in which it was last recorded
        self.device = state().current_device()

    def record(self, stream: "Stream | None" = None) -> None:
        """Mark the place up to which the stream has been filled."""
        chosen = stream or state().current_stream()
        with state().lock:
            chosen.step()
            self.recording = chosen.recording
            self.clock = dict(chosen.clock)
            self.pending = [p for p in chosen.pending if not p.done]
            self.time = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether everything before it has ended; then the host knows."""
        if state().current_device() != self.device:
            state().violations.append("an event was asked from another device, where that makes a CUDA context")
        if self.recording is not None:
            state().violations.append("an event that was last recorded in a capture was asked")
        look(self.pending)
        if any(not p.done for p in self.pending):
            return False
        if self.clock is not None:
            merge(state().host_clock(), self.clock)
        return True

    def synchronize(self) -> None:
        """Make the host wait."""
        host_waits("event.synchronize")
        wait_for(self.pending)
        if self.clock is not None:
            merge(state().host_clock(), self.clock)


def look(pending: list[Any]) -> None:
    """The host asks: copies that it has not heard of yet may end."""
    for entry in list(pending):
        entry.look()


def wait_for(pending: list[Any]) -> None:
    """Wait for collectives as a GPU would, but not for ever."""
    end = time.monotonic() + LIMIT_S
    for entry in list(pending):
        while not entry.done:
            if time.monotonic() > end:
                raise StreamOrderError(f"a GPU would wait for ever for {entry}")
            entry.wait(0.05)


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds between two events."""
    if not (start.timed and end.timed):
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
    return (end.time - start.time) * 1e3


def get_current_stream(device_id: int | None = None) -> Stream:
    """The thread's current stream."""
    return state().current_stream()


def check_device(index: int) -> None:
    """Refuse a device that is not there."""
    if not 0 <= index < state().devices:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")


class Device:
    """``cupy.cuda.Device``."""

    def __init__(self, device: Any = None) -> None:
        self.id = state().current_device() if device is None else int(getattr(device, "id", device))
        self._before: list[int] = []

    def use(self) -> None:
        """Make it the thread's current device."""
        check_device(self.id)
        state().local.device = self.id

    def __enter__(self) -> "Device":
        self._before.append(state().current_device())
        self.use()
        return self

    def __exit__(self, *exc: object) -> None:
        state().local.device = self._before.pop()

    def synchronize(self) -> None:
        """Make the host wait for all of the device's streams."""
        check_device(self.id)
        state().null_stream(self.id).synchronize()
        for stream in list(state().streams[self.id]):
            wait_for(stream.pending)
            merge(state().host_clock(), stream.clock)

    @property
    def compute_capability(self) -> str:
        """Of the newest GPU that we compile for, unless a test wants another."""
        return state().capability

    @property
    def cublas_handle(self) -> tuple[int, int]:
        """The calling thread's handle for this device."""
        return threading.get_ident(), self.id

    @property
    def pci_bus_id(self) -> str:
        """The device's address."""
        return f"0000:{0x10 + self.id:02X}:00.0"

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        return (60 << 30, 80 << 30)

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"
