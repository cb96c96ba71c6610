// The first convolution, forward and backward
#pragma once

#include "norms.cuh"
#include "products.cuh"

// The first convolution has 3 (stored: 4) input channels. A kernel row is a run of four pixels, 16 numbers, the last
// pixel with weights of 0, so the convolution is a product with K = 3 rows * 16. Tile: 8 rows of 32 pixels and a frame.
constexpr int STEM_ROWS = 8, STEM_COLUMNS = 36, STEM_PIXELS = STEM_ROWS * 32;

// Rows first - 1 .. first + 8 of an image, zeros around, pixel (h, w) at tile[(h - first + 1) * 36 + w + 1]; with
// `twice` once more behind that, one pixel further left
DEVICE void load_stem_tile(uint2* tile, const uint2* image, int first, bool twice) {
  for (int i = threadIdx.x; i < (STEM_ROWS + 2) * STEM_COLUMNS; i += blockDim.x) {
    const int h = first - 1 + i / STEM_COLUMNS, w = i % STEM_COLUMNS - 1;
    const uint2 pixel = h >= 0 && h < 32 && w >= 0 && w < 32 ? image[h * 32 + w] : make_uint2(0, 0);
    tile[i] = pixel;
    if (twice && i) tile[(STEM_ROWS + 2) * STEM_COLUMNS + i - 1] = pixel;
  }
}

struct StemForward {
  const uint2* input;
  const uint4* weights;
  bf16* output;
  float* sums;
  int weight_pitch, images, tiles, per_block;
};

// 4 warps, each 2 of the tile's 8 rows (M = 4 times 16 pixels)
extern "C" __global__ void __launch_bounds__(128) stem_forward(const __grid_constant__ StemForward a) {
  __shared__ __align__(16) uint2 tile[(STEM_ROWS + 2) * STEM_COLUMNS];
  __shared__ float scratch[4 * 2 * 16];
  const int k = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const uint2* input = a.input + (size_t)k * a.images * 1024;
  bf16* output = a.output + (size_t)k * a.images * 1024 * 16;
  Weights<48, 16, 1, REGISTERS> w;
  w.fetch(a.weights + (size_t)k * a.weight_pitch, nullptr);
  wait_for_kernel_before();
  float s1[4], s2[4];
  clear(s1), clear(s2);
  const int end = min(a.tiles, (int)(blockIdx.x + 1) * a.per_block);
  for (int t = blockIdx.x * a.per_block; t < end; t++) {
    __syncthreads();
    load_stem_tile(tile, input + (size_t)(t / 4) * 1024, t % 4 * STEM_ROWS, false);
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 4; m++) {
      const int q = (warp * 4 + m) * 16 + (lane >> 2);  // pixel of the tile, and q + 8
      float acc[1][2][4];
      clear(acc);
#pragma unroll
      for (int row = 0; row < 3; row++) {
        // two neighbouring numbers of pixels q and q + 8: a lane's A fragment, 8-byte steps that ldmatrix cannot take
        const u32* from = reinterpret_cast<const u32*>(tile + (q / 32 + row) * STEM_COLUMNS + q % 32) + (lane & 3);
        const u32 fragment[4] = {from[0], from[16], from[4], from[20]};
        const uint4 b = w.fragment(0, row, 0);
        multiply(acc[0][0], fragment, b.x, b.y);
        multiply(acc[0][1], fragment, b.z, b.w);
      }
#pragma unroll
      for (int half = 0; half < 2; half++) {
        Pack<4> v;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          v.pair[i] = pack(acc[0][i][2 * half], acc[0][i][2 * half + 1]);
          const float f0 = low(v.pair[i]), f1 = high(v.pair[i]);
          s1[2 * i] += f0, s2[2 * i] += f0 * f0, s1[2 * i + 1] += f1, s2[2 * i + 1] += f1 * f1;
        }
        store<4>(output + ((size_t)t * STEM_PIXELS + q + half * 8) * 16 + (lane & 3) * 4, v);
      }
    }
  }
  if (a.sums) write_sums<16, 4>(s1, s2, scratch, a.sums + ((size_t)k * gridDim.x + blockIdx.x) * 32, nullptr);
}

