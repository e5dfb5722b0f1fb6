// Read vectors of the other side with a warp and reduce inner products: shared by all kernels over sparse rows.
//
// Compiled for one D (factors). cuda/thread_blocks.py sets the other constants:
//   VEC      floats that one lane reads at a time (4, 2 or 1; divides D)
//   SLICES   warps that share one vector, SLICE columns each (1 up to 1024 factors)
//   GROUPS   entries of a row that a block processes in parallel; a block has 32 * SLICES * GROUPS threads
//   OWN      1 if rows have right-hand sides of their own (features, dislikes); else 0, which saves registers
//   CACHED   rounds of a row's first pass whose vectors a block caches for the next passes
//   STORAGE  type of the gathered side, float or __half; arithmetic is float, losses are summed in double
//
// Every sum has a fixed order: the same input gives the same bits.

#if HALF
#include <cuda_fp16.h>
typedef __half STORAGE;
#else
typedef float STORAGE;
#endif

constexpr int WARPS = SLICES * GROUPS;
constexpr int THREADS = 32 * WARPS;
constexpr int SLICE = ((D + SLICES - 1) / SLICES + VEC - 1) / VEC * VEC;
constexpr int CHUNKS = (SLICE + 32 * VEC - 1) / (32 * VEC);
constexpr int LANE = CHUNKS * VEC;  // floats of a vector that one lane holds
constexpr int BATCH = LANE <= 4 ? 8 : LANE <= 8 ? 4 : LANE <= 16 ? 2 : 1;  // entries in flight per warp
constexpr int BATCH_BITS = BATCH == 8 ? 3 : BATCH == 4 ? 2 : BATCH == 2 ? 1 : 0;
constexpr unsigned ALL = 0xffffffffu;

struct Place {
  int lane, slice, group;
  __device__ Place() : lane(threadIdx.x % 32), slice(threadIdx.x / 32 % SLICES), group(threadIdx.x / 32 / SLICES) {}
  // Return the first column of the lane's vector in a chunk, D if it has none.
  __device__ int column(int chunk) const {
    int inside = (chunk * 32 + lane) * VEC, at = slice * SLICE + inside;
    return inside < SLICE && at < D ? at : D;
  }
};

__device__ inline void read(const float* from, float* to) {
#if VEC == 4
  float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
#elif VEC == 2
  float2 v = *reinterpret_cast<const float2*>(from);
  to[0] = v.x, to[1] = v.y;
#else
  to[0] = *from;
#endif
}

__device__ inline void write(const float* from, float* to) {
#if VEC == 4
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
#elif VEC == 2
  *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
#else
  *to = *from;
#endif
}

#if HALF
__device__ inline void read(const __half* from, float* to) {
#if VEC == 4
  uint2 raw = *reinterpret_cast<const uint2*>(from);
  float2 a = __half22float2(*reinterpret_cast<__half2*>(&raw.x)), b = __half22float2(*reinterpret_cast<__half2*>(&raw.y));
  to[0] = a.x, to[1] = a.y, to[2] = b.x, to[3] = b.y;
#elif VEC == 2
  float2 a = __half22float2(*reinterpret_cast<const __half2*>(from));
  to[0] = a.x, to[1] = a.y;
#else
  to[0] = __half2float(*from);
#endif
}
#endif

// Read the lane's part of one vector; zeros beyond its end.
template <typename T>
__device__ inline void read_vector(const T* vector, const Place& at, float (&part)[LANE]) {
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int k = at.column(c);
    if (k < D) {
      read(vector + k, part + c * VEC);
    } else {
#pragma unroll
      for (int v = 0; v < VEC; v++) part[c * VEC + v] = 0.0f;
    }
  }
}

__device__ inline void write_vector(const float (&part)[LANE], const Place& at, float* vector) {
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    int k = at.column(c);
    if (k < D)
#pragma unroll
      for (int v = 0; v < VEC; v++) vector[k + v] = part[c * VEC + v];
  }
}

// Sum BATCH numbers over the warp's lanes; every lane gets all sums. 2 BATCH + 5 - log2(BATCH) shuffles.
__device__ inline void sum_over_lanes(float (&s)[BATCH]) {
  int lane = threadIdx.x % 32, offset = 16;
#pragma unroll
  for (int width = BATCH / 2; width >= 1; width /= 2, offset /= 2) {
#pragma unroll
    for (int b = 0; b < width; b++) {
      bool upper = lane & offset;
      float keep = upper ? s[b + width] : s[b], send = upper ? s[b] : s[b + width];
      s[b] = keep + __shfl_xor_sync(ALL, send, offset);
    }
  }
  float total = s[0];
  for (; offset >= 1; offset /= 2) total += __shfl_xor_sync(ALL, total, offset);
#pragma unroll
  for (int b = 0; b < BATCH; b++) s[b] = __shfl_sync(ALL, total, b << (5 - BATCH_BITS));
}

