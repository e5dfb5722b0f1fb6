// Improve all rows by preconditioned conjugate gradients, in the basis where the shared matrix is diagonal (cpu/cg.py
// does the same, with the same names). One block of threads does a row of moderate length from start to end. A long row
// is split into chunks of entries that many blocks share: chunk kernels write partial sums, row kernels add them in
// order and take the step.

constexpr float TINY = 1e-30f;

struct Shared {  // terms that all rows have in common
  const float* diagonal;
  const float* shift;
  const float* vector;  // rank-one term, or null
  const float* left_over;  // the off-diagonal part of the shared matrix times this row's x, or null
  const float* own;        // what is added to this row's right-hand side, or null; always null if OWN is 0
};

// Return the vector of row i, or null where there are none.
__device__ inline const float* vector_of(const float* vectors, long long i) {
  return vectors == nullptr ? nullptr : vectors + i * D;
}

struct Row {  // the state of a row from one step to the next
  float ridge, pull, tx, gain, rz, goal, step_rz;
  int active;
  double loss, residual;
};

// Compute r and p from x and the sum over the entries. `parts` holds `count` partial sums of length D.
__device__ inline void begin_row(const Shared& all, float* x, const float* parts, int count, bool empty, float tolerance,
                                 float* r, float* p, Row& row) {
  float dots[2] = {0.0f, 0.0f};
  if (all.vector != nullptr) {
    for (int k = threadIdx.x; k < D; k += THREADS) {
      float t = all.vector[k];
      dots[0] += t * x[k];
      dots[1] += t * t / (all.diagonal[k] + row.ridge);
    }
    sum_over_block(dots);
    row.tx = dots[0];
    row.gain = row.pull / (1.0f + row.pull * dots[1]);
  }
  float sums[3] = {0.0f, 0.0f, 0.0f};
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float h = all.diagonal[k] + row.ridge, of_entries = 0.0f;
    for (int c = 0; c < count; c++) of_entries += parts[(long long)c * D + k];
    float rk = of_entries - all.shift[k] - h * x[k];
    if (all.left_over != nullptr && !empty) rk -= all.left_over[k];
    if (all.own != nullptr) rk += all.own[k];
    if (all.vector != nullptr) {
      rk -= row.pull * row.tx * all.vector[k];
      sums[2] += all.vector[k] / h * rk;
    }
    r[k] = rk;
    p[k] = rk / h;
    sums[0] += rk * p[k];
    sums[1] += rk * rk;
  }
  sum_over_block(sums);
  row.rz = sums[0];
  row.residual = sums[1];
  if (all.vector != nullptr) {
    row.rz -= row.gain * sums[2] * sums[2];
    for (int k = threadIdx.x; k < D; k += THREADS)
      p[k] -= row.gain * sums[2] * all.vector[k] / (all.diagonal[k] + row.ridge);
  }
  if (empty) {  // without entries the preconditioner is the matrix itself
    float loaded[1] = {0.0f};
    for (int k = threadIdx.x; k < D; k += THREADS) {
      float right = all.own == nullptr ? -all.shift[k] : all.own[k] - all.shift[k];
      x[k] = right / (all.diagonal[k] + row.ridge);
      if (all.vector != nullptr) loaded[0] += all.vector[k] * x[k];
    }
    if (all.vector != nullptr) {
      sum_over_block(loaded);
      for (int k = threadIdx.x; k < D; k += THREADS)
        x[k] -= row.gain * loaded[0] * all.vector[k] / (all.diagonal[k] + row.ridge);
    }
    row.rz = 0.0f;
  }
  row.goal = fmaxf(row.rz * tolerance * tolerance, TINY);
  row.active = row.rz > row.goal;
}

