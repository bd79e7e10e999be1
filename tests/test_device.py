"""Devices and the doors through which raw arrays pass."""

import numpy as np
import pytest

import ddpflow
from ddpflow.device import array_module, as_device, device_of, mark_modified, move, unwrap
from ddpflow.errors import DeviceError


def test_devices():
    """Written as text, as text and number, as a number; equal ones are equal."""
    assert ddpflow.device("cuda:1") == ddpflow.device("cuda", 1) == ddpflow.device(1)
    assert str(ddpflow.device("cuda:1")) == "cuda:1" and str(ddpflow.device("cpu")) == "cpu"
    assert repr(ddpflow.device("cpu")) == "device(type='cpu')"
    assert repr(ddpflow.device("cuda:1")) == "device(type='cuda', index=1)"
    assert len({ddpflow.device("cpu"), ddpflow.device("cpu"), ddpflow.device("cuda")}) == 2
    assert as_device(None) == as_device(ddpflow.device("cpu")) == ddpflow.device("cpu")
    for bad in ("tpu", "cuda:x", "cpu:"):
        with pytest.raises(DeviceError):
            ddpflow.device(bad)


def test_arrays_on_the_cpu():
    """NumPy's arrays are at home on the CPU and are not copied to it."""
    array = np.ones(2)
    assert array_module(array) is np and device_of(array) == ddpflow.device("cpu")
    assert move(array, ddpflow.device("cpu")) is array
    assert ddpflow.zeros(1).device == ddpflow.device("cpu") and not ddpflow.zeros(1).is_cuda


def test_a_gpu_that_is_not_there():
    """Asking for one says what is missing."""
    if ddpflow.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="CuPy|GPU"):
        ddpflow.zeros(2).cuda()
    with pytest.raises(DeviceError):
        ddpflow.zeros(2, device="cuda")


def test_doors():
    """Tensors are unwrapped, other things pass; writes from outside are counted."""
    x = ddpflow.zeros(2)
    assert unwrap(x) is x.array and unwrap(3) == 3 and unwrap(x.array) is x.array
    mark_modified(x)
    mark_modified(x.array)
    assert x._version == 1
