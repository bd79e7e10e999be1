"""CUDA graphs under PyTorch's names: a step is captured once, and replayed without Python.

Source: CuPy's stream capture (``Stream.begin_capture``), and PyTorch's ``torch.cuda.graph`` for the names.
"""

from contextlib import AbstractContextManager
from typing import Any

from ddpflow.capture import Capture, capturing, set_capture
from ddpflow.cuda.streams import Stream
from ddpflow.cuda.streams import stream as on_stream
from ddpflow.device import current_gpu, required_cupy, usable_cupy
from ddpflow.errors import DeviceError

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]

_RULES = (
    "in a captured step nothing may make the host wait (item(), print, boolean indexing, GradScaler.step, copies to "
    "the CPU), no data may come from main memory, and every stream that was forked must be waited for; run the step a "
    "few times before the capture, so that kernels, communicators and optimizer state are there"
)


class CUDAGraph:
    """Work of a stream, captured once; `replay` launches all of it in one call.

    A replay uses the memory that the capture used: fill the captured inputs by ``copy_`` before, and read the captured
    outputs after. What was allocated during the capture comes from a pool of the graph's own and lives as long as the
    graph; inputs and parameters are yours to keep. Python numbers (learning rates, loop counts) are those of the
    capture for ever; random numbers are drawn anew by each replay.

    Args:
        keep_graph: Accepted, ignored: what was captured cannot be changed.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._cupy = required_cupy()
        self._gpu = current_gpu()
        self._capture = Capture()
        self._graph: Any = None
        self._pool: Any = None
        self._stream: Any = None
        self._allocating: AbstractContextManager[Any] | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "relaxed") -> None:
        """Begin to capture what this thread gives its current stream; `graph` does it for a block.

        Args:
            pool: What `graph_pool_handle`, or `pool` of another graph, gave: memory that the graphs share, if they are
                replayed in the order of capture and never at once. None for memory of the graph's own.
            capture_error_mode: CUDA's mode: ``"relaxed"`` lets the pool grow during the capture; ``"thread_local"``
                forbids that, and ``"global"`` also what other threads do, such as the watchdog of NCCL's groups.

        Raises:
            DeviceError: On the default stream, inside another capture, or when this graph was captured already.
        """
        cuda = self._cupy.cuda
        modes = {"relaxed": "Relaxed", "thread_local": "ThreadLocal", "global": "Global"}
        if capture_error_mode not in modes:
            raise DeviceError(f"capture_error_mode is one of {', '.join(modes)}, not {capture_error_mode!r}")
        if capturing() is not None:
            raise DeviceError("this thread captures a CUDA graph already")
        if self._graph is not None:
            raise DeviceError("this graph was captured already: reset() it, or make another")
        stream = cuda.get_current_stream()
        if stream == cuda.Stream.null:
            raise DeviceError("the default stream cannot be captured: use `with ddpflow.cuda.graph(g):`, or a Stream")
        self._gpu, self._stream = current_gpu(), stream
        self._pool = cuda.MemoryPool() if pool is None else pool
        self._capture = Capture()
        stream.begin_capture(getattr(cuda.runtime, f"streamCaptureMode{modes[capture_error_mode]}"))
        self._allocating = cuda.using_allocator(self._pool.malloc)
        self._allocating.__enter__()
        set_capture(self._capture)

    def capture_end(self) -> None:
        """End the capture and make the graph.

        Raises:
            DeviceError: When nothing is being captured, or CUDA refused something that was.
        """
        if self._stream is None:
            raise DeviceError("capture_end() without capture_begin()")
        try:
            self._graph = self._leave()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            self.reset()
            raise DeviceError(f"the step could not be captured: CUDA says {error}; {_RULES}") from error

    def _leave(self) -> Any:
        """End the capture, well or not, and give CuPy's graph."""
        stream, self._stream = self._stream, None
        set_capture(None)
        if self._allocating is not None:
            self._allocating.__exit__(None, None, None)
        return stream.end_capture()

    def capture_abandon(self, error: BaseException | None) -> None:
        """Give a capture up because of an error inside it.

        Raises:
            DeviceError: When the error is CUDA's; says what may not be in a capture.
        """
        refused = self._cupy.cuda.runtime.CUDARuntimeError
        try:
            self._leave()
        except refused:
            pass  # the error that invalidated the capture says more
        finally:
            self.reset()
        if isinstance(error, refused):
            raise DeviceError(f"the step could not be captured: CUDA says {error}; {_RULES}") from error

    def replay(self) -> None:
        """Give the current stream all that was captured; the host does not wait.

        Raises:
            DeviceError: When nothing was captured, or inside a capture.
            CommError: When a process group whose collectives were captured has failed meanwhile.
        """
        if self._graph is None:
            raise DeviceError("nothing was captured: there is nothing to replay")
        if capturing() is not None:
            raise DeviceError("a replay cannot be captured")
        with self._cupy.cuda.Device(self._gpu):
            for party in self._capture.parties:
                party.before_replay()
            self._graph.launch()
            for party in self._capture.parties:
                party.after_replay()

    def reset(self) -> None:
        """Forget what was captured, and give its memory back; no replay may be under way."""
        self._graph = self._pool = None
        self._capture = Capture()

    def pool(self) -> Any:
        """The memory pool of the capture, for `capture_begin` of another graph."""
        return self._pool


class graph:
    """Capture what is inside a ``with`` block, on a stream of its own.

    Args:
        cuda_graph: The graph to fill.
        pool: As in `CUDAGraph.capture_begin`.
        stream: The stream to capture on; a new one when None.
        capture_error_mode: As in `CUDAGraph.capture_begin`.

    Raises:
        DeviceError: When CUDA refuses something inside the block; nothing of it has been done then.
    """

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "relaxed"
    ) -> None:
        self._graph, self._pool, self._mode = cuda_graph, pool, capture_error_mode
        self._stream = Stream() if stream is None else stream
        self._inside: AbstractContextManager[Any] = on_stream(self._stream)

    def __enter__(self) -> None:
        required_cupy().cuda.Device(self._stream.device.index).synchronize()  # work before is no part of the capture
        self._inside = on_stream(self._stream)
        self._inside.__enter__()
        try:
            self._graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._inside.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        try:
            if error is None:
                self._graph.capture_end()
            else:
                self._graph.capture_abandon(error)
        finally:
            self._inside.__exit__(None, None, None)


def graph_pool_handle() -> Any:
    """A memory pool for graphs to share; see `CUDAGraph.capture_begin`."""
    return required_cupy().cuda.MemoryPool()


def is_current_stream_capturing() -> bool:
    """Whether this thread's current stream is being captured; False without a GPU."""
    cupy = usable_cupy()
    return cupy is not None and bool(cupy.cuda.get_current_stream().is_capturing())
