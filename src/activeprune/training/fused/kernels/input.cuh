// Images of a batch: gathered, cropped, flipped, normalised
#pragma once

#include "instructions.cuh"

struct Gather {
  const u8* images;            // [N][3][32][32]
  const long long* labels;     // [N]
  const int* codes;            // [K][steps][batch]: row << 9 | flip << 8 | down << 4 | right; -1: no image
  const int* step;             // [K]
  const float *scale, *shift;  // [K][4]
  uint2* output;               // [K][batch][32][32] pixels of four bf16, the last 0
  int* targets;                // [K][batch], -1: no image
  int steps, batch;
};

// One block an image: its bytes are put into shared memory, then every pixel is looked up where crop and flip say.
// The frame is black before normalisation, and the sum is rounded twice as torch rounds it.
extern "C" __global__ void __launch_bounds__(128) gather(const __grid_constant__ Gather a) {
  __shared__ __align__(16) u8 bytes[3072];
  const int k = blockIdx.y, image = blockIdx.x, tid = threadIdx.x;
  wait_for_kernel_before();
  const int code = a.codes[((size_t)k * a.steps + a.step[k]) * a.batch + image];
  uint4* output = reinterpret_cast<uint4*>(a.output + ((size_t)k * a.batch + image) * 1024);
  if (code >= 0) {
    const uint4* source = reinterpret_cast<const uint4*>(a.images + (size_t)(code >> 9) * 3072);
    for (int i = tid; i < 192; i += 128) reinterpret_cast<uint4*>(bytes)[i] = source[i];
  }
  if (tid == 0) a.targets[k * a.batch + image] = code < 0 ? -1 : (int)a.labels[code >> 9];
  __syncthreads();
  const bool flip = code >> 8 & 1;
  const int down = (code >> 4 & 15) - 4, right = (code & 15) - 4;
#pragma unroll
  for (int i = tid; i < 512; i += 128) {  // pairs of pixels
    u32 words[4] = {0, 0, 0, 0};
    if (code >= 0) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int column = 2 * i % 32 + half, h = i / 16 + down, w = (flip ? 31 - column : column) + right;
        const bool inside = h >= 0 && h < 32 && w >= 0 && w < 32;
        float v[3];
#pragma unroll
        for (int c = 0; c < 3; c++) {
          const float byte = inside ? (float)bytes[c * 1024 + h * 32 + w] : 0.f;
          v[c] = __fadd_rn(__fmul_rn(byte, a.scale[k * 4 + c]), a.shift[k * 4 + c]);
        }
        words[2 * half] = pack(v[0], v[1]);
        words[2 * half + 1] = pack(v[2], 0.f);
      }
    }
    output[i] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}
