"""The real CuPy and NCCL wheels: what they can do without a GPU, and that the stand-in offers nothing they lack."""

import inspect
import re
import subprocess
import sys

import pytest

import ddpflow
from ddpflow import backends, cuda
from ddpflow.comm.backends.nccl_communicator import load_nccl
from ddpflow.comm.backends.nccl_errors import error_text
from ddpflow.comm.backends.nccl_meeting import encode_id
from ddpflow.comm.registry import load_backend
from ddpflow.errors import BackendUnavailable, DeviceError
from ddpflow.utils.data import DataLoader
from tests.conftest import why_no_cuda
from tests.doubles.memory import NAMES

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install 'ddpflow[cuda13]'")
nccl, why_no_nccl = load_nccl()
needs_nccl = pytest.mark.skipif(nccl is None, reason=str(why_no_nccl))
without_gpu = pytest.mark.skipif(why_no_cuda() is None, reason="this machine has a GPU")


def test_ddpflow_does_not_load_it():
    """`import ddpflow` loads no CuPy where it is installed."""
    script = "import sys, ddpflow; assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_stand_in_offers_nothing_more():
    """Every name and keyword of the stand-in is one of the real CuPy's."""
    missing = []
    for name in NAMES["functions"]:
        place = cupy
        for part in name.split("."):
            place = getattr(place, part, None)
        missing += [name] if place is None else []
    missing += [f"ndarray.{name}" for name in NAMES["methods"] if not hasattr(cupy.ndarray, name)]
    missing += [f"Generator.{name}" for name in NAMES["generator"] if not hasattr(cupy.random.Generator, name)]
    missing += [f"ufunc.{name}" for name in NAMES["ufunc_methods"] if not hasattr(cupy.ufunc, name)]
    for owner, names in {
        cupy.cuda.Stream: "wait_event record done synchronize use null ptds is_non_blocking priority begin_capture "
        "end_capture is_capturing",
        cupy.cuda.Graph: "launch",
        cupy.cuda.MemoryPool: "malloc",
        cupy.cuda.Event: "record done synchronize",
        cupy.cuda.Device: "use synchronize compute_capability pci_bus_id mem_info cublas_handle",
        cupy.cuda: "get_current_stream get_elapsed_time is_available runtime alloc_pinned_memory using_allocator",
        cupy.cuda.runtime: "getDeviceCount getDevice getDeviceProperties runtimeGetVersion CUDARuntimeError "
        "pointerGetAttributes memoryTypeHost streamCaptureModeGlobal streamCaptureModeThreadLocal "
        "streamCaptureModeRelaxed",
        cupy._core: "set_compute_type",
        cupy.ndarray: "__dlpack__ __dlpack_device__ __cuda_array_interface__",
    }.items():
        missing += [f"{owner.__name__}.{name}" for name in names.split() if not hasattr(owner, name)]
    assert missing == []


def test_numbers_that_are_given_by_hand():
    """What CuPy has no public name for, or one that may move, is still what we took it for."""
    from cupy._core import _routines_linalg

    from ddpflow import precision

    assert precision._DEFAULT_WAY == _routines_linalg.COMPUTE_TYPE_DEFAULT
    assert precision._TF32_WAY == _routines_linalg.COMPUTE_TYPE_TF32
    assert cupy.cuda.runtime.memoryTypeHost == 1


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (cupy.asarray, "blocking"),
        (cupy.from_dlpack, "device copy"),
        (cupy.ndarray.get, "out blocking"),
        (cupy.ndarray.__dlpack__, "stream max_version dl_device copy"),
        (cupy.cuda.Stream.begin_capture, "mode"),
    ],
)
def test_keywords(function, names):
    """Keywords that we pass, or that others pass to what we hand on, are there."""
    try:
        found = set(inspect.signature(function).parameters)
    except ValueError:  # a compiled function tells them in the first line of its text
        found = set(re.findall(r"\w+", function.__doc__.splitlines()[0]))
    assert set(names.split()) <= found


