// Compute sums over a row's entries with x fixed: out_i += sum_j c_ij (x_i.y_j - target) y_j, the loss, and the product
// of a sparse matrix with the other side. Chunks of long rows (residual_chunks of eigenbasis_rows.cu) are added up here.

extern "C" __global__ void __launch_bounds__(THREADS)
residual_rows(const long long* indptr, const int* indices, const float* weights, const int* rows, const float* solved,
              const STORAGE* other, float target, float* out) {
  extern __shared__ float memory[];
  Place at;
  long long i = rows[blockIdx.x];
  float along[LANE], sum[LANE];
#pragma unroll
  for (int v = 0; v < LANE; v++) sum[v] = 0.0f;
  read_vector(solved + i * D, at, along);
  pass<true, true, NONE>(indices, weights, indptr[i], indptr[i + 1], other, target, along, at, sum);
  write_vector(sum, at, memory + at.group * D);
  __syncthreads();
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float total = 0.0f;
    for (int g = 0; g < GROUPS; g++) total += memory[g * D + k];
    out[i * D + k] -= total;  // the pass sums (target - x.y) y
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
add_chunks(const int* rows, const long long* first_chunk, const float* parts, float* out) {
  long long i = rows[blockIdx.x];
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float total = 0.0f;
    for (long long c = first_chunk[blockIdx.x]; c < first_chunk[blockIdx.x + 1]; c++) total += parts[c * D + k];
    out[i * D + k] -= total;
  }
}

// sum of c (1 - x.y)^2 over a chunk of entries; here chunks cover all rows.
extern "C" __global__ void __launch_bounds__(THREADS)
observed_loss(const int* indices, const float* weights, const int* chunk_row, const long long* chunk_start,
              const long long* chunk_stop, const float* solved, const STORAGE* other, double* losses) {
  Place at;
  int c = blockIdx.x;
  float along[LANE], sum[LANE];
  read_vector(solved + (long long)chunk_row[c] * D, at, along);
  double loss = pass<true, false, NONE>(indices, weights, chunk_start[c], chunk_stop[c], other, 1.0f, along, at, sum);
  loss = sum_over_groups(loss, at);
  if (threadIdx.x == 0) losses[c] = loss;
}

// sum of c x.y over a chunk of entries; here chunks cover all rows.
extern "C" __global__ void __launch_bounds__(THREADS)
score_sum(const int* indices, const float* weights, const int* chunk_row, const long long* chunk_start,
          const long long* chunk_stop, const float* solved, const STORAGE* other, double* totals) {
  Place at;
  int c = blockIdx.x;
  float along[LANE], sum[LANE];
  read_vector(solved + (long long)chunk_row[c] * D, at, along);
  double total =
      pass<false, false, NONE, false>(indices, weights, chunk_start[c], chunk_stop[c], other, 0.0f, along, at, sum);
  total = sum_over_groups(total, at);
  if (threadIdx.x == 0) totals[c] = total;
}

// out = sum of c y over the entries start..stop. Every group of warps takes every GROUPS-th entry; `memory` holds a vector
// for each group.
__device__ inline void sum_entries(const int* indices, const float* weights, long long start, long long stop,
                                   const STORAGE* other, float* memory, float* out) {
  Place at;
  float sum[LANE], y[LANE];
#pragma unroll
  for (int v = 0; v < LANE; v++) sum[v] = 0.0f;
#pragma unroll 4
  for (long long e = start + at.group; e < stop; e += GROUPS) {
    read_vector(other + (long long)indices[e] * D, at, y);
    float c = weights == nullptr ? 1.0f : weights[e];
#pragma unroll
    for (int v = 0; v < LANE; v++) sum[v] += c * y[v];
  }
  write_vector(sum, at, memory + at.group * D);
  __syncthreads();
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float total = 0.0f;
    for (int g = 0; g < GROUPS; g++) total += memory[g * D + k];
    out[k] = total;
  }
}

// out_i = sum_j c_ij y_j.
extern "C" __global__ void __launch_bounds__(THREADS)
sum_rows(const long long* indptr, const int* indices, const float* weights, const int* rows, const STORAGE* other,
         float* out) {
  extern __shared__ float memory[];
  long long i = rows[blockIdx.x];
  sum_entries(indices, weights, indptr[i], indptr[i + 1], other, memory, out + i * D);
}

// parts_c = sum of c_ij y_j over a chunk of a long row.
extern "C" __global__ void __launch_bounds__(THREADS)
sum_chunks(const int* indices, const float* weights, const long long* chunk_start, const long long* chunk_stop,
           const STORAGE* other, float* parts) {
  extern __shared__ float memory[];
  long long c = blockIdx.x;
  sum_entries(indices, weights, chunk_start[c], chunk_stop[c], other, memory, parts + c * D);
}

// out_i = the sum of a long row's chunks.
extern "C" __global__ void __launch_bounds__(THREADS)
store_chunks(const int* rows, const long long* first_chunk, const float* parts, float* out) {
  long long i = rows[blockIdx.x];
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float total = 0.0f;
    for (long long c = first_chunk[blockIdx.x]; c < first_chunk[blockIdx.x + 1]; c++) total += parts[c * D + k];
    out[i * D + k] = total;
  }
}
