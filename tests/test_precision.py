"""TF32 on the CuPy stand-in: what cuBLAS's handles and CuPy are told, when, and that nobody is told without need."""

import threading

import pytest

import ddpflow
from ddpflow import backends, cuda, precision
from ddpflow.errors import ValueRangeError
from tests.doubles.fake_cupy import installed

FLOAT32, TF32 = (0, 1), (3, 7)  # the handle's mode, and CuPy's number


@pytest.fixture
def gpu(monkeypatch):
    """A machine with two pretended GPUs, of which nobody has been told anything."""
    monkeypatch.setattr(precision, "_told", False)
    monkeypatch.setattr(precision, "_handles", precision._Handles())
    with installed(2) as machine:
        yield machine
        backends.cuda.matmul.allow_tf32 = False


def told(machine, device=0):
    """What this thread's handle of a device, and CuPy, compute float32 in."""
    return machine.math_modes.get((threading.get_ident(), device)), machine.compute_types.get("float32")


def test_nobody_is_told_without_need(gpu):
    """As long as nobody asks for TF32, no cuBLAS handle is made for it."""
    ddpflow.zeros(2).cuda()
    backends.cuda.matmul.allow_tf32 = False
    assert gpu.math_modes == {} and gpu.compute_types == {}


def test_on_and_off(gpu):
    """The switch reaches the handle in use at once, both ways."""
    ddpflow.zeros(2).cuda()
    ddpflow.set_float32_matmul_precision("high")
    assert told(gpu) == TF32 and len(gpu.math_modes) == 1
    backends.cuda.matmul.allow_tf32 = False
    assert told(gpu) == FLOAT32


def test_chosen_before_the_gpu_is_used(gpu):
    """A choice made before the first GPU tensor holds from that tensor on."""
    from ddpflow.device import _chosen

    _chosen.done = False
    backends.cuda.matmul.allow_tf32 = True
    assert gpu.math_modes == {}
    ddpflow.zeros(2, device="cuda")
    assert told(gpu) == TF32


def test_other_threads_and_gpus(gpu):
    """Each thread has a handle for each GPU; it follows when the thread turns to that GPU, and not at every tensor."""
    backends.cuda.matmul.allow_tf32 = True
    ddpflow.zeros(2).cuda()
    seen = []

    def other():
        ddpflow.zeros(2).cuda()
        with cuda.device(1):
            seen.append((told(gpu), told(gpu, 1)))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [(TF32, TF32)] and told(gpu) == TF32 and told(gpu, 1)[0] is None
    cuda.set_device(1)
    assert told(gpu, 1) == TF32 and len(gpu.math_modes) == 4
    gpu.math_modes.clear()
    ddpflow.zeros(2).cuda()
    assert gpu.math_modes == {}
    cuda.set_device(0)


def test_a_gpu_without_tf32(gpu):
    """A GPU that is too old for TF32 is told nothing, and nobody is warned."""
    gpu.capability = "75"
    backends.cuda.matmul.allow_tf32 = True
    ddpflow.zeros(2).cuda()
    assert gpu.math_modes == {} and gpu.compute_types == {}


def test_no_such_precision():
    """A precision that does not exist is refused and changes nothing."""
    with pytest.raises(ValueRangeError, match="highest, high or medium"):
        precision.choose_precision("low")
    assert precision.chosen_precision() == "highest"
