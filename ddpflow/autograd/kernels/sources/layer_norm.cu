// Layer normalisation over rows of contiguous memory. Weight and bias may be null.

extern "C" __global__ void layer_norm(const T* x, const W* weight, const W* bias, T* y, A* mean, A* rstd,
                                      long long rows, long long width, double eps) {
    const long long row = this_row();
    if (row >= rows) return;
    x += row * width;
    y += row * width;
    A sum = 0, squares = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) sum += (A)x[j];
    const A centre = across(sum, Add()) / (A)width;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
        const A distance = (A)x[j] - centre;
        squares += distance * distance;
    }
    const A scale = 1 / sqrt(across(squares, Add()) / (A)width + (A)eps);
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
        A value = ((A)x[j] - centre) * scale;
        if (weight) value *= (A)weight[j];
        if (bias) value += (A)bias[j];
        y[j] = (T)value;
    }
    if (threadIdx.x == 0) {
        mean[row] = centre;
        rstd[row] = scale;
    }
}

extern "C" __global__ void layer_norm_backward(const T* g, const T* x, const W* weight, const A* mean, const A* rstd,
                                               T* gx, long long rows, long long width) {
    const long long row = this_row();
    if (row >= rows) return;
    g += row * width;
    x += row * width;
    gx += row * width;
    const A centre = mean[row], scale = rstd[row];
    A sum = 0, dot = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
        const A scaled = weight ? (A)g[j] * (A)weight[j] : (A)g[j];
        sum += scaled;
        dot += scaled * ((A)x[j] - centre) * scale;
    }
    sum = across(sum, Add()) / (A)width;
    dot = across(dot, Add()) / (A)width;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
        const A scaled = weight ? (A)g[j] * (A)weight[j] : (A)g[j];
        gx[j] = (T)((scaled - sum - ((A)x[j] - centre) * scale * dot) * scale);
    }
}

// The gradients of weight and bias, added up over some of the rows: parts is (gridDim.y, 2, width). A block has 32
// columns and 8 rows at a time.
extern "C" __global__ void layer_norm_columns(const T* g, const T* x, const A* mean, const A* rstd, A* parts,
                                              long long rows, long long width) {
    __shared__ A sums[2][8][32];
    const long long column = (long long)blockIdx.x * 32 + threadIdx.x;
    A weight = 0, bias = 0;
    if (column < width)
        for (long long row = blockIdx.y * 8 + threadIdx.y; row < rows; row += gridDim.y * 8) {
            const A gradient = (A)g[row * width + column];
            weight += gradient * ((A)x[row * width + column] - mean[row]) * rstd[row];
            bias += gradient;
        }
    sums[0][threadIdx.y][threadIdx.x] = weight;
    sums[1][threadIdx.y][threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.y < 2 && column < width) {
        A total = 0;
        for (int i = 0; i < 8; i++) total += sums[threadIdx.y][i][threadIdx.x];
        parts[(blockIdx.y * 2 + threadIdx.y) * width + column] = total;
    }
}
