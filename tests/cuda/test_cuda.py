"""Asking for GPUs on a machine without CuPy (with a GPU: tests/gpu)."""

import sys

import pytest

import ddpflow
from ddpflow import cuda
from ddpflow.device import required_cupy, usable_cupy
from ddpflow.errors import DeviceError


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine on which CuPy finds nothing."""
    monkeypatch.setattr(cuda, "usable_cupy", lambda: None)


def test_without_a_gpu(no_gpu):
    """Questions are answered, seeds are taken, and what needs a GPU says what is missing."""
    assert not cuda.is_available() and not cuda.is_initialized() and cuda.device_count() == 0
    assert not cuda.is_bf16_supported() and cuda.memory_allocated() == cuda.max_memory_allocated() == 0
    cuda.manual_seed(3)
    first = ddpflow.rand(2)
    cuda.manual_seed_all(3)
    assert ddpflow.equal(first, ddpflow.rand(2))
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    for call in (cuda.current_device, cuda.synchronize, cuda.get_device_name, lambda: cuda.device(0).__enter__()):
        with pytest.raises(DeviceError, match="GPU"):
            call()
    with pytest.raises(DeviceError, match="has 0"):
        cuda.set_device(0)
    with pytest.raises(DeviceError, match="no GPU"):
        cuda.set_device("cpu")


def test_asking_without_cupy(monkeypatch):
    """Where CuPy is not installed, the question is answered, and what needs it says how to install it."""
    monkeypatch.setitem(sys.modules, "cupy", None)  # the import system's way to say: cannot be imported
    assert usable_cupy() is None
    with pytest.raises(DeviceError, match="pip install"):
        required_cupy()