// Take a step along p. `curvature` is sum c (p.y)^2, `parts` (unused in the last step) are partial sums of c (p.y) y.
__device__ inline void step_row(const Shared& all, float* x, const float* parts, int count, double curvature, bool last,
                                float relaxation, float* r, float* p, Row& row) {
  float sums[3] = {0.0f, 0.0f, 0.0f};
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float h = all.diagonal[k] + row.ridge;
    sums[0] += h * p[k] * p[k];
    // What the entries add to the residual: all other terms are taken off it again.
    float of_entries = r[k] + all.shift[k] + h * x[k] + (all.left_over == nullptr ? 0.0f : all.left_over[k]);
    if (all.own != nullptr) of_entries -= all.own[k];
    sums[1] += p[k] * of_entries;
    if (all.vector != nullptr) sums[2] += all.vector[k] * p[k];
  }
  sum_over_block(sums);
  float shared = sums[0], slope = sums[1], tp = sums[2];
  if (all.vector != nullptr) {
    shared += row.pull * tp * tp;
    slope += row.pull * row.tx * tp;
  }
  float length = row.rz / ((float)curvature + shared);
  if (last) length *= relaxation;
  // The loss is a parabola in the step's length whose three coefficients are known.
  row.loss += (double)length * ((double)length * curvature - 2.0 * (double)slope);
  float next[2] = {0.0f, 0.0f};
  for (int k = threadIdx.x; k < D; k += THREADS) {
    x[k] += length * p[k];
    if (!last) {
      float h = all.diagonal[k] + row.ridge, of_entries = 0.0f;
      for (int c = 0; c < count; c++) of_entries += parts[(long long)c * D + k];
      if (all.vector != nullptr) of_entries += row.pull * tp * all.vector[k];
      r[k] -= length * (of_entries + h * p[k]);
      next[0] += r[k] * r[k] / h;
      if (all.vector != nullptr) next[1] += all.vector[k] / h * r[k];
    }
  }
  if (last) {
    row.active = 0;
    return;
  }
  sum_over_block(next);
  float rz = next[0];
  if (all.vector != nullptr) {
    row.tx += length * tp;
    rz -= row.gain * next[1] * next[1];
  }
  float beta = rz / row.rz;
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float h = all.diagonal[k] + row.ridge;
    p[k] = r[k] / h + beta * p[k];
    if (all.vector != nullptr) p[k] -= row.gain * next[1] * all.vector[k] / h;
  }
  row.rz = rz;
  row.active = rz > row.goal;
}

