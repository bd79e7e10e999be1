// Adam and AdamW over many parameters in one launch. The tables of addresses, sizes and ends have an entry for each
// parameter; ends[i] is the number of blocks that parameters 0 to i take. Without AMSGrad `largest` is null.

extern "C" __global__ void adam(T* const* params, const T* const* grads, A* const* means, A* const* squares,
                                A* const* largest, const long long* sizes, const long long* ends, long long count,
                                long long block_size, double sign, double decay, double penalty, double weight1,
                                double beta2, double weight2, double correction, double eps, double rate) {
    long long low = 0, high = count - 1;  // this block's parameter: the first whose end lies behind it
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (ends[middle] > blockIdx.x) high = middle;
        else low = middle + 1;
    }
    const long long begin = (blockIdx.x - (low ? ends[low - 1] : 0)) * block_size;
    const long long end = begin + block_size < sizes[low] ? begin + block_size : sizes[low];
    for (long long j = begin + threadIdx.x; j < end; j += blockDim.x) {
        A value = (A)params[low][j] * (A)decay;
        A gradient = (A)sign * (A)grads[low][j];
        if (penalty != 0) gradient += (A)penalty * value;
        A mean = means[low][j], square = squares[low][j];
        mean += (A)weight1 * (gradient - mean);
        square = square * (A)beta2 + (A)weight2 * (gradient * gradient);
        means[low][j] = mean;
        squares[low][j] = square;
        if (largest) {
            square = largest[low][j] >= square ? largest[low][j] : square;
            largest[low][j] = square;
        }
        params[low][j] = (T)(value - mean / (sqrt(square) * (A)correction + (A)eps) * (A)rate);
    }
}
