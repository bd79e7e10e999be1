"""The emulation of CUDA kernels: it computes what they say, and finds what a GPU would hang on or read wrongly."""

import importlib

import numpy as np
import pytest

from ddpflow.dtype import as_numpy
from tests.doubles.fake_cupy import installed
from tests.doubles.raw_kernels import needs_compiler
from tests.doubles.timeline import StreamOrderError, state

pytestmark = needs_compiler

CODE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef __half T;

extern "C" __global__ void reverse(const float* x, float* y, long long n) {
    __shared__ float room[64];
    room[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = room[63 - threadIdx.x];
}

extern "C" __global__ void forgotten(const float* x, float* y, long long n) {
    __shared__ float room[64];
    room[threadIdx.x] = x[threadIdx.x];
    y[blockIdx.x * 64 + threadIdx.x] = room[63 - threadIdx.x];
}

extern "C" __global__ void warp_sum(const double* x, double* y) {
    double value = x[threadIdx.x];
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    y[threadIdx.x] = value;
}

extern "C" __global__ void divided(float* y, long long barrier) {
    if (threadIdx.x < 40) {
        if (barrier) __syncthreads();
        else y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    }
}

extern "C" __global__ void beyond(float* y, long long at) {
    if (threadIdx.x == 0) y[at] = 1;
}

extern "C" __global__ void sly(const float* x) {
    if (threadIdx.x == 0) ((float*)x)[0] = 1;
}

extern "C" __global__ void widen(const T* x, const __nv_bfloat16* z, float* y, float* w) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = (float)x[i];
    w[i] = (float)z[i];
}

extern "C" __global__ void narrow(const float* x, T* y, __nv_bfloat16* w, double scale, bool negative) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const float value = x[i] * (float)scale;
    y[i] = (T)(negative ? -value : value);
    w[i] = (__nv_bfloat16)(negative ? -value : value);
}

