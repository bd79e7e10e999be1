"""Random numbers: one stream for each device and thread, seeded by `manual_seed`.

Each thread draws from its own default stream: ranks that are threads of one process do not disturb one another, and
`manual_seed` in a thread makes that thread repeatable. A thread that never seeded gets a stream of its own, derived
from the process's seed.
"""

import itertools
import sys
import threading
from typing import Any

import numpy as np

from ddpflow.capture import capturing
from ddpflow.device import Device, as_device
from ddpflow.errors import DeviceError, DtypeError, ValueRangeError

__all__ = [
    "Generator",
    "default_generator",
    "draw_normal",
    "draw_uniform",
    "initial_seed",
    "manual_seed",
    "seed",
    "stream",
]

_STATE_BYTES = 48


class Generator:
    """A stream of random numbers for one device (PyTorch's ``torch.Generator``).

    Args:
        device: Where its numbers are made.

    Example:
        >>> import ddpflow
        >>> g = ddpflow.Generator().manual_seed(7)
        >>> a = ddpflow.rand(3, generator=g)
        >>> bool((a == ddpflow.rand(3, generator=g.manual_seed(7))).all())
        True
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device: Device = as_device(device)
        self._seed: int | None = None
        self._stream: Any = None

    def manual_seed(self, seed: int) -> "Generator":
        """Start the stream anew from a seed, and return the generator."""
        self._start(_checked(seed))
        return self

    def seed(self) -> int:
        """Start the stream anew from a seed that the operating system draws, and return that seed."""
        fresh = int(np.random.SeedSequence().entropy) & 0xFFFF_FFFF_FFFF_FFFF  # type: ignore[arg-type]
        self._start(fresh)
        return fresh

    def initial_seed(self) -> int:
        """The seed that the stream was started from."""
        self.stream()
        assert self._seed is not None
        return self._seed

    def stream(self) -> Any:
        """The NumPy (or CuPy) generator behind it, started on first use."""
        if self._stream is None:
            self.seed()
        return self._stream

    def get_state(self) -> Any:
        """The state as 48 bytes in a NumPy array.

        Raises:
            DeviceError: On a GPU, whose generators do not tell their state; seed them instead.
        """
        if self.device.type != "cpu":
            raise DeviceError("the state of a GPU's random stream cannot be read; use manual_seed to repeat it")
        state: Any = self.stream().bit_generator.state
        words = (state["state"]["state"], state["state"]["inc"])
        packed = b"".join(word.to_bytes(16, "little") for word in words)
        packed += int(state["has_uint32"]).to_bytes(4, "little") + int(state["uinteger"]).to_bytes(4, "little")
        packed += self.initial_seed().to_bytes(8, "little")
        return np.frombuffer(packed, np.uint8).copy()

    def set_state(self, state: Any) -> "Generator":
        """Go on from a state that `get_state` gave.

        Raises:
            DtypeError: When it is no such state.
        """
        raw = np.ascontiguousarray(getattr(state, "array", state))
        if raw.dtype != np.uint8 or raw.size != _STATE_BYTES:
            raise DtypeError(f"a random state is {_STATE_BYTES} bytes (uint8), not {raw.size} elements of {raw.dtype}")
        packed = raw.tobytes()
        self._start(int.from_bytes(packed[40:48], "little"))
        self._stream.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {
                "state": int.from_bytes(packed[:16], "little"),
                "inc": int.from_bytes(packed[16:32], "little"),
            },
            "has_uint32": int.from_bytes(packed[32:36], "little"),
            "uinteger": int.from_bytes(packed[36:40], "little"),
        }
        return self

    def _start(self, seed: int, key: tuple[int, ...] = ()) -> None:
        self._seed = seed
        if self.device.type == "cpu":
            self._stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
        else:
            if capturing() is not None:
                raise DeviceError(
                    "a GPU's random stream cannot be started while a CUDA graph is captured, as each replay would "
                    "start it anew; draw from it once before"
                )
            mixed = seed if not key else int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])
            self._stream = sys.modules["cupy"].random.default_rng(mixed)

    def __repr__(self) -> str:
        return f"<ddpflow.Generator on {self.device}>"


class _Threads(threading.local):
    """The seed of this thread, if it set one, and its default generators by device."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.by_device: dict[tuple[str, int | None], Generator] = {}