// Pass over the entries start..stop of a row: s_e = target - x.y_e (or x.y_e), sum += c_e s_e y_e, and return sum c_e s_e^2
// of the group's own entries, or sum c_e s_e (not SQUARED). A warp takes every GROUPS-th batch; all warps of a block must call it together.
//
// With a cache, the vectors of the first CACHED rounds are stored in it (KEEP), or read from it. A lane reads only the
// parts that it stored itself, so that no barrier is needed.
enum Cache { NONE, KEEP, TAKE };

template <bool RESIDUAL, bool SUM, Cache CACHE, bool SQUARED = true>
__device__ inline double pass(const int* indices, const float* weights, long long start, long long stop,
                              const STORAGE* other, float target, const float (&x)[LANE], const Place& at,
                              float (&sum)[LANE], float* cache = nullptr) {
  double squares = 0.0;
#if SLICES > 1
  __shared__ float exchanged[GROUPS][SLICES][BATCH];
#endif
  long long rounds = (stop - start + GROUPS * BATCH - 1) / (GROUPS * BATCH);
  long long first = start + at.group * BATCH;
  // Load the next batch's indices while this batch's vectors are being loaded, to hide the latency.
  int next = at.lane < BATCH && first + at.lane < stop ? indices[first + at.lane] : -1;
  for (long long round = 0; round < rounds; round++, first += GROUPS * BATCH) {
    int mine = next;
    long long ahead = first + GROUPS * BATCH + at.lane;
    next = at.lane < BATCH && ahead < stop ? indices[ahead] : -1;
    float y[BATCH][LANE], s[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      long long j = __shfl_sync(ALL, mine, b);
      // Neighbouring lanes store neighbouring parts of an entry, so that the accesses of a warp are contiguous.
      float* own = cache + ((round * BATCH + b) * WARPS + threadIdx.x / 32) * 32 * LANE;
      if (CACHE == TAKE && round < CACHED) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) read(own + (c * 32 + at.lane) * VEC, y[b] + c * VEC);
      } else if (j >= 0) {
        read_vector(other + j * D, at, y[b]);
      } else {
#pragma unroll
        for (int v = 0; v < LANE; v++) y[b][v] = 0.0f;
      }
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      s[b] = 0.0f;
#pragma unroll
      for (int v = 0; v < LANE; v++) s[b] += x[v] * y[b][v];
    }
    sum_over_lanes(s);
#if SLICES > 1
    if (at.lane < BATCH) {
#pragma unroll
      for (int b = 0; b < BATCH; b++)
        if (at.lane == b) exchanged[at.group][at.slice][b] = s[b];
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      s[b] = 0.0f;
      for (int other_slice = 0; other_slice < SLICES; other_slice++) s[b] += exchanged[at.group][other_slice][b];
    }
    __syncthreads();
#endif
    if (CACHE == KEEP && round < CACHED) {
#pragma unroll
      for (int b = 0; b < BATCH; b++) {
        float* own = cache + ((round * BATCH + b) * WARPS + threadIdx.x / 32) * 32 * LANE;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) write(y[b] + c * VEC, own + (c * 32 + at.lane) * VEC);
      }
    }
    float part = 0.0f;
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      if (RESIDUAL) s[b] = target - s[b];
      long long e = first + b;
      float c = e >= stop ? 0.0f : weights == nullptr ? 1.0f : weights[e];
      float scaled = c * s[b];
      part += SQUARED ? scaled * s[b] : scaled;
      if (SUM) {
#pragma unroll
        for (int v = 0; v < LANE; v++) sum[v] += scaled * y[b][v];
      }
    }
    squares += part;
  }
  return squares;
}

// Sum COUNT numbers over all threads of a block; every thread gets the sums. Two barriers.
template <typename T, int COUNT>
__device__ inline void sum_over_block(T (&values)[COUNT]) {
  __shared__ T parts[WARPS][COUNT];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int c = 0; c < COUNT; c++)
    for (int offset = 16; offset >= 1; offset /= 2) values[c] += __shfl_xor_sync(ALL, values[c], offset);
  if (lane == 0)
#pragma unroll
    for (int c = 0; c < COUNT; c++) parts[warp][c] = values[c];
  __syncthreads();
#pragma unroll
  for (int c = 0; c < COUNT; c++) {
    values[c] = 0;
    for (int w = 0; w < WARPS; w++) values[c] += parts[w][c];
  }
  __syncthreads();
}

// Sum the losses of the groups. All lanes and slices of a group hold the same number, which counts once.
__device__ inline double sum_over_groups(double mine, const Place& at) {
  __shared__ double parts[GROUPS];
  if (at.lane == 0 && at.slice == 0) parts[at.group] = mine;
  __syncthreads();
  double total = 0.0;
  for (int g = 0; g < GROUPS; g++) total += parts[g];
  __syncthreads();
  return total;
}