// Write loss, squared residual and ridge |x|^2 of a row.
__device__ inline void finish_row(const float* x, const Row& row, double* sums) {
  float square[1] = {0.0f};
  for (int k = threadIdx.x; k < D; k += THREADS) square[0] += x[k] * x[k];
  sum_over_block(square);
  if (threadIdx.x == 0) {
    sums[0] = row.loss;
    sums[1] = row.residual;
    sums[2] = (double)row.ridge * (double)square[0];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
improve_rows(const long long* indptr, const int* indices, const float* weights, const int* rows, const STORAGE* other,
             const float* diagonal, const float* ridge, const float* shift, const float* vector, const float* pulls,
             const float* left_over, const float* own, int steps, float tolerance, float relaxation, float* solved, double* sums) {
  extern __shared__ float memory[];
  // parts: GROUPS x D, cache: CACHED x GROUPS x BATCH vectors
  float *cache = memory, *r = memory + CACHED * BATCH * WARPS * 32 * LANE, *p = r + D, *parts = p + D;
  Place at;
  long long i = rows[blockIdx.x], start = indptr[i], stop = indptr[i + 1];
  Shared all = {diagonal, shift, vector, vector_of(left_over, i), vector_of(OWN ? own : nullptr, i)};
  float* x = solved + i * D;
  Row row;
  row.ridge = ridge[i];
  row.pull = vector == nullptr ? 0.0f : pulls[i];
  float along[LANE], sum[LANE];
#pragma unroll
  for (int v = 0; v < LANE; v++) sum[v] = 0.0f;
  read_vector(x, at, along);
  double loss = pass<true, true, KEEP>(indices, weights, start, stop, other, 1.0f, along, at, sum, cache);
  write_vector(sum, at, parts + at.group * D);
  row.loss = sum_over_groups(loss, at);
  begin_row(all, x, parts, GROUPS, start == stop, tolerance, r, p, row);
  for (int step = 0; step < steps && row.active; step++) {
    bool last = step + 1 == steps;
    __syncthreads();  // p is complete
    read_vector(p, at, along);
#pragma unroll
    for (int v = 0; v < LANE; v++) sum[v] = 0.0f;
    double curvature;
    if (last) {
      curvature = pass<false, false, TAKE>(indices, weights, start, stop, other, 0.0f, along, at, sum, cache);
    } else {
      curvature = pass<false, true, TAKE>(indices, weights, start, stop, other, 0.0f, along, at, sum, cache);
      write_vector(sum, at, parts + at.group * D);
    }
    curvature = sum_over_groups(curvature, at);
    step_row(all, x, parts, GROUPS, curvature, last, relaxation, r, p, row);
  }
  finish_row(x, row, sums + 3 * i);
}

// The arrays of a long row: r and p are D floats each, state is its Row. Chunks of a row are contiguous.
struct Chunks {
  const int* of_row;  // which long row a chunk belongs to
  const long long* start;
  const long long* stop;
};

// Make the first pass over a chunk's entries: partial sums of c (1 - x.y) y, and the loss.
extern "C" __global__ void __launch_bounds__(THREADS)
residual_chunks(const int* indices, const float* weights, const int* rows, const int* chunk_row,
                const long long* chunk_start, const long long* chunk_stop, const STORAGE* other, float target,
                const float* solved, float* parts, double* losses) {
  extern __shared__ float memory[];
  Place at;
  int c = blockIdx.x;
  float along[LANE], sum[LANE];
#pragma unroll
  for (int v = 0; v < LANE; v++) sum[v] = 0.0f;
  read_vector(solved + (long long)rows[chunk_row[c]] * D, at, along);
  double loss = pass<true, true, NONE>(indices, weights, chunk_start[c], chunk_stop[c], other, target, along, at, sum);
  write_vector(sum, at, memory + at.group * D);
  loss = sum_over_groups(loss, at);
  for (int k = threadIdx.x; k < D; k += THREADS) {
    float total = 0.0f;
    for (int g = 0; g < GROUPS; g++) total += memory[g * D + k];
    parts[(long long)c * D + k] = total;
  }
  if (threadIdx.x == 0) losses[c] = loss;
}

extern "C" __global__ void __launch_bounds__(THREADS)
begin_long_rows(const int* rows, const long long* first_chunk, const float* diagonal, const float* ridge,
                const float* shift, const float* vector, const float* pulls, const float* left_over, const float* own,
                float tolerance, const float* parts, const double* losses, float* solved, float* residuals, float* directions, Row* state) {
  int l = blockIdx.x;
  long long i = rows[l], first = first_chunk[l], count = first_chunk[l + 1] - first;
  Shared all = {diagonal, shift, vector, vector_of(left_over, i), vector_of(OWN ? own : nullptr, i)};
  Row row;
  row.ridge = ridge[i];
  row.pull = vector == nullptr ? 0.0f : pulls[i];
  row.loss = 0.0;
  for (long long c = 0; c < count; c++) row.loss += losses[first + c];
  begin_row(all, solved + i * D, parts + first * D, count, false, tolerance, residuals + (long long)l * D,
            directions + (long long)l * D, row);
  if (threadIdx.x == 0) state[l] = row;
}

// Make the pass of a later step over a chunk's entries; the last step needs no partial sums of c (p.y) y.
extern "C" __global__ void __launch_bounds__(THREADS)
product_chunks(const int* indices, const float* weights, const int* chunk_row, const long long* chunk_start,
               const long long* chunk_stop, const STORAGE* other, const float* directions, const Row* state, int last,
               float* parts, double* curvatures) {
  extern __shared__ float memory[];
  Place at;
  int c = blockIdx.x, l = chunk_row[c];
  if (!state[l].active) return;
  float along[LANE], sum[LANE];
#pragma unroll
  for (int v = 0; v < LANE; v++) sum[v] = 0.0f;
  read_vector(directions + (long long)l * D, at, along);
  double curvature;
  if (last) {
    curvature = pass<false, false, NONE>(indices, weights, chunk_start[c], chunk_stop[c], other, 0.0f, along, at, sum);
    curvature = sum_over_groups(curvature, at);
  } else {
    curvature = pass<false, true, NONE>(indices, weights, chunk_start[c], chunk_stop[c], other, 0.0f, along, at, sum);
    write_vector(sum, at, memory + at.group * D);
    curvature = sum_over_groups(curvature, at);
    for (int k = threadIdx.x; k < D; k += THREADS) {
      float total = 0.0f;
      for (int g = 0; g < GROUPS; g++) total += memory[g * D + k];
      parts[(long long)c * D + k] = total;
    }
  }
  if (threadIdx.x == 0) curvatures[c] = curvature;
}

extern "C" __global__ void __launch_bounds__(THREADS)
step_long_rows(const int* rows, const long long* first_chunk, const float* diagonal, const float* shift,
               const float* vector, const float* left_over, const float* own, int last, float relaxation,
               const float* parts, const double* curvatures, float* solved, float* residuals, float* directions, Row* state) {
  int l = blockIdx.x;
  Row row = state[l];
  if (!row.active) return;
  long long i = rows[l], first = first_chunk[l], count = first_chunk[l + 1] - first;
  double curvature = 0.0;
  for (long long c = 0; c < count; c++) curvature += curvatures[first + c];
  Shared all = {diagonal, shift, vector, vector_of(left_over, i), vector_of(OWN ? own : nullptr, i)};
  step_row(all, solved + i * D, parts + first * D, count, curvature, last, relaxation,
           residuals + (long long)l * D, directions + (long long)l * D, row);
  if (threadIdx.x == 0) state[l] = row;
}

extern "C" __global__ void __launch_bounds__(THREADS)
finish_long_rows(const int* rows, const float* solved, const Row* state, double* sums) {
  long long i = rows[blockIdx.x];
  Row row = state[blockIdx.x];
  finish_row(solved + i * D, row, sums + 3 * i);
}
