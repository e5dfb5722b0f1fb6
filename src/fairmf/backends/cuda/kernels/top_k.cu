// Select the k best of each row of a block of scores. Scores come from a float32 matrix product. Every item that could
// be among the best, given the rounding error, is scored again in float64; the order is that of these scores, rounded to
// float32, ties to the lower index. One block of threads per user.

constexpr int THREADS = 256;
constexpr unsigned ALL = 0xffffffffu;
#define NOTHING __int_as_float(0x7fc00000)  // NaN
#define LOWEST __int_as_float(0xff800000)   // -infinity

// Return an unsigned integer that sorts like the float; -0 counts as 0.
__device__ inline unsigned ordered(float value) {
  unsigned bits = __float_as_uint(value == 0.0f ? 0.0f : value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ inline float from_ordered(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// Return the key of the rank-th largest (1 = largest) of m scores, by radix selection on 11, 11 and 10 bits.
__device__ unsigned kth_key(const float* scores, int m, int rank) {
  __shared__ unsigned counts[2048], sums[THREADS];
  __shared__ unsigned prefix;
  __shared__ int left;
  const int shifts[3] = {21, 10, 0}, widths[3] = {11, 11, 10};
  if (threadIdx.x == 0) prefix = 0, left = rank;
  for (int round = 0; round < 3; round++) {
    int shift = shifts[round], bins = 1 << widths[round], per_thread = bins / THREADS;
    unsigned known = round == 0 ? 0u : ~0u << (shift + widths[round]);
    for (int b = threadIdx.x; b < bins; b += THREADS) counts[b] = 0;
    __syncthreads();
    unsigned wanted = prefix;
    for (int j = threadIdx.x; j < m; j += THREADS) {
      unsigned key = ordered(scores[j]);
      if ((key & known) == wanted) atomicAdd(&counts[(key >> shift) & (bins - 1)], 1u);
    }
    __syncthreads();
    unsigned mine = 0;
    for (int b = 0; b < per_thread; b++) mine += counts[threadIdx.x * per_thread + b];
    sums[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      int rest = left, t = THREADS - 1;
      while (t > 0 && (int)sums[t] < rest) rest -= sums[t--];
      int b = t * per_thread + per_thread - 1;
      while (b > t * per_thread && (int)counts[b] < rest) rest -= counts[b--];
      prefix = wanted | ((unsigned)b << shift);
      left = rest;
    }
    __syncthreads();
  }
  return prefix;
}

__device__ void sort_descending(unsigned long long* keys, int size) {  // size: a power of 2
  for (int span = 2; span <= size; span *= 2) {
    for (int gap = span / 2; gap > 0; gap /= 2) {
      for (int a = threadIdx.x; a < size; a += THREADS) {
        int b = a ^ gap;
        if (b > a) {
          bool descending = (a & span) == 0;
          unsigned long long x = keys[a], y = keys[b];
          if (descending ? x < y : x > y) keys[a] = y, keys[b] = x;
        }
      }
      __syncthreads();
    }
  }
}

// in: users (rows x d), items (m x d), indptr/indices of excluded items (indptr may be null), errors per user
// in and out: scores (rows x m)   out: found, values (rows x k), overflow (rows): 1 if too many items were close
extern "C" __global__ void __launch_bounds__(THREADS)
select_best(const float* users, const float* items, int d, int m, int k, int room, const long long* indptr,
            const int* indices, const float* errors, float* scores, int* found, float* values, int* overflow) {
  extern __shared__ unsigned long long keys[];  // room, a power of 2 and at least k
  __shared__ int size, left_out;
  long long i = blockIdx.x;
  float* row = scores + i * m;
  if (threadIdx.x == 0) size = left_out = 0;
  __syncthreads();
  if (indptr != nullptr) {
    int mine = 0;  // count an item that is excluded twice only once
    for (long long e = indptr[i] + threadIdx.x; e < indptr[i + 1]; e += THREADS)
      mine += atomicExch(row + indices[e], LOWEST) != LOWEST;
    if (mine) atomicAdd(&left_out, mine);
  }
  __syncthreads();
  int wanted = min(k, m - left_out);
  for (int c = threadIdx.x; c < k; c += THREADS) found[i * k + c] = -1, values[i * k + c] = NOTHING;
  if (threadIdx.x == 0) overflow[i] = 0;
  if (wanted <= 0) return;
  float floor = from_ordered(kth_key(row, m, wanted));
  floor = fmaxf(floor - 2.0f * errors[i], -3.4028235e38f);  // above -inf, so that excluded items stay out
  for (int j = threadIdx.x; j < m; j += THREADS) {
    if (row[j] >= floor) {
      int place = atomicAdd(&size, 1);
      if (place < room) keys[place] = j;
    }
  }
  __syncthreads();
  int count = size;
  if (count > room) {
    if (threadIdx.x == 0) overflow[i] = 1;
    return;
  }
  int lane = threadIdx.x % 32;
  for (int c = threadIdx.x / 32; c < count; c += THREADS / 32) {
    long long j = (long long)keys[c];
    double total = 0.0;
    for (int f = lane; f < d; f += 32) total += (double)users[i * d + f] * (double)items[j * d + f];
    for (int offset = 16; offset >= 1; offset /= 2) total += __shfl_xor_sync(ALL, total, offset);
    __syncwarp();
    if (lane == 0) keys[c] = (unsigned long long)ordered((float)total) << 32 | (0xffffffffu - (unsigned)j);
  }
  int sorted = 1;
  while (sorted < count) sorted *= 2;
  for (int c = count + threadIdx.x; c < sorted; c += THREADS) keys[c] = 0;
  __syncthreads();
  sort_descending(keys, sorted);
  for (int c = threadIdx.x; c < min(wanted, count); c += THREADS) {
    found[i * k + c] = (int)(0xffffffffu - (unsigned)keys[c]);
    values[i * k + c] = from_ordered((unsigned)(keys[c] >> 32));
  }
}

// Compute sort keys of all items for a few users: exact score, then lower index; `bar_items` sets excluded ones to 0.
extern "C" __global__ void __launch_bounds__(THREADS)
exact_keys(const float* users, const float* items, int d, int m, const int* chosen, unsigned long long* keys) {
  long long i = chosen[blockIdx.x];
  int lane = threadIdx.x % 32;
  for (long long j = threadIdx.x / 32; j < m; j += THREADS / 32) {
    double total = 0.0;
    for (int f = lane; f < d; f += 32) total += (double)users[i * d + f] * (double)items[j * d + f];
    for (int offset = 16; offset >= 1; offset /= 2) total += __shfl_xor_sync(ALL, total, offset);
    if (lane == 0)
      keys[(long long)blockIdx.x * m + j] = (unsigned long long)ordered((float)total) << 32 | (0xffffffffu - (unsigned)j);
  }
}

extern "C" __global__ void bar_items(const long long* indptr, const int* indices, int m, const int* chosen,
                                     unsigned long long* keys) {
  long long i = chosen[blockIdx.x];
  for (long long e = indptr[i] + threadIdx.x; e < indptr[i + 1]; e += blockDim.x)
    keys[(long long)blockIdx.x * m + indices[e]] = 0;
}

// Write the first k of sorted keys (rows x m, descending) as items and scores.
extern "C" __global__ void unpack(const unsigned long long* keys, int m, int k, const int* chosen, int* found,
                                  float* values) {
  long long i = chosen[blockIdx.x];
  for (int c = threadIdx.x; c < k; c += blockDim.x) {
    unsigned long long key = c < m ? keys[(long long)blockIdx.x * m + c] : 0;
    found[i * k + c] = key ? (int)(0xffffffffu - (unsigned)key) : -1;
    values[i * k + c] = key ? from_ordered((unsigned)(key >> 32)) : NOTHING;
  }
}
