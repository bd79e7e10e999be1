// GELU and dropout, element by element.

#define SLOPE ((A)0.7978845608028654)  // sqrt(2 / pi)
#define CUBIC ((A)0.044715)

// P(X <= x) of a standard normal X, exact or by the tanh formula.
__device__ A normal_share(A x, bool approximate) {
    if (approximate) return (A)0.5 * (1 + tanh(SLOPE * (x + CUBIC * x * x * x)));
    return (A)0.5 * erfc(-x * (A)0.7071067811865476);
}

extern "C" __global__ void gelu(const T* x, T* y, long long count, bool approximate) {
    const long long i = this_element();
    if (i < count) y[i] = (T)((A)x[i] * normal_share((A)x[i], approximate));
}

extern "C" __global__ void gelu_backward(const T* g, const T* x, T* gx, long long count, bool approximate) {
    const long long i = this_element();
    if (i >= count) return;
    const A value = (A)x[i], share = normal_share(value, approximate);
    const A density = approximate ? share * (1 - share) * 2 * SLOPE * (1 + 3 * CUBIC * value * value)
                                  : exp((A)-0.5 * value * value) * (A)0.3989422804014327;  // 1 / sqrt(2 pi)
    gx[i] = (T)((A)g[i] * (share + value * density));
}

extern "C" __global__ void keep_scaled(const T* x, const bool* keep, T* y, long long count, double scale) {
    const long long i = this_element();
    if (i < count) y[i] = (T)((A)x[i] * (A)keep[i] * (A)scale);
}
