// Draw rows of the random start, with the bits that fairmf/backends/random_start.py defines (references are there).
// A thread draws one block of four numbers. mul and add round each operation separately: a fused multiply-add would
// change the last bits.

__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }

__constant__ float LOGARITHM[9] = {
    7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
    2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
__constant__ float MIDDLE[9] = {
    2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f, -0.00125372503f,
    -0.00417768164f, 0.246640727f, 1.50140941f};
__constant__ float TAIL[9] = {
    -0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f, -0.0076224613f,
    0.00943887047f, 1.00167406f, 2.83297682f};

__device__ __forceinline__ float polynomial(const float* c, float x) {
    float total = c[0];
#pragma unroll
    for (int k = 1; k < 9; ++k) total = add(mul(total, x), c[k]);
    return total;
}

__device__ __forceinline__ float logarithm(float value) {
    int bits = __float_as_int(value);
    float exponent = (float)((bits >> 23) - 126);
    float mantissa = __int_as_float((bits & 0x007FFFFF) | 0x3F000000);
    if (mantissa < 0.70710678118654752f) {
        exponent = add(exponent, -1.0f);
        mantissa = add(mantissa, mantissa);
    }
    float m = add(mantissa, -1.0f);
    float square = mul(m, m);
    float tail = add(mul(mul(polynomial(LOGARITHM, m), m), square), mul(-2.12194440e-4f, exponent));
    tail = add(tail, -mul(0.5f, square));
    return add(add(m, tail), mul(0.693359375f, exponent));
}

__device__ __forceinline__ float normal(unsigned int word) {
    float x = add(mul(add((float)(word >> 9), 0.5f), 2.384185791015625e-07f), -1.0f);
    float w = -logarithm(mul(add(1.0f, -x), add(1.0f, x)));
    float ratio = w < 5.0f ? polynomial(MIDDLE, add(w, -2.5f)) : polynomial(TAIL, add(__fsqrt_rn(w), -3.0f));
    return mul(mul(ratio, x), 1.41421356237309504f);
}

extern "C" __global__ void normal_rows(
    unsigned int key_0, unsigned int key_1, unsigned int side, const long long* __restrict__ numbers, long long first,
    long long rows, int factors, float scale, float* __restrict__ out) {
    int blocks = (factors + 3) / 4;
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows * blocks) return;
    long long i = at / blocks;
    unsigned int block = (unsigned int)(at % blocks);
    unsigned long long row = numbers ? (unsigned long long)numbers[i] : (unsigned long long)(first + i);
    unsigned int c0 = block, c1 = (unsigned int)row, c2 = (unsigned int)(row >> 32), c3 = side;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        unsigned int left_high = __umulhi(0xD2511F53u, c0), left = 0xD2511F53u * c0;
        unsigned int right_high = __umulhi(0xCD9E8D57u, c2), right = 0xCD9E8D57u * c2;
        c0 = right_high ^ c1 ^ key_0;
        c2 = left_high ^ c3 ^ key_1;
        c1 = right;
        c3 = left;
        key_0 += 0x9E3779B9u;
        key_1 += 0xBB67AE85u;
    }
    unsigned int words[4] = {c0, c1, c2, c3};
    float* own = out + i * factors;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        int k = 4 * (int)block + j;
        if (k < factors) own[k] = mul(normal(words[j]), scale);
    }
}
