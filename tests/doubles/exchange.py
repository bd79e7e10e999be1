"""DLPack and the array interface of the CuPy stand-in: memory that changes hands without a copy, in stream order."""

import math
from typing import Any

import numpy as np

from tests.doubles.memory import ndarray, view_of
from tests.doubles.nccl import array_at, stream_at
from tests.doubles.timeline import Device, host_waits, merge, state


class Capsule:
    """What ``__dlpack__`` gives: to be taken once."""

    def __init__(self, array: ndarray) -> None:
        self._array: ndarray | None = array

    def take(self) -> ndarray:
        """The array."""
        array, self._array = self._array, None
        if array is None:
            raise ValueError("A DLPack tensor object cannot be consumed multiple times")
        return array


def _dlpack(
    self: ndarray, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
) -> Capsule:
    """``ndarray.__dlpack__``: the consumer's stream, 1 or None for the default one, waits for the current one."""
    if stream != -1:
        consumer = stream_at(0 if stream in (None, 1) else stream)
        current = state().current_stream()
        if consumer is not current:
            consumer.wait_event(current.record())
    return Capsule(view_of(self._a, self))


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> ndarray:
    """``cupy.from_dlpack``: the exporter makes the current stream wait."""
    kind, number = array.__dlpack_device__()
    if kind not in (2, 13):
        raise RuntimeError("CuPy is built against CUDA, different from the backend that backs the incoming tensor")
    with Device(number):
        pointer = state().current_stream().ptr
        taken = array.__dlpack__(stream=pointer or 1).take()
    return view_of(taken._a, taken)


def from_interface(array: Any) -> ndarray:
    """``cupy.asarray`` of an array of another library: the host waits for the stream that the interface names."""
    facts = array.__cuda_array_interface__
    if facts.get("stream") is not None:
        stream = stream_at(0 if facts["stream"] == 1 else facts["stream"])
        host_waits("array interface")
        merge(state().host_clock(), stream.clock)
    assert facts.get("strides") is None, "the stand-in takes contiguous memory"
    values, memory = array_at(facts["data"][0], math.prod(facts["shape"]), np.dtype(facts["typestr"]))
    made = object.__new__(ndarray)
    made._a, made._memory = values.reshape(facts["shape"]), memory
    return made


def _interface(self: ndarray) -> dict[str, Any]:
    """``ndarray.__cuda_array_interface__``, which names the current stream."""
    return {
        "shape": self.shape,
        "typestr": self.dtype.str,
        "data": (self.data.ptr, False),
        "version": 3,
        "strides": None if self.flags.c_contiguous else self.strides,
        "stream": state().current_stream().ptr or 1,
    }


ndarray.__dlpack__ = _dlpack
ndarray.__dlpack_device__ = lambda self: (2, self._memory.device)
ndarray.__cuda_array_interface__ = property(_interface)
