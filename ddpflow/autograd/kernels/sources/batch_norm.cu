// Batch normalisation of contiguous (N, C, ...). blockIdx.x is the channel, blockIdx.y one of gridDim.y shares of its
// elements; a first kernel sums up each share, a second adds the shares of its channel up and goes over its own.
// A channel has fewer than 2^31 elements: divisions of 64 bits are slow.

struct Share {
    unsigned begin, end;
};

__device__ Share share_of(unsigned number, unsigned count) {
    const unsigned size = (count - 1) / gridDim.y + 1, begin = number * size;
    return {begin < count ? begin : count, begin + size < count ? begin + size : count};
}

// Where element k of this block's channel lies; `run` elements of a channel are neighbours.
__device__ long long place(unsigned k, unsigned run) {
    return ((long long)(k / run) * gridDim.x + blockIdx.x) * run + k % run;
}

__device__ void store(A* parts, A first, A second) {
    if (threadIdx.x == 0) {
        A* own = parts + ((long long)blockIdx.x * gridDim.y + blockIdx.y) * 2;
        own[0] = first;
        own[1] = second;
    }
}

// Mean and sum of squared distances from it, of each share.
extern "C" __global__ void batch_norm_moments(const T* x, A* parts, long long count, long long run) {
    const Share share = share_of(blockIdx.y, count);
    A sum = 0, squares = 0;
    for (unsigned k = share.begin + threadIdx.x; k < share.end; k += blockDim.x) sum += (A)x[place(k, run)];
    const A mean = across(sum, Add()) / (A)(share.end - share.begin);
    for (unsigned k = share.begin + threadIdx.x; k < share.end; k += blockDim.x) {
        const A distance = (A)x[place(k, run)] - mean;
        squares += distance * distance;
    }
    store(parts, mean, across(squares, Add()));
}

// Source of the way to join means and squares: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for
// computing sample variances (1979).
extern "C" __global__ void batch_norm(const T* x, const W* weight, const W* bias, const A* parts, T* y, A* mean, A* var,
                                      long long count, long long run, double eps) {
    const A* own = parts + (long long)blockIdx.x * gridDim.y * 2;
    A centre = 0, squares = 0, seen = 0;
    for (unsigned i = 0; i < gridDim.y; i++) {
        const Share other = share_of(i, count);
        const A size = (A)(other.end - other.begin);
        if (size == 0) break;
        const A distance = own[2 * i] - centre;
        squares += own[2 * i + 1] + distance * distance * (seen * size / (seen + size));
        centre += distance * (size / (seen + size));
        seen += size;
    }
    const A variance = squares / (A)count;
    A scale = 1 / sqrt(variance + (A)eps);
    if (weight) scale *= (A)weight[blockIdx.x];
    const A shift = bias ? (A)bias[blockIdx.x] : (A)0;
    const Share share = share_of(blockIdx.y, count);
    for (unsigned k = share.begin + threadIdx.x; k < share.end; k += blockDim.x) {
        const long long at = place(k, run);
        y[at] = (T)(((A)x[at] - centre) * scale + shift);
    }
    if (blockIdx.y == 0 && threadIdx.x == 0) {
        mean[blockIdx.x] = centre;
        var[blockIdx.x] = variance;
    }
}

// Sums of g * normal and of g, of each share.
extern "C" __global__ void batch_norm_sums(const T* g, const T* x, const A* mean, const A* var, A* parts,
                                           long long count, long long run, double eps) {
    const A centre = mean[blockIdx.x], scale = 1 / sqrt(var[blockIdx.x] + (A)eps);
    const Share share = share_of(blockIdx.y, count);
    A dot = 0, sum = 0;
    for (unsigned k = share.begin + threadIdx.x; k < share.end; k += blockDim.x) {
        const long long at = place(k, run);
        dot += (A)g[at] * ((A)x[at] - centre) * scale;
        sum += (A)g[at];
    }
    dot = across(dot, Add());
    store(parts, dot, across(sum, Add()));
}

extern "C" __global__ void batch_norm_backward(const T* g, const T* x, const W* weight, const A* mean, const A* var,
                                               const A* parts, T* gx, A* gw, A* gb, long long count, long long run,
                                               double eps) {
    const A* own = parts + (long long)blockIdx.x * gridDim.y * 2;
    A dot = 0, sum = 0;
    for (unsigned i = 0; i < gridDim.y; i++) {
        dot += own[2 * i];
        sum += own[2 * i + 1];
    }
    const A centre = mean[blockIdx.x], rstd = 1 / sqrt(var[blockIdx.x] + (A)eps);
    const A factor = weight ? rstd * (A)weight[blockIdx.x] : rstd;
    const Share share = share_of(blockIdx.y, count);
    for (unsigned k = share.begin + threadIdx.x; k < share.end; k += blockDim.x) {
        const long long at = place(k, run);
        gx[at] = (T)(((A)g[at] - (sum + ((A)x[at] - centre) * rstd * dot) / (A)count) * factor);
    }
    if (blockIdx.y == 0 && threadIdx.x == 0) {
        gw[blockIdx.x] = dot;
        gb[blockIdx.x] = sum;
    }
}