extern "C" __global__ void scatter(float* const* y, const float* const* x) {
    y[blockIdx.x][threadIdx.x] += x[blockIdx.x][threadIdx.x];
}
"""


@pytest.fixture
def cupy():
    """The stand-in with two devices."""
    with installed(devices=2):
        yield importlib.import_module("cupy")


@pytest.fixture
def kernel(cupy):
    """A kernel by its name."""
    return cupy.RawModule(code=CODE).get_function


def test_blocks_threads_and_barriers(cupy, kernel):
    """Each block has its own indices and shared memory, and a barrier puts writes before reads."""
    x = np.arange(192, dtype=np.float32)
    y = cupy.empty(192, np.float32)
    kernel("reverse")((3,), (64,), (cupy.asarray(x), y, 192))
    np.testing.assert_array_equal(y.get(), x.reshape(3, 64)[:, ::-1].ravel())
    kernel("forgotten")((3,), (64,), (cupy.asarray(x), y, 192))
    assert (y.get().reshape(3, 64) != x[63::-1]).any(), "a missing barrier was not seen"


def test_shuffles(cupy, kernel):
    """The lanes of each warp exchange values."""
    x = np.arange(64.0)
    y = cupy.empty(64)
    kernel("warp_sum")((1,), (64,), (cupy.asarray(x), y))
    np.testing.assert_array_equal(y.get(), np.repeat(x.reshape(2, 32).sum(1), 32))


def test_threads_that_do_not_come(cupy, kernel):
    """A barrier or a shuffle that some threads do not reach is an error; the next launch works."""
    y = cupy.zeros(64, np.float32)
    for barrier, text in ((1, "barrier was not reached"), (0, "shuffle was not reached")):
        with pytest.raises(AssertionError, match=text):
            kernel("divided")((1,), (64,), (y, barrier))
    kernel("beyond")((1,), (32,), (y, 63))
    assert y.get()[63] == 1


@pytest.mark.parametrize(("at", "text"), [(-1, "before an array"), (64, "behind an array")])
def test_writes_outside(cupy, kernel, at, text):
    """A write outside an array is found."""
    with pytest.raises(AssertionError, match=text):
        kernel("beyond")((1,), (32,), (cupy.zeros(64, np.float32), at))


def test_writes_where_it_may_only_read(cupy, kernel):
    """A kernel that casts ``const`` away is found."""
    with pytest.raises(AssertionError, match="only read"):
        kernel("sly")((1,), (32,), (cupy.zeros(64, np.float32),))


def test_arguments(cupy, kernel):
    """Number and types of the arguments, layout, and the size of the grid have to be right."""
    x, y = cupy.zeros(64, np.float32), cupy.zeros(64, np.float32)
    reverse = kernel("reverse")
    wrong = [(x, y), (x, y, 1.0), (x, y, x), (x, cupy.zeros(64), 64), (x, cupy.zeros(128, np.float32)[::2], 64)]
    for args in [*wrong, (np.zeros(64, np.float32), y, 64), (x, y, True)]:
        with pytest.raises(TypeError, match="reverse"):
            reverse((1,), (64,), args)
    for grid, block in (((0,), (64,)), ((1,), (2048,)), ((1, 70000), (64,)), ((1,), (64, 32)), ((1.0,), (64,))):
        with pytest.raises(ValueError, match="reverse"):
            reverse(grid, block, (x, y, 64))


def test_half_types(cupy, kernel):
    """All 65,536 numbers of both half types become what NumPy makes of them, and rounding goes to the nearest even."""
    bits = np.arange(65536, dtype=np.uint16)
    half, brain = bits.view(np.float16), bits.view(as_numpy("bfloat16"))
    y, w = cupy.empty(65536, np.float32), cupy.empty(65536, np.float32)
    kernel("widen")((256,), (256,), (cupy.asarray(half), cupy.asarray(brain), y, w))
    np.testing.assert_array_equal(y.get(), half.astype(np.float32))
    np.testing.assert_array_equal(w.get(), brain.astype(np.float32))
    rng = np.random.default_rng(0)
    x = np.concatenate([half.astype(np.float32), rng.integers(0, 1 << 32, 65536, dtype=np.uint32).view(np.float32)])
    with np.errstate(invalid="ignore", over="ignore"):
        x[: 1 << 16] *= np.float32(1 + 2**-11)  # halfway between two numbers
        h, b = cupy.empty(x.size, np.float16), cupy.empty(x.size, as_numpy("bfloat16"))
        kernel("narrow")((x.size // 256,), (256,), (cupy.asarray(x), h, b, 0.5, True))
        value = x * np.float32(-0.5)
        np.testing.assert_array_equal(h.get(), value.astype(np.float16))
        found, expected = b.get().astype(np.float32), value.astype(as_numpy("bfloat16")).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


def test_streams_and_devices(cupy, kernel):
    """A launch counts as a use of its arrays on the current stream, also of those that a table names."""
    x, y = cupy.ones(64, np.float32), cupy.zeros(64, np.float32)
    tables = [cupy.asarray([a.data.ptr]) for a in (y, x)]
    main, side = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    before = state().launches
    kernel("scatter")((1,), (64,), tuple(tables))
    assert state().launches == before + 1 and y.get().tolist() == [1] * 64
    side.wait_event(main.record())
    y += 1
    with side, pytest.raises(StreamOrderError):
        kernel("scatter")((1,), (64,), tuple(tables))
    side.wait_event(main.record())
    with side:
        kernel("scatter")((1,), (64,), tuple(tables))
    with pytest.raises(StreamOrderError):
        y + 1
    main.wait_event(side.record())
    with cupy.cuda.Device(1), pytest.raises(ValueError, match="current device"):
        kernel("scatter")((1,), (64,), tuple(tables))
    with pytest.raises(AssertionError, match="no device pointer"):
        kernel("scatter")((1,), (64,), (tables[0], cupy.asarray([12])))
