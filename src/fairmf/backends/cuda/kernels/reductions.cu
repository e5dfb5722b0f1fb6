// Compute sums over rows in float64: blocks of rows write partial sums, which are added in order afterwards.

enum Mode { SUM = 0, SQUARES = 1, DIFFERENCE = 2, PRODUCT = 3 };

constexpr int COLUMNS = 32, LANES = 8;  // threads of a block: 32 columns, 8 rows side by side

// parts[b, k] = sum over the block's rows of x, w x^2, (x - y)^2 or x y.   grid: columns / 32, blocks of rows
extern "C" __global__ void __launch_bounds__(COLUMNS* LANES)
column_sums(const float* x, const float* y, const double* weights, long long n, int d, long long rows_per_block,
            int mode, double* parts) {
  __shared__ double shared[LANES][COLUMNS];
  int k = blockIdx.x * COLUMNS + threadIdx.x, lane = threadIdx.y;
  long long first = blockIdx.y * rows_per_block, last = min(first + rows_per_block, n);
  double sums[4] = {0.0, 0.0, 0.0, 0.0};  // four independent sums, so that four loads are in flight at a time
  if (k < d) {
    for (long long i = first + lane; i < last; i += 4 * LANES) {
#pragma unroll
      for (int ahead = 0; ahead < 4; ahead++) {
        long long at = i + ahead * LANES;
        if (at < last) {
          double value = x[at * d + k];
          if (mode == SQUARES) value *= value * weights[at];
          if (mode == DIFFERENCE) {
            value -= y[at * d + k];
            value *= value;
          }
          if (mode == PRODUCT) value *= y[at * d + k];
          sums[ahead] += value;
        }
      }
    }
  }
  double total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  shared[lane][threadIdx.x] = total;
  __syncthreads();
  if (lane == 0 && k < d) {
    for (int other = 1; other < LANES; other++) total += shared[other][threadIdx.x];
    parts[(long long)blockIdx.y * d + k] = total;
  }
}

// out[k] = scale * sum over b of parts[b, k].   grid: columns / 32
extern "C" __global__ void __launch_bounds__(COLUMNS * 32)
sum_parts(const double* parts, int blocks, int d, double scale, double* out) {
  __shared__ double shared[32][COLUMNS];
  int k = blockIdx.x * COLUMNS + threadIdx.x;
  double total = 0.0;
  if (k < d)
    for (int b = threadIdx.y; b < blocks; b += 32) total += parts[(long long)b * d + k];
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y == 0 && k < d) {
    for (int lane = 1; lane < 32; lane++) total += shared[lane][threadIdx.x];
    out[k] = scale * total;
  }
}

// out += the sum of `count` d x d products and of one more, made symmetric from their lower triangles.
extern "C" __global__ void add_products(const float* products, int count, const float* one_more, int d, double* out) {
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x, size = (long long)d * d;
  if (at >= size) return;
  long long i = at / d, j = at % d, lower = i >= j ? at : j * d + i;
  double total = out[at] + one_more[lower];
  for (int b = 0; b < count; b++) total += products[b * size + lower];
  out[at] = total;
}

// out[k] = sum over g of share_g (1 - mix) / (values_k + ridge_g) + share_g mix / (values_k + ridge_g + slopes_g typical_k)
// grid: columns / 32
extern "C" __global__ void __launch_bounds__(COLUMNS * 32)
mean_response(const double* shares, const double* ridge, const double* slopes, int groups, const double* values,
              const double* typical, double mix, int d, double* out) {
  __shared__ double shared[32][COLUMNS];
  int k = blockIdx.x * COLUMNS + threadIdx.x;
  double total = 0.0;
  if (k < d)
    for (int g = threadIdx.y; g < groups; g += 32) {
      double base = values[k] + ridge[g];
      total += shares[g] * ((1.0 - mix) / base + mix / (base + slopes[g] * typical[k]));
    }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y == 0 && k < d) {
    for (int lane = 1; lane < 32; lane++) total += shared[lane][threadIdx.x];
    out[k] = total;
  }
}

// better = shift + (strength mean + rest - shift) / (1 + strength response); answer = (shift - better) response.
extern "C" __global__ void corrected_shift(const double* shift, const double* mean, const double* strength,
                                           const double* response, const double* rest, int d, double* better,
                                           double* answer) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= d) return;
  double missing = strength[k] * mean[k] + (rest == nullptr ? 0.0 : rest[k]) - shift[k];
  double change = missing / (1.0 + strength[k] * response[k]);
  better[k] = shift[k] + change;
  answer[k] = -(response[k] * change);
}

// parts[b] = sums of three columns over the block's rows; 256 threads.
extern "C" __global__ void __launch_bounds__(256)
sum_triples(const double* triples, long long n, long long rows_per_block, double* parts) {
  __shared__ double shared[8][3];
  long long first = blockIdx.x * rows_per_block, last = min(first + rows_per_block, n);
  double sums[3] = {0.0, 0.0, 0.0};
  for (long long i = first + threadIdx.x; i < last; i += 256)
    for (int c = 0; c < 3; c++) sums[c] += triples[3 * i + c];
  for (int c = 0; c < 3; c++) {
    for (int offset = 16; offset >= 1; offset /= 2) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], offset);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32][c] = sums[c];
  }
  __syncthreads();
  if (threadIdx.x < 3) {
    double total = 0.0;
    for (int warp = 0; warp < 8; warp++) total += shared[warp][threadIdx.x];
    parts[3 * blockIdx.x + threadIdx.x] = total;
  }
}

// Split a matrix into its diagonal and the rest, and scale the rest by 1 / sqrt(diagonal + ridge) on both sides.
extern "C" __global__ void split_diagonal(const double* matrix, int d, double ridge, double* values, double* rest,
                                          double* scaled) {
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)d * d) return;
  long long i = at / d, j = at % d;
  double a = matrix[i * d + i] + ridge, b = matrix[j * d + j] + ridge, value = i == j ? 0.0 : matrix[at];
  if (i == j) values[i] = matrix[at];
  rest[at] = value;
  scaled[at] = a > 0.0 && b > 0.0 ? value / sqrt(a * b) : value == 0.0 ? 0.0 : 1e100;
}

// |x_i|^2; a warp per row.
extern "C" __global__ void squared_norms(const float* x, long long n, int d, double* out) {
  long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
  int lane = threadIdx.x % 32;
  if (i >= n) return;
  double total = 0.0;
  for (int k = lane; k < d; k += 32) total += (double)x[i * d + k] * x[i * d + k];
  for (int offset = 16; offset >= 1; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
  if (lane == 0) out[i] = total;
}

// x_i += v for 32 rows a block.
extern "C" __global__ void __launch_bounds__(256) add_vector(const double* vector, long long n, int d, float* x) {
  long long first = (long long)blockIdx.x * 32, last = min(first + 32, n);
  for (int k = threadIdx.x; k < d; k += 256) {
    float v = (float)vector[k];
    for (long long i = first; i < last; i++) x[i * d + k] += v;
  }
}
