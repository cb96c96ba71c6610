// Batch norm as its readers see it, and the partial sums that it is made of
#pragma once

#include "instructions.cuh"

#define EPSILON 1e-5f

enum Shortcut { NONE, IDENTITY, PADDED, PROJECTED };  // what is added to a block's second norm

// One batch norm as its reader sees it. sums: [K][blocks][2][C] rows of Σy and Σy²; blocks = 0: the moments are given
struct Norm {
  const float* sums;
  float* moments;  // [K][2][channels]: mean and biased variance; written by the first reader
  const float *gamma, *beta;
  int blocks;
  float inverse;  // 1 / number of values per channel
};

// The total of `count` rows of 2 C floats, to total[2 C]. Scratch: THREADS * 4 floats.
template <int C, int THREADS> DEVICE void column_sums(const float* rows, int count, float* scratch, float* total) {
  constexpr int COLUMNS = C / 2, GROUPS = THREADS / COLUMNS;  // columns of four floats
  static_assert(THREADS >= 2 * C, "a thread a column");
  const int column = threadIdx.x % COLUMNS, group = threadIdx.x / COLUMNS;
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
  for (int row = group; row < count; row += GROUPS) {
    const float4 v = reinterpret_cast<const float4*>(rows)[row * COLUMNS + column];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  reinterpret_cast<float4*>(scratch)[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < 2 * C) {
    float s = 0.f;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) s += scratch[g * 2 * C + threadIdx.x];
    total[threadIdx.x] = s;
  }
  __syncthreads();
}

// A norm of y is y * line.x + line.y
DEVICE float2 norm_line(float gamma, float beta, float mean, float variance) {
  const float factor = gamma * rsqrtf(variance + EPSILON);
  return make_float2(factor, beta - mean * factor);
}

// norm(y) = y * scale + shift of network k, for all C channels; `writes`: whether the moments are put down here.
// Scratch: THREADS * 4 + 2 C floats. `keep`: room for this block's own copy of mean and variance, which must not be read
// back from memory that another block of the same launch may not have written yet. OPTIONAL: without gamma there is no
// norm to be applied. The caller synchronises.
template <int C, int THREADS, bool OPTIONAL = false>
DEVICE void scale_and_shift(const Norm& n, int k, bool writes, int parameters, int channels, float* scratch,
                            float* scale, float* shift, float* keep = nullptr) {
  const int c = threadIdx.x;
  if (OPTIONAL && !n.gamma) {
    if (c < C) scale[c] = 1.f, shift[c] = 0.f;
    return;
  }
  float* moments = n.moments + (size_t)k * 2 * channels;
  float* total = scratch + THREADS * 4;
  if (n.blocks) column_sums<C, THREADS>(n.sums + (size_t)k * n.blocks * 2 * C, n.blocks, scratch, total);
  if (c < C) {
    float mean, variance;
    if (n.blocks) {
      mean = total[c] * n.inverse;
      variance = fmaxf(total[C + c] * n.inverse - mean * mean, 0.f);
      if (writes) moments[c] = mean, moments[channels + c] = variance;
    } else {
      mean = moments[c], variance = moments[channels + c];
    }
    if (keep) keep[c] = mean, keep[C + c] = variance;
    const size_t at = (size_t)k * parameters + c;
    const float2 line = norm_line(n.gamma[at], n.beta[at], mean, variance);
    scale[c] = line.x, shift[c] = line.y;
  }
}

// A unit's row of partial sums [2][C] from what each thread holds of its channels. With SPLIT, warp w has only the
// (w % SPLIT)-th part of them. Scratch: WARPS * 2 C floats.
template <int C, int WARPS, int SPLIT = 1>
DEVICE void write_sums(float (&s1)[Channels<C>::MINE / SPLIT], float (&s2)[Channels<C>::MINE / SPLIT], float* scratch,
                       float* row, const float* factor) {
  constexpr int V = Channels<C>::V;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int i = 0; i < Channels<C>::MINE / SPLIT; i++) {
#pragma unroll
    for (int step = 4; step < 32; step <<= 1) {
      s1[i] += __shfl_xor_sync(~0u, s1[i], step);
      s2[i] += __shfl_xor_sync(~0u, s2[i], step);
    }
    if (lane < 4) {
      const int c = warp % SPLIT * (C / SPLIT) + i / V * 32 + lane * V + i % V;
      scratch[warp * 2 * C + c] = s1[i];
      scratch[warp * 2 * C + C + c] = s2[i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * C; i += WARPS * 32) {
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w += SPLIT) s += scratch[(w + i % C / (C / SPLIT)) * 2 * C + i];
    row[i] = factor && i >= C ? s * factor[i - C] : s;
  }
}

// Batch-norm backward as a line: dy = g * A + y * B + D, from the norm's sums Σg and Σ g x̂ of `blocks` rows
template <int C, int THREADS>
DEVICE void backward_line(const float* sums, int blocks, const float* moments, const float* gamma, float inverse, int k,
                          int parameters, int channels, float* scratch, float* line) {
  const int c = threadIdx.x;
  float* total = scratch + THREADS * 4;
  column_sums<C, THREADS>(sums + (size_t)k * blocks * 2 * C, blocks, scratch, total);
  if (c < C) {
    const float* m = moments + (size_t)k * 2 * channels;
    const float deviation = rsqrtf(m[channels + c] + EPSILON), A = gamma[(size_t)k * parameters + c] * deviation;
    const float B = -A * deviation * total[C + c] * inverse;
    line[c] = A, line[C + c] = B, line[2 * C + c] = -A * total[c] * inverse - B * m[c];
  }
}

// dy of 8 channels
DEVICE uint4 apply_line(uint4 g, uint4 y, const float (&A)[8], const float (&B)[8], const float (&D)[8]) {
  u32 *gs = &g.x, *ys = &y.x;
#pragma unroll
  for (int i = 0; i < 4; i++)
    gs[i] = pack(low(gs[i]) * A[2 * i] + (low(ys[i]) * B[2 * i] + D[2 * i]),
                 high(gs[i]) * A[2 * i + 1] + (high(ys[i]) * B[2 * i + 1] + D[2 * i + 1]));
  return g;
}
template <int C> DEVICE void take_line(const float* line, int c, float (&A)[8], float (&B)[8], float (&D)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i++) A[i] = line[c + i], B[i] = line[C + c + i], D[i] = line[2 * C + c + i];
}