@needs_nccl
def test_nccl_version_and_unique_id():
    """NCCL answers without a GPU; its unique id goes through our codec unchanged."""
    assert nccl.get_version() >= 21800
    unique_id = nccl.get_unique_id()
    assert encode_id(unique_id) == bytes(value & 0xFF for value in unique_id)
    assert len(encode_id(unique_id)) == 128 and encode_id(nccl.get_unique_id()) != encode_id(unique_id)


@needs_nccl
def test_nccl_numbers():
    """The numbers that we hand to NCCL are those that CuPy has names for."""
    names = {"INT8": 0, "UINT8": 1, "INT32": 2, "UINT32": 3, "INT64": 4, "UINT64": 5, "FLOAT16": 6, "FLOAT32": 7}
    names |= {"FLOAT64": 8, "BFLOAT16": 9, "SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3, "AVG": 4}
    wrong = {name: number for name, number in names.items() if getattr(nccl, f"NCCL_{name}", number) != number}
    assert wrong == {}


@needs_nccl
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("allReduce", "sendbuf recvbuf count datatype op stream"),
        ("reduce", "sendbuf recvbuf count datatype op root stream"),
        ("broadcast", "sendbuff recvbuff count datatype root stream"),
        ("allGather", "sendbuf recvbuf count datatype stream"),
        ("reduceScatter", "sendbuf recvbuf recvcount datatype op stream"),
        ("send", "sendbuf count datatype peer stream"),
        ("recv", "recvbuf count datatype peer stream"),
        ("abort", ""),
        ("destroy", ""),
        ("check_async_error", ""),
    ],
)
def test_nccl_methods(method, arguments):
    """The communicator's methods take what we and the stand-in take, in this order."""
    text = getattr(nccl.NcclCommunicator, method).__doc__.splitlines()[0]
    assert [part.split()[-1] for part in text.partition("(")[2].rstrip(")").split(", ")[1:]] == arguments.split()


@needs_nccl
def test_nccl_errors():
    """A code that this CuPy knows, and one that it does not, are both named by our table."""
    assert error_text(nccl.NcclError(3)).startswith("internal error (3)")
    for code in (6, 7):
        try:
            raise nccl.NcclError(code)
        except (nccl.NcclError, KeyError) as error:
            assert error_text(error).startswith({6: "remote error (6)", 7: "in progress (7)"}[code])


@without_gpu
def test_errors_without_a_gpu():
    """A user who has CuPy but no GPU is told so by everything that needs one, and nothing else breaks."""
    assert not cuda.is_available() and cuda.device_count() == 0
    for call in (lambda: ddpflow.ones(2).cuda(), lambda: ddpflow.zeros(2, device="cuda"), cuda.current_device):
        with pytest.raises(DeviceError, match="GPU"):
            call()
    with pytest.raises(BackendUnavailable, match="backend 'nccl' is not available: CuPy is installed but"):
        load_backend("nccl")
    assert (ddpflow.ones(2) + 1).tolist() == [2, 2]


@without_gpu
def test_gpu_options_without_a_gpu():
    """What scripts set for a GPU is taken on a machine without one, and CUDA graphs say what is missing."""
    x = ddpflow.arange(3.0)
    assert x.pin_memory() is x and not x.is_pinned() and not ddpflow.ones(2, pin_memory=True).is_pinned()
    (batch,) = DataLoader([1.0, 2.0], 2, pin_memory=True)
    assert batch.tolist() == [1, 2]
    try:
        backends.cuda.matmul.allow_tf32 = True
    finally:
        backends.cuda.matmul.allow_tf32 = False
    assert cuda.is_current_stream_capturing() is False
    for call in (cuda.CUDAGraph, cuda.graph_pool_handle):
        with pytest.raises(DeviceError, match="GPU"):
            call()
