"""CUDA graphs of the CuPy stand-in: work on a capturing stream is noted, and done only when the graph is launched.

What CUDA refuses while it captures is refused: a wait of the host, a dependency on work outside, a forked stream that
was not waited for. What a graph uses must be there at each launch: memory that was handed back is a broken rule, unless
it belongs to a pool of the graph's own that is still there. It proves nothing about CUDA.
"""

import functools
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.doubles.host import receive
from tests.doubles.timeline import CUDARuntimeError, Stream, state, wait_for


class Recording:
    """A capture under way, on one stream and those that have joined it."""

    def __init__(self, origin: Stream) -> None:
        self.origin = origin
        self.streams = [origin]
        self.nodes: list[Callable[[list[Any]], None]] = []
        self.active = self.valid = True
        self.inside = False  # an operation is being noted; what it calls is part of it
        self.before: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.uses: dict[Any, Any] = {}

    def touch(self, memory: Any, write: bool) -> None:
        """Remember that an allocation is used, and how it was before."""
        if memory not in self.before:
            values = None if memory.recording is self else memory.root.copy()
            self.before[memory] = (memory.written, dict(memory.reads), values)
        key = id(memory.root)
        reference, pool, written = self.uses.get(key, (weakref.ref(memory), memory.pool, False))
        self.uses[key] = (reference, pool if memory.recording is self else None, written or write)

    def join(self, stream: Stream) -> None:
        """A stream waits for an event of this capture."""
        if not self.active:
            raise CUDARuntimeError(
                "cudaErrorCapturedEvent: operation not permitted on an event last recorded in a capturing stream"
            )
        if stream.recording is None:
            stream.recording = self
            self.streams.append(stream)

    def refuse(self, text: str) -> None:
        """Raise what CUDA would; the capture cannot be ended well any more."""
        self.valid = False
        raise CUDARuntimeError(text)

    def record(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note a call. It is carried out too, for the shapes of its results; `end` takes the values back."""
        self.inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            self.inside = False
        targets, args, kwargs = [a._a for a in arrays_in(result)], bare(args), bare(kwargs)

        def again(posted: list[Any]) -> None:
            wait_for(posted)
            posted.clear()
            for target, made in zip(targets, arrays_in(function(*args, **kwargs)), strict=True):
                target[...] = made._a

        self.nodes.append(again)
        return result

    def deliver(self, values: np.ndarray, out: Any) -> None:
        """Note a copy into pinned memory, which the graph does not keep alive."""
        target = weakref.ref(out)

        def again(posted: list[Any]) -> None:
            wait_for(posted)
            posted.clear()
            found = target()
            if found is None:
                state().violations.append("a graph copies into pinned memory that was handed back")
            else:
                receive(values, found)

        self.nodes.append(again)

    def end(self) -> "Graph":
        """Take all values back, let the streams go, and give the graph."""
        self.active = False
        for stream in self.streams:
            stream.recording = None
        for memory, (written, reads, values) in self.before.items():
            memory.written, memory.reads = written, reads
            if values is not None:
                memory.root[...] = values
                continue
            memory.written, memory.reads = None, {}
            if memory.root.dtype.kind == "b":
                memory.root.fill(True)
            else:
                memory.root.reshape(-1, order="A").view(np.uint8)[...] = 0xFF
        if not self.valid:
            raise CUDARuntimeError(
                "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture"
            )
        seen = self.origin.clock
        if any(seen.get(s.number, 0) < s.clock.get(s.number, 0) for s in self.streams):
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined: unjoined work")
        return Graph(self)


class Graph:
    """``cupy.cuda.Graph``."""

    def __init__(self, recording: Recording) -> None:
        self._nodes, self._uses, self._device = recording.nodes, list(recording.uses.values()), recording.origin._device

    def launch(self, stream: Stream | None = None) -> None:
        """Do all that was noted, on one stream."""
        where = state().current_stream() if stream is None else stream
        assert where._device == self._device, "launched on another device than captured"
        assert where.recording is None, "a graph in a graph: not a thing of this stand-in"
        tick = where.step()
        launches = state().launches
        for reference, pool, written in self._uses:
            memory = reference()
            if memory is not None:
                memory.use(where, tick, written)
            elif pool is None or pool() is None:
                state().violations.append("a graph uses memory that was handed back")
        posted: list[Any] = []
        with where:
            for node in self._nodes:
                node(posted)
        state().launches = launches + 1


class _Loose:
    """The memory of an argument of something noted: the graph keeps no memory alive."""

    @classmethod
    def of(cls, memory: Any) -> "_Loose":
        """The same one for all arguments in one allocation."""
        memory.loose = memory.loose or cls(memory)
        found: _Loose = memory.loose
        return found

    def __init__(self, memory: Any) -> None:
        self.loose = self
        self.root, self.device, self.address, self.recording = memory.root, memory.device, memory.address, None
        self.pending: list[Any] = []

    def use(self, stream: Any, tick: int, write: bool, anywhere: bool = False) -> None:
        """It was checked for the graph as a whole."""


def is_array(value: Any) -> bool:
    """Whether it is an array of the stand-in."""
    return hasattr(value, "_memory")


def bare(value: Any) -> Any:
    """The same arguments, without hold on their memory."""
    if is_array(value):
        shell = object.__new__(type(value))
        shell._a, shell._memory = value._a, _Loose.of(value._memory)
        return shell
    if type(value) in (tuple, list):
        return type(value)([bare(v) for v in value])
    return {k: bare(v) for k, v in value.items()} if type(value) is dict else value


def arrays_in(value: Any) -> list[Any]:
    """The arrays in a result."""
    if isinstance(value, (tuple, list)):
        return [a for v in value for a in arrays_in(v)]
    return [value] if is_array(value) else []


def recorded(function: Any) -> Any:
    """An operation that a capturing stream notes."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        recording = state().current_stream().recording
        if recording is None or recording.inside:
            return function(*args, **kwargs)
        return recording.record(function, args, kwargs)

    return run


def _begin(self: Stream, mode: int | None = None) -> None:
    if self.is_null:
        raise RuntimeError("cannot capture on the default (legacy) stream")
    assert self.recording is None, "cudaErrorIllegalState: the stream captures already"
    self.recording = Recording(self)


def _end(self: Stream) -> Graph:
    recording = self.recording
    if recording is None or recording.origin is not self:
        raise CUDARuntimeError("cudaErrorStreamCaptureUnmatched: capture was not initiated in this stream")
    return recording.end()


Stream.begin_capture, Stream.end_capture = _begin, _end
Stream.is_capturing = lambda self: self.recording is not None


class MemoryPool:
    """``cupy.cuda.MemoryPool``: which memory is whose; its sizes are nobody's business here."""

    def malloc(self, size: int) -> Any:
        """What `using_allocator` is given; the stand-in allocates by itself."""
        raise NotImplementedError


@contextmanager
def using_allocator(allocator: Any = None) -> Any:
    """``cupy.cuda.using_allocator``: the calling thread's memory comes from there."""
    local = state().local
    before = local.__dict__.get("allocator")
    local.allocator = allocator
    try:
        yield
    finally:
        local.allocator = before


def private_pool() -> Any:
    """A weak reference to the pool that the calling thread allocates from, None for the default one."""
    owner = getattr(state().local.__dict__.get("allocator"), "__self__", None)
    return None if owner is None else weakref.ref(owner)
