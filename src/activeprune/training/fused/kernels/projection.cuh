// A 1x1 shortcut's two gradients
#pragma once

#include "norms.cuh"
#include "products.cuh"

struct ShortcutSums {
  const uint4 *gradient, *output;
  const float* moments;
  float* sums;                      // [K][blocks][2][C]
  int channels, chunks, per_block;  // chunks of 8 channels: of a network, of a block
};

// Σg and Σ g x̂ of a projection's norm, whose gradient g is the block's. A thread keeps to 8 channels.
template <int C> DEVICE void shortcut_sums(const ShortcutSums& a) {
  constexpr int CHUNKS = C / 8;
  __shared__ float scratch[8 * 2 * C];
  const int k = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, c = tid % CHUNKS * 8;
  const float* moments = a.moments + (size_t)k * 2 * a.channels;
  wait_for_kernel_before();
  float mean[8], s1[8], s2[8];
  clear(s1), clear(s2);
#pragma unroll
  for (int i = 0; i < 8; i++) mean[i] = moments[c + i];
  const int end = min(a.chunks, (int)(blockIdx.x + 1) * a.per_block);
#pragma unroll 4
  for (int i = blockIdx.x * a.per_block + tid; i < end; i += 256) {
    uint4 g = a.gradient[(size_t)k * a.chunks + i], y = a.output[(size_t)k * a.chunks + i];
    const u32 *gs = &g.x, *ys = &y.x;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      s1[2 * j] += low(gs[j]), s2[2 * j] += low(gs[j]) * (low(ys[j]) - mean[2 * j]);
      s1[2 * j + 1] += high(gs[j]), s2[2 * j + 1] += high(gs[j]) * (high(ys[j]) - mean[2 * j + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
#pragma unroll
    for (int step = CHUNKS; step < 32; step <<= 1) {
      s1[i] += __shfl_xor_sync(~0u, s1[i], step);
      s2[i] += __shfl_xor_sync(~0u, s2[i], step);
    }
    if (lane < CHUNKS) scratch[warp * 2 * C + c + i] = s1[i], scratch[warp * 2 * C + C + c + i] = s2[i];
  }
  __syncthreads();
  if (tid < 2 * C) {
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < 8; w++) s += scratch[w * 2 * C + tid];
    if (tid >= C) s *= rsqrtf(moments[a.channels + tid - C] + EPSILON);
    a.sums[((size_t)k * gridDim.x + blockIdx.x) * 2 * C + tid] = s;
  }
}

struct ProjectBackward {
  const uint4 *gradient, *output, *input;  // input: the block's, of twice the side
  const uint4* weights;
  bf16* input_gradient;  // at even pixels only: [K][image][SIDE][SIDE][CIN]
  const float *sums, *moments, *gamma;
  float* weight_sums;  // [K][blocks][CIN][COUT]
  float inverse;
  int sum_blocks, weight_pitch, parameters, channels, images, tiles, per_block;
};

// The 1x1 stride-2 convolution's two gradients. Tile: 128 output pixels, dy and the input beneath; 4 warps, each 32
// pixels of the input gradient, and 16 input channels times NI * 8 output channels of the weight gradient.
template <int CIN, int COUT> struct ProjectShape {
  static constexpr int THREADS = 128, PIXELS = 128, PITCH = COUT * 2 + 16, INPUT_PITCH = CIN * 2 + 16;
  static constexpr int SHARED_BYTES = COUT * 12 + PIXELS * (PITCH + INPUT_PITCH);
};
template <int CIN, int COUT> DEVICE void project_backward(const ProjectBackward& a) {
  using L = ProjectShape<CIN, COUT>;
  constexpr int SIDE = 512 / COUT, V = Channels<CIN>::V, NI = CIN / 16 * (COUT / 8) / 4, WARPS_IN = CIN / 16;
  extern __shared__ __align__(16) u8 shared[];
  float* line = reinterpret_cast<float*>(shared);
  u8 *dy = shared + COUT * 12, *inputs = dy + L::PIXELS * L::PITCH;
  const int k = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, c = tid % (COUT / 8) * 8;
  wait_for_kernel_before();
  backward_line<COUT, 128>(a.sums, a.sum_blocks, a.moments, a.gamma, a.inverse, k, a.parameters, a.channels,
                           reinterpret_cast<float*>(dy), line);
  __syncthreads();
  Weights<COUT, CIN, 1, GLOBAL> w;
  w.fetch(a.weights + (size_t)k * a.weight_pitch, nullptr);
  float A[8], B[8], D[8], sums[1][NI][4];
  take_line<COUT>(line, c, A, B, D);
  clear(sums);
  const size_t start = (size_t)k * a.images * SIDE * 64, input_start = (size_t)k * a.images * SIDE * 2 * 64;
  const int in = warp % WARPS_IN, out = warp / WARPS_IN;
  const int end = min(a.tiles, (int)(blockIdx.x + 1) * a.per_block);
  for (int t = blockIdx.x * a.per_block; t < end; t++) {
    __syncthreads();
#pragma unroll 4
    for (int i = tid; i < L::PIXELS * COUT / 8; i += 128) {
      const size_t at = start + (size_t)t * (L::PIXELS * COUT / 8) + i;
      *reinterpret_cast<uint4*>(dy + i / (COUT / 8) * L::PITCH + c * 2) =
          apply_line(a.gradient[at], a.output[at], A, B, D);
    }
#pragma unroll 4
    for (int i = tid; i < L::PIXELS * CIN / 8; i += 128) {
      const int q = t * L::PIXELS + i / (CIN / 8), row = q / SIDE, column = q % SIDE;  // row: of all images
      *reinterpret_cast<uint4*>(inputs + i / (CIN / 8) * L::INPUT_PITCH + i % (CIN / 8) * 16) =
          a.input[input_start + (size_t)row * 128 + column * (CIN / 4) + i % (CIN / 8)];
    }
    __syncthreads();
    float acc[2][CIN / 8][4];
    clear(acc);
    u32 at[2];
#pragma unroll
    for (int m = 0; m < 2; m++)
      at[m] = shared_address(dy) + (warp * 32 + m * 16 + (lane & 15)) * L::PITCH + (lane >> 4) * 16;
#pragma unroll
    for (int step = 0; step < COUT / 16; step++)
#pragma unroll
      for (int m = 0; m < 2; m++) {
        u32 f[4];
        load_matrices(f, at[m] + step * 32);
#pragma unroll
        for (int n = 0; n < CIN / 16; n++) {
          const uint4 b = w.fragment(0, step, n);
          multiply(acc[m][2 * n], f, b.x, b.y);
          multiply(acc[m][2 * n + 1], f, b.z, b.w);
        }
      }
#pragma unroll
    for (int half = 0; half < 4; half++) {
      Pack<V> v;
#pragma unroll
      for (int i = 0; i < V / 2; i++)
        v.pair[i] = pack(acc[half / 2][i][(half & 1) * 2], acc[half / 2][i][(half & 1) * 2 + 1]);
      const size_t pixel =
          (size_t)k * a.images * SIDE * SIDE + (size_t)t * L::PIXELS + warp * 32 + half * 8 + (lane >> 2);
      store<V>(a.input_gradient + pixel * CIN + (lane & 3) * V, v);
    }
#pragma unroll
    for (int step = 0; step < L::PIXELS / 16; step++) {
      u32 f[4];
      load_transposed(f, shared_address(inputs) + in * 32 + ((lane >> 3) & 1) * 16 +
                             (step * 16 + (lane & 7) + ((lane >> 4) << 3)) * L::INPUT_PITCH);
#pragma unroll
      for (int n = 0; n < NI; n++) {
        u32 b[2];
        load_transposed(b, shared_address(dy) + (step * 16 + (lane & 15)) * L::PITCH + (out * NI + n) * 16);
        multiply(sums[0][n], f, b[0], b[1]);
      }
    }
  }
  float* row = a.weight_sums + ((size_t)k * gridDim.x + blockIdx.x) * CIN * COUT;
#pragma unroll
  for (int n = 0; n < NI; n++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      *reinterpret_cast<float2*>(row + (in * 16 + (lane >> 2) + half * 8) * COUT + (out * NI + n) * 8 +
                                 (lane & 3) * 2) = make_float2(sums[0][n][2 * half], sums[0][n][2 * half + 1]);
}
