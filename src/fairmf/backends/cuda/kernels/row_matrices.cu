// Build H_i = sum_j c_ij y_j y_j' + shared + ridge_i I (+ pull_i t t') and b_i = sum_j c_ij y_j - shift (+ own_i) for a batch of
// rows; cuSOLVER factorises them. A block of threads computes a 64 x 64 tile on or below the diagonal of a row's matrix.

constexpr int TILE = 64, ENTRIES = 16, SIDE = 4;  // 16 x 16 threads, each 4 x 4 numbers

extern "C" __global__ void __launch_bounds__(256)
row_matrices(const long long* indptr, const int* indices, const float* weights, const int* rows, const float* other,
             int d, const float* shared, const float* ridge, const float* vector, const float* pulls, float* matrices) {
  __shared__ float left[ENTRIES][TILE], right[ENTRIES][TILE];
  // Tiles on and below the diagonal are numbered row by row: (0,0) (1,0) (1,1) (2,0) ...
  int down = 0, number = blockIdx.y;
  while (number > down) number -= ++down;
  int across = number, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  long long i = rows[blockIdx.x], start = indptr[i], stop = indptr[i + 1];
  float sum[SIDE][SIDE] = {};
  for (long long first = start; first < stop; first += ENTRIES) {
    for (int cell = threadIdx.x; cell < ENTRIES * TILE; cell += 256) {
      int e = cell / TILE, k = cell % TILE;
      bool within = first + e < stop;
      long long j = within ? indices[first + e] : 0;
      float c = !within ? 0.0f : weights == nullptr ? 1.0f : weights[first + e];
      int row = down * TILE + k, column = across * TILE + k;
      left[e][k] = within && row < d ? c * other[j * d + row] : 0.0f;
      right[e][k] = within && column < d ? other[j * d + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < ENTRIES; e++) {
      float a[SIDE], b[SIDE];
#pragma unroll
      for (int s = 0; s < SIDE; s++) a[s] = left[e][ty + 16 * s], b[s] = right[e][tx + 16 * s];
#pragma unroll
      for (int s = 0; s < SIDE; s++)
#pragma unroll
        for (int u = 0; u < SIDE; u++) sum[s][u] += a[s] * b[u];
    }
    __syncthreads();
  }
  float* matrix = matrices + (long long)blockIdx.x * d * d;
  float pull = vector == nullptr ? 0.0f : pulls[i];
  for (int s = 0; s < SIDE; s++) {
    for (int u = 0; u < SIDE; u++) {
      int row = down * TILE + ty + 16 * s, column = across * TILE + tx + 16 * u;
      if (row >= d || column > row) continue;
      float value = sum[s][u] + shared[(long long)row * d + column];
      if (vector != nullptr) value += pull * vector[row] * vector[column];
      if (row == column) value += ridge[i];
      matrix[(long long)row * d + column] = value;
    }
  }
}

// b_i = sum_j c_ij y_j - shift (+ own_i).   grid: rows of the batch
extern "C" __global__ void __launch_bounds__(256)
right_sides(const long long* indptr, const int* indices, const float* weights, const int* rows, const float* other,
            int d, const float* shift, const float* own, float* out) {
  long long i = rows[blockIdx.x], start = indptr[i], stop = indptr[i + 1];
  for (int k = threadIdx.x; k < d; k += 256) {
    float total = 0.0f;
    for (long long e = start; e < stop; e++)
      total += (weights == nullptr ? 1.0f : weights[e]) * other[(long long)indices[e] * d + k];
    total -= shift[k];
    if (own != nullptr) total += own[i * d + k];
    out[(long long)blockIdx.x * d + k] = total;
  }
}