_threads = _Threads()
_process_seed: int | None = None
_thread_numbers = itertools.count(1)


def default_generator(device: Any = None) -> Generator:
    """This thread's generator for a device, made on first use."""
    place = as_device(device)
    key = (place.type, place.index)
    found = _threads.by_device.get(key)
    if found is None:
        found = _threads.by_device[key] = Generator(place)
        if _threads.seed is not None:
            found._start(_threads.seed)
        elif _process_seed is not None:
            found._start(_process_seed, (next(_thread_numbers),))
    return found


def stream(xp: Any = np, generator: Generator | None = None) -> Any:
    """The NumPy or CuPy generator to draw from: the given one's, else this thread's default for the current device.

    Args:
        xp: The array module that is to make the numbers.
        generator: Draw from this one instead of the default.

    Raises:
        DeviceError: When the generator is for another kind of device.
    """
    if generator is not None:
        if (generator.device.type == "cpu") != (xp is np):
            raise DeviceError(f"a generator for {generator.device} cannot make numbers for {xp.__name__} arrays")
        return generator.stream()
    if xp is np:
        found = _threads.by_device.get(("cpu", None))
        return (default_generator() if found is None else found).stream()
    return default_generator(Device("cuda", xp.cuda.Device().id)).stream()


def manual_seed(seed: int) -> Generator:
    """Start this thread's streams, on every device, anew from a seed; returns the CPU's generator."""
    global _process_seed
    chosen = _threads.seed = _checked(seed)
    if threading.current_thread() is threading.main_thread():
        _process_seed = chosen
    for generator in _threads.by_device.values():
        generator._start(chosen)
    return default_generator()


def seed() -> int:
    """Start this thread's streams anew from a seed that the operating system draws, and return that seed."""
    return manual_seed(Generator().seed()).initial_seed()


def initial_seed() -> int:
    """The seed of this thread's CPU stream."""
    return default_generator().initial_seed()


_UNIFORM = ("float32", "float64")


def draw_uniform(xp: Any, shape: tuple[int, ...], dtype: Any, generator: Generator | None = None) -> Any:
    """An array of numbers drawn evenly from [0, 1), below 1 in every dtype."""
    source = stream(xp, generator)
    if dtype.name in _UNIFORM:
        return xp.asarray(source.random(shape, dtype))
    # A half type would round the largest float32 draws up to 1: draw as many bits as its fraction holds.
    bits = 11 if dtype.name == "float16" else 8
    return (xp.asarray(source.integers(0, 1 << bits, shape)) / float(1 << bits)).astype(dtype)


def draw_normal(xp: Any, shape: tuple[int, ...], dtype: Any, generator: Generator | None = None) -> Any:
    """An array drawn from the standard normal distribution; complex numbers have unit variance in all."""
    source = stream(xp, generator)
    if dtype.kind == "c":
        half = "float32" if dtype.itemsize == 8 else "float64"
        pair = source.standard_normal((2, *shape), half) * 0.5**0.5
        return xp.asarray(pair[0] + 1j * pair[1]).astype(dtype)
    if dtype.name in _UNIFORM:
        return xp.asarray(source.standard_normal(shape, dtype))
    return xp.asarray(source.standard_normal(shape, "float32")).astype(dtype)


def _checked(seed: Any) -> int:
    """A seed as a number of 64 bits without sign; negative ones wrap as in PyTorch."""
    try:
        number = int(seed)
    except (TypeError, ValueError):
        raise DtypeError(f"a seed is an integer, not {seed!r}") from None
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueRangeError(f"a seed has 64 bits; {number} does not fit")
    return number & 0xFFFF_FFFF_FFFF_FFFF
