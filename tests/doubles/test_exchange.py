"""Memory shared with other libraries on the CuPy stand-in: no copy, the right order of streams, and who waits."""

import numpy as np
import pytest

import ddpflow
from ddpflow import cuda
from ddpflow.errors import AutogradError
from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import StreamOrderError, state


@pytest.fixture
def cupy():
    """A machine with two pretended GPUs."""
    with installed(2):
        import cupy

        yield cupy


class Other:
    """An array of another library, which works on a stream of its own, the GPU it was made on."""

    def __init__(self, cupy, values):
        self._stream = cupy.cuda.Stream(non_blocking=True)
        with self._stream:
            self._array = cupy.asarray(np.array(values, np.float32))
            self._array += 1

    def close(self):
        """Let the stand-in forget the stream's use."""
        self._stream.synchronize()


class WithDlpack(Other):
    """PyTorch and JAX are such."""

    def __dlpack__(self, **kwargs):
        """Exports on its own stream."""
        with self._stream:
            return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        """Where it is."""
        return self._array.__dlpack_device__()


class WithInterface(Other):
    """Numba is such."""

    shape, dtype = (3,), np.dtype(np.float32)

    def __init__(self, cupy, values, names_stream=True):
        super().__init__(cupy, values)
        self._names_stream = names_stream

    @property
    def __cuda_array_interface__(self):
        with self._stream:
            facts = self._array.__cuda_array_interface__
        return facts if self._names_stream else {**facts, "stream": None}


class WithBoth(WithDlpack, WithInterface):
    """CuPy's arrays of another CuPy, and most others."""


@pytest.mark.parametrize("kind", [WithDlpack, WithBoth])
@pytest.mark.parametrize("take", ["from_dlpack", "as_tensor", "asarray", "tensor"])
def test_from_dlpack(cupy, kind, take):
    """Our stream waits for the other library's and the host does not; memory is shared unless a copy was asked for."""
    theirs = kind(cupy, [1, 2, 3])
    ours = getattr(ddpflow, take)(theirs)
    doubled = ours * 2
    assert state().syncs == [] and ours.is_cuda and ours.dtype == ddpflow.float32
    assert (ours.data_ptr() == theirs._array.data.ptr) is (take != "tensor")
    assert doubled.tolist() == [4, 6, 8]
    theirs.close()


def test_from_an_interface(cupy):
    """The host waits for the stream that the interface names; where it names none, the order is the user's."""
    theirs = WithInterface(cupy, [1, 2, 3])
    for take in (ddpflow.as_tensor, ddpflow.Tensor):
        ours = take(theirs)
        assert state().syncs.pop() == "array interface" and ours.data_ptr() == theirs._array.data.ptr
        assert (ours * 2).tolist() == [4, 6, 8]
        state().syncs.clear()
    nameless = WithInterface(cupy, [1, 2, 3], names_stream=False)
    ours = ddpflow.as_tensor(nameless)
    with pytest.raises(StreamOrderError):
        ours * 2
    assert state().syncs == []
    for other in (theirs, nameless):
        other.close()


def test_what_we_give(cupy):
    """The consumer's stream waits for ours; both sides see each other's writes."""
    ours = ddpflow.arange(3.0).cuda()
    side = cupy.cuda.Stream(non_blocking=True)
    assert ours.__dlpack_device__() == (2, 0) and ddpflow.arange(3.0).to("cuda:1").__dlpack_device__() == (2, 1)
    capsule = ours.__dlpack__(stream=side.ptr)
    with side:
        theirs = capsule.take()
        theirs += 1
    cuda.current_stream().cupy_stream.wait_event(side.record())
    assert ours.tolist() == [1, 2, 3] and theirs.data.ptr == ours.data_ptr()
    capsule = ours.__dlpack__(stream=1)
    capsule.take()
    with pytest.raises(ValueError, match="multiple times"):
        capsule.take()
    facts = ours.__cuda_array_interface__
    assert facts["data"] == (ours.data_ptr(), False) and facts["typestr"] == "<f4" and facts["stream"] == 1
    with cuda.stream(cuda.Stream()):
        assert ours.__cuda_array_interface__["stream"] == cuda.current_stream().cuda_stream
    assert not hasattr(ddpflow.ones(2), "__cuda_array_interface__")


def test_gradients_do_not_leave(cupy):
    """Another library would not record; a tensor that requires grad is refused, as in PyTorch."""
    ours = ddpflow.arange(3.0).cuda().requires_grad_()
    with pytest.raises(AutogradError, match="detach"):
        ours.__dlpack__()
    with pytest.raises(AutogradError, match="detach"):
        _ = ours.__cuda_array_interface__
    assert ours.detach().__cuda_array_interface__["shape"] == (3,)


def test_gpu_memory_is_not_taken_for_the_cpus(cupy):
    """CuPy takes memory of GPUs only; ours of the CPU goes to NumPy."""
    assert not ddpflow.from_dlpack(np.arange(3.0)).is_cuda
    with pytest.raises(RuntimeError, match="different"):
        cupy.from_dlpack(np.arange(3.0))
