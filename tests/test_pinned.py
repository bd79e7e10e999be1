"""Pinned memory and asynchronous copies, on the CuPy stand-in; on a machine without a GPU nothing is pinned."""

import gc

import numpy as np
import pytest

import ddpflow
from ddpflow import cuda, nn, pinned
from ddpflow.errors import DeviceError
from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import state


@pytest.fixture
def gpu():
    """A machine with a pretended GPU; what the copies of one test keep alive is let go of at its end."""
    with installed(2) as machine:
        yield machine
        machine.held = False
        for index in range(2):
            cuda.synchronize(index)
        pinned._in_flight.clear()


def test_pinning(gpu):
    """A pinned copy is equal and elsewhere, its views are pinned, and a pinned tensor is not pinned again."""
    x = ddpflow.arange(6.0).reshape(2, 3)
    y = x.pin_memory()
    assert y.is_pinned() and not x.is_pinned() and y.tolist() == x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.pin_memory() is y and y[1:].is_pinned() and not y.cuda().is_pinned()
    assert ddpflow.empty(3, pin_memory=True).is_pinned() and ddpflow.rand(3, pin_memory=True).is_pinned()
    assert ddpflow.tensor([], pin_memory=True).shape == (0,)
    with pytest.raises(DeviceError, match="main memory"):
        x.cuda().pin_memory()
    with pytest.raises(DeviceError, match="main memory"):
        ddpflow.zeros(3, device="cuda", pin_memory=True)


def test_without_a_gpu():
    """There is nothing to gain: tensors stay as they are, without a word."""
    if cuda.is_available():
        pytest.skip("there is a GPU")
    x = ddpflow.arange(6.0)
    assert x.pin_memory() is x and not x.is_pinned() and not ddpflow.ones(2, pin_memory=True).is_pinned()
    assert x.to("cpu", non_blocking=True) is x
    assert ddpflow.zeros(6).copy_(x, non_blocking=True).tolist() == [0, 1, 2, 3, 4, 5]


def test_to_the_gpu(gpu):
    """From pinned memory only a copy that is not to block lets the host go on; from other memory every copy does."""
    x = ddpflow.arange(4.0)
    there = x.cuda()
    x += 1  # CuPy copied it into a buffer of its own first
    assert state().syncs == []
    y = x.pin_memory()
    for send in (
        lambda: y.to("cuda", non_blocking=True),
        lambda: y.cuda(non_blocking=True),
        lambda: y.to("cuda", True),
        lambda: y.type("torch.cuda.FloatTensor", non_blocking=True),
        lambda: ddpflow.empty(4, device="cuda").copy_(y, non_blocking=True),
    ):
        sent = send()
        assert state().syncs == []
        cuda.synchronize()
        state().syncs.clear()
        assert sent.cpu().tolist() == [1, 2, 3, 4]
        state().syncs.clear()
    y.cuda()
    assert state().syncs == ["stream.synchronize"]
    y += 1
    assert there.cpu().tolist() == [0, 1, 2, 3]


def test_the_source_is_kept(gpu):
    """Pinned memory is not handed out again while a GPU copies from it, and is afterwards."""
    gpu.held = True
    ddpflow.arange(4.0).pin_memory().to("cuda", non_blocking=True)
    gc.collect()
    assert len(gpu.pinned) == 1 and len(pinned._in_flight[0]) == 1
    gpu.held = False
    ddpflow.arange(5.0).pin_memory().to("cuda", non_blocking=True)
    assert [array.size for _, array in pinned._in_flight[0]] == [5] and len(gpu.pinned) == 1
    cuda.synchronize()


def test_the_double_sees_a_source_that_changes():
    """Writing to the source before the copy has ended is an error of the user, which the stand-in finds."""
    with pytest.raises(AssertionError, match="changed pinned memory"), installed():
        x = ddpflow.arange(4.0).pin_memory()
        x.to("cuda", non_blocking=True)
        x += 1
        cuda.synchronize()


def test_the_double_sees_memory_freed_too_early():
    """Memory that goes while a GPU copies is found: nothing in these tests passes by luck."""
    with pytest.raises(AssertionError, match="freed while a GPU copies"), installed():
        import cupy

        host = pinned.empty_pinned(cupy, (3,), np.float32)
        cupy.arange(3, dtype=np.float32).get(out=host, blocking=False)
        del host
        gc.collect()


def test_to_main_memory(gpu):
    """A copy that is not to block gives pinned memory that holds nothing before a synchronisation."""
    x = (ddpflow.arange(6.0).reshape(2, 3) * 2).cuda()
    y = x.t().to("cpu", non_blocking=True)
    assert y.is_pinned() and state().syncs == [] and np.isnan(y.numpy()).all()
    event = cuda.Event()
    event.record()
    event.synchronize()
    assert y.tolist() == [[0, 6], [2, 8], [4, 10]]
    gpu.held = True
    x.to("cpu", non_blocking=True)
    gc.collect()  # the result is dropped, but the GPU still writes there
    assert gpu.violations == []
    gpu.held = False
    assert not x.cpu().is_pinned()


def test_into_a_pinned_tensor(gpu):
    """``copy_`` fills pinned memory of its shape and dtype behind the host's back, and waits for all other targets."""
    x = ddpflow.arange(4.0).cuda()
    y = ddpflow.empty(4, pin_memory=True)
    version = y._version
    assert y.copy_(x, non_blocking=True) is y and state().syncs == [] and y._version == version + 1
    assert np.isnan(y.numpy()).all()
    cuda.current_stream().synchronize()
    assert y.tolist() == [0, 1, 2, 3]
    for target in (ddpflow.empty(4), ddpflow.empty(2, 4, pin_memory=True), ddpflow.empty(4, pin_memory=True).double()):
        assert target.copy_(x, non_blocking=True).reshape(-1)[-4:].tolist() == [0, 1, 2, 3]
    weight = ddpflow.arange(4.0).cuda().requires_grad_()
    assert (y * 1).copy_(weight, non_blocking=True).requires_grad


def test_gradients_pass(gpu):
    """A copy that does not block is an operation like the other."""
    x = ddpflow.arange(3.0).pin_memory().requires_grad_()
    (x.to("cuda", non_blocking=True) ** 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]


def test_modules_move_with_it(gpu):
    """A module's parameters are cast before they move, as they are not there yet afterwards."""
    model = nn.Linear(2, 1).cuda()
    weight = model.weight.detach().cpu().double().tolist()
    model.to("cpu", dtype=ddpflow.float64, non_blocking=True)
    cuda.synchronize()
    assert model.weight.dtype == ddpflow.float64 and model.weight.tolist() == weight


def test_each_gpu_is_asked_from_itself(gpu):
    """Copies of two GPUs are looked after apart; asking about another GPU's would make a context there."""
    x = ddpflow.arange(3.0).pin_memory()
    for place in ("cuda:0", "cuda:1", "cuda:0", "cuda:1"):
        assert x.to(place, non_blocking=True).device.index == int(place[-1])
    assert sorted(pinned._in_flight) == [0, 1]
