// Shared by the sources beside this one. Before it stand the types: T of the arrays, W of the parameters (weight and
// bias), A to accumulate in.
//
// Rows: threadIdx.x goes along a row, threadIdx.y and blockIdx.x count rows. A block of several rows has one warp for
// each, so that threads which share a row always take the same path to a shuffle or a barrier.

struct Add {
    __device__ A operator()(A a, A b) const { return a + b; }
};

struct Greater {  // ignores NaN on the right
    __device__ A operator()(A a, A b) const { return b > a ? b : a; }
};

// The combination of a value of each thread of a row, the same in all of them, in an order that does not change.
template <class Combine>
__device__ A across(A value, Combine combine) {
    for (int distance = 16; distance; distance /= 2)
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if (blockDim.x > 32) {
        __shared__ A warps[32];
        __syncthreads();  // the last call's values have been read
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
        __syncthreads();
        value = warps[0];
        for (unsigned i = 1; i < blockDim.x / 32; i++) value = combine(value, warps[i]);
    }
    return value;
}

__device__ long long this_row() { return (long long)blockIdx.x * blockDim.y + threadIdx.y; }

__device__ long long this_element() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
