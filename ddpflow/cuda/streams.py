"""Streams and events of a GPU under PyTorch's names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddpflow.device import Device, as_device, current_gpu, required_cupy
from ddpflow.errors import DeviceError

__all__ = ["Event", "Stream", "current_stream", "default_stream", "gpu_number", "set_stream", "stream"]


def gpu_number(place: Any) -> int:
    """The number of a device given as a number, a name or a device; the current one for None.

    Raises:
        DeviceError: When it is no GPU, or there is no GPU.
    """
    if place is None:
        return current_gpu()
    found = as_device(place)
    if found.type != "cuda":
        raise DeviceError(f"{found} is no GPU")
    return current_gpu() if found.index is None else found.index


class Event:
    """A mark in a stream: others can wait for it, and time can be measured between two (``torch.cuda.Event``).

    Args:
        enable_timing: Whether `elapsed_time` can be asked.
        blocking: Whether the host sleeps in `synchronize` instead of spinning.
        interprocess: As in CUDA.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._cupy = required_cupy()
        current_gpu()
        self.cupy_event = self._cupy.cuda.Event(
            block=blocking, disable_timing=not enable_timing, interprocess=interprocess
        )

    def record(self, stream: "Stream | None" = None) -> None:
        """Mark where the stream, the current one when None, has been filled up to."""
        self.cupy_event.record((current_stream() if stream is None else stream).cupy_stream)

    def wait(self, stream: "Stream | None" = None) -> None:
        """Make a stream, the current one when None, wait for the mark; the host does not."""
        (current_stream() if stream is None else stream).cupy_stream.wait_event(self.cupy_event)

    def query(self) -> bool:
        """Whether the GPU has come to the mark."""
        return bool(self.cupy_event.done)

    def synchronize(self) -> None:
        """Make the host wait for the mark."""
        self.cupy_event.synchronize()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this mark to another; both must have been made with ``enable_timing=True``."""
        end_event.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(self.cupy_event, end_event.cupy_event))


class Stream:
    """A queue of work on a GPU, which runs beside other queues (``torch.cuda.Stream``).

    Args:
        device: The GPU; the current one when None.
        priority: Lower numbers go first.
        cupy_stream: A CuPy stream to wrap instead of making one.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, cupy_stream: Any = None) -> None:
        index = gpu_number(device)
        cupy = required_cupy()
        self.device = Device("cuda", index)
        with cupy.cuda.Device(index):
            # Like PyTorch's, it does not wait for the default stream by itself.
            self.cupy_stream: Any = cupy_stream or cupy.cuda.Stream(non_blocking=True, priority=priority or None)

    @property
    def cuda_stream(self) -> int:
        """CUDA's handle."""
        return int(self.cupy_stream.ptr)

    def synchronize(self) -> None:
        """Make the host wait for all its work."""
        self.cupy_stream.synchronize()

    def query(self) -> bool:
        """Whether all its work has ended."""
        return bool(self.cupy_stream.done)

    def wait_event(self, event: Event) -> None:
        """What is launched from now on runs after a mark."""
        self.cupy_stream.wait_event(event.cupy_event)

    def wait_stream(self, stream: "Stream") -> None:
        """What is launched from now on runs after all that another stream has been given so far."""
        event = Event()
        event.record(stream)
        self.wait_event(event)

    def record_event(self, event: Event | None = None) -> Event:
        """Mark where it has been filled up to, with a new event when None."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.cuda_stream) == (other.device, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.device, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<ddpflow.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread's work on a GPU goes to."""
    index = gpu_number(device)
    cupy = required_cupy()
    with cupy.cuda.Device(index):
        return Stream(index, cupy_stream=cupy.cuda.get_current_stream())


def default_stream(device: Any = None) -> Stream:
    """The stream that work goes to unless another was chosen."""
    return Stream(device, cupy_stream=required_cupy().cuda.Stream.null)


def set_stream(stream: Stream | None) -> None:
    """Make a stream this thread's current one on its GPU; None changes nothing."""
    if stream is not None:
        with required_cupy().cuda.Device(stream.device.index):
            stream.cupy_stream.use()


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Give a stream the work inside a ``with`` block; None changes nothing."""
    if stream is None:
        yield
        return
    with required_cupy().cuda.Device(stream.device.index), stream.cupy_stream:
        yield
