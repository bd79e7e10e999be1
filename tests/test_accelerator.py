"""The accelerator of a machine without one (with one: tests/gpu)."""

import pytest

from ddpflow import accelerator, cuda
from ddpflow.errors import DeviceError


def test_without_one(monkeypatch):
    """There is none, and what needs one says so."""
    monkeypatch.setattr(cuda, "usable_cupy", lambda: None)
    assert not accelerator.is_available() and accelerator.device_count() == 0
    assert accelerator.current_accelerator() is None
    for call in (
        accelerator.current_device_index,
        accelerator.synchronize,
        lambda: accelerator.set_device_index(0),
        lambda: accelerator.set_device_idx(0),
    ):
        with pytest.raises(DeviceError):
            call()
