// Keep a score per entry up to date, and compute gradients from these scores, for iALS++; row_matrices.cu builds the
// matrices. `part` holds `width` coordinates of the fixed side, row by row. All sums have a fixed order.

constexpr unsigned ALL = 0xffffffffu;

// scores[e] = x_i.y_j of the entries of a chunk; a warp per entry.   grid: chunks, of all rows
extern "C" __global__ void __launch_bounds__(256)
entry_scores(const int* indices, const int* chunk_row, const long long* chunk_start, const long long* chunk_stop,
             const float* this_side, const float* other, int d, float* scores) {
  int lane = threadIdx.x % 32;
  const float* x = this_side + (long long)chunk_row[blockIdx.x] * d;
  for (long long e = chunk_start[blockIdx.x] + threadIdx.x / 32; e < chunk_stop[blockIdx.x]; e += 8) {
    const float* y = other + (long long)indices[e] * d;
    float score = 0.0f;
    for (int k = lane; k < d; k += 32) score += x[k] * y[k];
    for (int offset = 16; offset >= 1; offset /= 2) score += __shfl_xor_sync(ALL, score, offset);
    if (lane == 0) scores[e] = score;
  }
}

// gradients[r] += sum_e c_e (score_e - 1) y_e over the block.   grid: rows first..   256 threads: columns, then groups
extern "C" __global__ void __launch_bounds__(256)
entry_gradients(const long long* indptr, const int* indices, const float* weights, long long first, const float* part,
                int width, const float* scores, float* gradients) {
  __shared__ float sums[256];
  long long i = first + blockIdx.x, start = indptr[i], stop = indptr[i + 1];
  int columns = min(width, 256), groups = 256 / columns, group = threadIdx.x / columns, own = threadIdx.x % columns;
  for (int base = 0; base < width; base += columns) {
    int k = base + own;
    float sum = 0.0f;
    if (group < groups && k < width)
      for (long long e = start + group; e < stop; e += groups) {
        float miss = scores[e] - 1.0f;
        if (weights != nullptr) miss *= weights[e];
        sum += miss * part[(long long)indices[e] * width + k];
      }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (group == 0 && k < width) {
      for (int other = 1; other < groups; other++) sum += sums[other * columns + own];
      gradients[(long long)blockIdx.x * width + k] += sum;
    }
    __syncthreads();
  }
}

// scores[e] -= step_r.y_e; a warp per entry.   grid: rows first..
extern "C" __global__ void __launch_bounds__(256)
move_scores(const long long* indptr, const int* indices, long long first, const float* part, int width,
            const float* steps, float* scores) {
  long long i = first + blockIdx.x, stop = indptr[i + 1];
  int lane = threadIdx.x % 32;
  const float* step = steps + (long long)blockIdx.x * width;
  for (long long e = indptr[i] + threadIdx.x / 32; e < stop; e += 8) {
    const float* y = part + (long long)indices[e] * width;
    float change = 0.0f;
    for (int k = lane; k < width; k += 32) change += step[k] * y[k];
    for (int offset = 16; offset >= 1; offset /= 2) change += __shfl_xor_sync(ALL, change, offset);
    if (lane == 0) scores[e] -= change;
  }
}
