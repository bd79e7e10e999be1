"""The stand-in itself: it refuses what CuPy refuses, and finds the races it is there to find. It is no GPU."""

import importlib
import threading

import numpy as np
import pytest

from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import StreamOrderError, state


@pytest.fixture
def cupy():
    """The stand-in with two devices."""
    with installed(devices=2):
        yield importlib.import_module("cupy")


def test_is_removed_afterwards():
    """Outside the block there is no trace of it."""
    with installed():
        inside = importlib.import_module("cupy")
        assert inside.is_stand_in and not issubclass(inside.ndarray, np.ndarray)
    import sys

    assert sys.modules.get("cupy") is not inside


def test_refuses_what_cupy_refuses(cupy):
    """No silent conversion, no mixing, no names or keywords that CuPy lacks."""
    a = cupy.arange(6.0).reshape(2, 3)
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(a)
    for wrong in (lambda: a + np.ones(3), lambda: np.ones(3) * a, lambda: cupy.maximum(a, np.ones(3))):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError):
        a[...] = np.ones(3)
    with pytest.raises(IndexError):
        a[np.array([0, 1])]
    with pytest.raises(TypeError, match="where"):
        cupy.sum(a, where=a > 0)
    assert not hasattr(cupy, "vecdot") and not hasattr(a, "setfield") and not hasattr(a.flags, "writeable")
    assert not hasattr(cupy.random.default_rng(1), "permutation")


def test_accepts_what_cupy_accepts(cupy):
    """Python and NumPy numbers mix with arrays; NumPy's functions go to CuPy's; copies in and out are explicit."""
    a = cupy.asarray(np.array([1.0, 4.0], np.float32))
    b = np.sqrt(a) * np.float32(2) + 1
    assert isinstance(b, cupy.ndarray) and b.dtype == np.float32
    np.testing.assert_array_equal(cupy.asnumpy(b), [3, 5])
    total = a.sum()
    assert isinstance(total, cupy.ndarray) and total.shape == ()
    assert float(total) == 5 and a.max().item() == 4
    view = a[1:]
    view[...] = 7
    assert a.get().tolist() == [1, 7] and view.data.ptr == a.data.ptr + 4


def test_counts_what_the_host_waits_for(cupy):
    """Reading a value, a mask index and `nonzero` make the host wait; arithmetic does not."""
    a = cupy.arange(4.0)
    waited = state().syncs
    b = a * 2 + a.sum()
    assert waited == []
    assert b.max() > 3 and a[a > 1].size == 2 and cupy.nonzero(a)
    assert waited == ["bool", "boolean index", "nonzero"]


def test_two_streams_need_an_event(cupy):
    """Reading what another stream writes, or writing what it still reads, is an error without an event between."""
    side = cupy.cuda.Stream(non_blocking=True)
    main = cupy.cuda.get_current_stream()
    a = cupy.arange(4.0)
    with side, pytest.raises(StreamOrderError, match="without waiting"):
        a + 1
    side.wait_event(main.record())
    with side:
        b = a + 1
    with pytest.raises(StreamOrderError):
        b * 2
    with pytest.raises(StreamOrderError, match="still reads"):
        a[...] = 0
    main.wait_event(side.record())
    a[...] = b
    main.synchronize()


def test_the_default_stream_waits_for_blocking_ones(cupy):
    """A stream made without ``non_blocking`` and the default stream wait for each other, as in CUDA."""
    side = cupy.cuda.Stream()
    a = cupy.arange(4.0)
    with side:
        b = a + 1
    assert float((a + b).sum()) == 16


def test_memory_freed_while_another_stream_uses_it():
    """The pool of a stream may hand freed memory out again at once, so freeing too early is an error."""
    with pytest.raises(AssertionError, match="freed while"):
        with installed():
            cupy = importlib.import_module("cupy")
            side = cupy.cuda.Stream(non_blocking=True)
            a = cupy.arange(4.0)
            side.wait_event(cupy.cuda.get_current_stream().record())
            with side:
                b = a + 1
            del a
            side.synchronize()
            del b


def test_devices_are_apart(cupy):
    """An array is used from its own device only, and a device that is not there is an error."""
    a = cupy.arange(4.0)
    with cupy.cuda.Device(1):
        b = cupy.arange(4.0)
        assert b.device.id == 1
        with pytest.raises(ValueError, match="current device"):
            a + 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="ordinal"):
        cupy.cuda.Device(2).use()


def ranks(body, n=2):
    """Run body(rank) in a thread for each rank; raises what a thread raised."""
    errors = []

    def run(rank):
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(r,)) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    if errors:
        raise errors[0]


def test_nccl_between_threads(cupy):
    """A collective is asynchronous: the result is there once the stream is waited for, not before."""
    nccl = importlib.import_module("cupy.cuda.nccl")
    uid = nccl.get_unique_id()

    def body(rank):
        cupy.cuda.Device(rank).use()
        comm = nccl.NcclCommunicator(2, uid, rank)
        a = cupy.arange(3, dtype=np.float32) + rank
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.wait_event(cupy.cuda.get_current_stream().record())
        comm.allReduce(a.data.ptr, a.data.ptr, 3, 7, 4, stream.ptr)
        with pytest.raises(StreamOrderError):
            a + 1
        cupy.cuda.get_current_stream().wait_event(stream.record())
        assert a.get().tolist() == [0.5, 1.5, 2.5]
        comm.destroy()

    ranks(body)
    assert state().violations == []


def test_nccl_sees_ranks_that_differ(cupy):
    """Ranks that launch different operations never get a result, and the stand-in says what they launched."""
    nccl = importlib.import_module("cupy.cuda.nccl")
    uid = nccl.get_unique_id()

    def body(rank):
        cupy.cuda.Device(rank).use()
        comm = nccl.NcclCommunicator(2, uid, rank)
        a = cupy.arange(4, dtype=np.float32)
        comm.allReduce(a.data.ptr, a.data.ptr, 3 + rank, 7, 0, 0)
        event = cupy.cuda.get_current_stream().record()
        assert not event.done
        comm.abort()
        assert event.done

    ranks(body)
    assert len(state().violations) == 1 and "differs" in state().violations.pop()
