"""Streams, events and the current device, on the CuPy stand-in."""

import pytest

import ddpflow
from ddpflow import cuda
from ddpflow.device import _chosen
from ddpflow.errors import DeviceError
from tests.doubles.fake_cupy import installed


@pytest.fixture
def gpus(monkeypatch):
    """A machine with two pretended GPUs, in a process that has chosen none."""
    monkeypatch.setattr(_chosen, "done", False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with installed(devices=2) as state:
        yield state


def test_the_first_device_is_that_of_the_local_rank(gpus, monkeypatch):
    """LOCAL_RANK chooses the device before any CUDA tensor is made, round and round; set_device chooses another."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert ddpflow.ones(2, device="cuda").device == ddpflow.device("cuda:1")
    assert cuda.current_device() == 1
    cuda.set_device(0)
    assert ddpflow.ones(2).cuda().device == ddpflow.device("cuda:0") and cuda.current_device() == 0


def test_a_device_of_its_own_choice_stays(gpus, monkeypatch):
    """Who has set the device is not overruled by LOCAL_RANK."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    cuda.set_device(0)
    assert ddpflow.zeros(1, device="cuda").device.index == 0
    with pytest.raises(DeviceError, match="no GPU 2; this machine has 2"):
        ddpflow.zeros(1).to("cuda:2")


def test_between_devices(gpus):
    """A tensor moves from GPU to GPU, and the streams of both wait for each other."""
    x = ddpflow.arange(3.0).to("cuda:1")
    y = x.to("cuda:0")
    del x
    assert y.device.index == 0 and y.tolist() == [0, 1, 2] and y.cpu().device.type == "cpu"


def test_a_stream_beside_the_default_one(gpus):
    """wait_stream orders two streams; events can be asked and timed."""
    side = cuda.Stream()
    x = ddpflow.arange(4.0, device="cuda")
    side.wait_stream(cuda.current_stream())
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with cuda.stream(side):
        assert cuda.current_stream() == side != cuda.default_stream()
        start.record()
        y = x * 2
        end.record()
    end.wait()
    assert (x + y).tolist() == [0, 3, 6, 9]
    assert end.query() and start.elapsed_time(end) >= 0 and side.query()
    side.record_event().synchronize()
    side.synchronize()
    with cuda.stream(None):
        assert cuda.current_stream() == cuda.default_stream()
    cuda.set_stream(side)
    assert cuda.current_stream().cuda_stream == side.cuda_stream
    cuda.set_stream(cuda.default_stream())
    assert {cuda.default_stream(), cuda.current_stream()} == {cuda.default_stream()}


def test_questions(gpus):
    """Number, memory and abilities of the devices."""
    assert cuda.is_available() and cuda.device_count() == 2 and cuda.is_bf16_supported()
    assert cuda.get_device_capability() == (9, 0)
    before = cuda.memory_allocated()
    x = ddpflow.zeros(256, device="cuda")
    assert cuda.memory_allocated() - before == x.nbytes and cuda.memory_allocated(1) == 0
    free, total = cuda.mem_get_info()
    assert 0 < free <= total
    with cuda.device(1):
        assert cuda.current_device() == 1
    assert cuda.current_device() == 0
    cuda.synchronize()
    assert repr(cuda.Stream(1)).startswith("<ddpflow.cuda.Stream device=cuda:1")


def test_seeds(gpus):
    """manual_seed makes a GPU's random numbers repeatable."""
    cuda.manual_seed(5)
    first = ddpflow.rand(3, device="cuda").tolist()
    cuda.manual_seed_all(5)
    assert ddpflow.rand(3, device="cuda").tolist() == first