struct StemBackward {
  const uint4 *gradient, *output;
  const uint2* input;
  const float *sums, *moments, *gamma;
  float* weight_sums;  // [K][blocks][3][16][16]
  float inverse;
  int sum_blocks, parameters, channels, images, tiles, per_block;
};

// 8 warps; each takes 16 of the tile's 256 pixels at a time and adds to a [48 x 16] product of its own: input
// transposed (48 = 3 kernel rows of 16) times dy. Input rows start at any pixel but ldmatrix wants 16-byte steps, so
// the tile stands twice in shared memory, the second time one pixel further left, for odd pixels.
extern "C" __global__ void __launch_bounds__(256) stem_backward(const __grid_constant__ StemBackward a) {
  constexpr int TILE = (STEM_ROWS + 2) * STEM_COLUMNS, PITCH = 48;  // bytes of a dy pixel: 16 channels and a gap
  __shared__ __align__(16) float memory[8 * 768];
  __shared__ float line[3 * 16];
  u8* dy = reinterpret_cast<u8*>(memory);
  uint2* tile = reinterpret_cast<uint2*>(dy + STEM_PIXELS * PITCH);
  const int k = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  wait_for_kernel_before();
  backward_line<16, 256>(a.sums, a.sum_blocks, a.moments, a.gamma, a.inverse, k, a.parameters, a.channels, memory,
                         line);
  __syncthreads();
  const size_t start = (size_t)k * a.images * 2048;  // in chunks
  const uint2* input = a.input + (size_t)k * a.images * 1024;
  float A[8], B[8], D[8], acc[3][2][4];
  take_line<16>(line, tid % 2 * 8, A, B, D);
  clear(acc);
  const int end = min(a.tiles, (int)(blockIdx.x + 1) * a.per_block);
  for (int t = blockIdx.x * a.per_block; t < end; t++) {
    __syncthreads();
    load_stem_tile(tile, input + (size_t)(t / 4) * 1024, t % 4 * STEM_ROWS, true);
#pragma unroll
    for (int i = tid; i < STEM_PIXELS * 2; i += 256) {
      const size_t chunk = start + (size_t)t * STEM_PIXELS * 2 + i;
      *reinterpret_cast<uint4*>(dy + i / 2 * PITCH + i % 2 * 16) =
          apply_line(a.gradient[chunk], a.output[chunk], A, B, D);
    }
    __syncthreads();
#pragma unroll
    for (int part = warp; part < STEM_PIXELS / 16; part += 8) {
      const int q = part * 16 + (lane & 15), p = part * 16 + (lane & 7) + ((lane >> 4) << 3), w = p % 32;
      u32 b[4];
      load_transposed(b, shared_address(dy) + q * PITCH + (lane >> 4) * 16);
#pragma unroll
      for (int row = 0; row < 3; row++) {
        u32 f[4];
        load_transposed(f, shared_address(tile + (w & 1) * TILE + (p / 32 + row) * STEM_COLUMNS + (w & ~1)) +
                               ((lane >> 3) & 1) * 16);
        multiply(acc[row][0], f, b[0], b[1]);
        multiply(acc[row][1], f, b[2], b[3]);
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int row = 0; row < 3; row++)
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        memory[warp * 768 + (row * 16 + (lane >> 2) + i / 2 * 8) * 16 + n * 8 + (lane & 3) * 2 + i % 2] =
            acc[row][n][i];
  __syncthreads();
  float* out = a.weight_sums + ((size_t)k * gridDim.x + blockIdx.x) * 768;
  for (int i = tid; i < 768; i += 256) {
    float s = 0.f;
#pragma unroll
    for (int part = 0; part < 8; part++) s += memory[part * 768 + i];
    out[i] = s;
  }
}
