// Softmax, its logarithm and cross entropy over rows of contiguous memory.

// The greatest value of a scaled row and the sum of exp(x - greatest), in one pass that rescales the sum when a greater
// value comes. Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867.
__device__ void exponentials(const T* x, long long width, A scale, A* top, A* total) {
    const A lowest = log((A)0);
    A greatest = lowest, sum = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
        const A value = (A)x[j] * scale;
        if (value > greatest) {
            sum = sum * exp(greatest - value) + (1 + (value - value));  // NaN for +inf, as exp(inf - inf)
            greatest = value;
        } else if (value != lowest) {  // -inf adds nothing, NaN adds NaN
            sum += exp(value - greatest);
        }
    }
    *top = across(greatest, Greater());
    if (greatest != *top) sum *= exp(greatest - *top);
    *total = across(sum, Add());
}

extern "C" __global__ void softmax(const T* x, T* y, long long rows, long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    A top, total;
    exponentials(x, width, 1, &top, &total);
    for (long long j = threadIdx.x; j < width; j += blockDim.x) y[j] = (T)(exp((A)x[j] - top) / total);
}

extern "C" __global__ void softmax_backward(const T* g, const T* y, T* gx, long long rows, long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    g += row * width;
    y += row * width;
    gx += row * width;
    A dot = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) dot += (A)g[j] * (A)y[j];
    dot = across(dot, Add());
    for (long long j = threadIdx.x; j < width; j += blockDim.x) gx[j] = (T)((A)y[j] * ((A)g[j] - dot));
}

extern "C" __global__ void log_softmax(const T* x, T* y, long long rows, long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    A top, total;
    exponentials(x, width, 1, &top, &total);
    total = log(total);
    for (long long j = threadIdx.x; j < width; j += blockDim.x) y[j] = (T)((A)x[j] - top - total);
}

extern "C" __global__ void log_softmax_backward(const T* g, const T* y, T* gx, long long rows, long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    g += row * width;
    y += row * width;
    gx += row * width;
    A sum = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) sum += (A)g[j];
    sum = across(sum, Add());
    for (long long j = threadIdx.x; j < width; j += blockDim.x) gx[j] = (T)((A)g[j] - exp((A)y[j]) * sum);
}

// Attention's weights: softmax of scale * x over the keys that a query sees, all of them or (causal) those up to its own
// place; zeros for a query that sees none. A row is a query, one of `queries` in a sequence.
extern "C" __global__ void attention_weights(const T* x, T* y, long long rows, long long width, long long queries,
                                             double scale, bool causal) {
    const long long row = this_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    const long long place = row % queries, seen = causal && place < width ? place + 1 : width;
    A top, total;
    exponentials(x, seen, (A)scale, &top, &total);
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
        y[j] = (T)(j < seen && total != 0 ? exp((A)x[j] * (A)scale - top) / total : (A)0);
}

// For class indices: indices that are safe to read with, each sample's weight in the loss (0 where it is ignored, NaN
// where the index is no class), and whether it counts. Without weights the pointer is null.
extern "C" __global__ void class_weights(const long long* target, const T* weight, long long* index, T* coefficient,
                                         bool* valid, long long count, long long classes, long long ignored) {
    const long long i = this_element();
    if (i >= count) return;
    const long long label = target[i];
    const bool counts = label != ignored, inside = label >= 0 && label < classes;
    valid[i] = counts;
    index[i] = counts && inside ? label : 0;
    coefficient[i] = (T)(!counts ? (A)0 : !inside ? log((A)-1) : weight ? (A)weight[label] : (A)1);
}

// The loss log(sum(exp(x))) - x[index] of each row, and that logarithm.
extern "C" __global__ void cross_entropy(const T* x, const long long* index, A* loss, A* lse, long long rows,
                                         long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    x += row * width;
    A top, total;
    exponentials(x, width, 1, &top, &total);
    if (threadIdx.x == 0) {
        lse[row] = log(total) + top;
        loss[row] = lse[row] - (A)x[index[row]];
    }
}

// A row whose scale is 0 gets zeros, whatever it holds: it may be an ignored one with infinities.
extern "C" __global__ void cross_entropy_backward(const T* x, const long long* index, const A* lse, const T* scale,
                                                  T* gx, long long rows, long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    x += row * width;
    gx += row * width;
    const A factor = (A)scale[row];
    for (long long j = threadIdx.x; j < width; j += blockDim.x)
        gx[j] = (T)(factor == 0 ? (A)0 : (exp((A)x[j] - lse[row]) - (A)(j == index[row])) * factor);
}
