// Pooling, linear layer, loss and their gradients
#pragma once

#include "norms.cuh"

struct Head {
  const uint4 *output, *shortcut;
  uint4* gradient;
  Norm norm, shortcut_norm;
  const float *weight, *bias;  // in the parameters: [classes][64], [classes]
  const int* targets;
  float *sums, *weight_sums, *bias_sums;  // [K][blocks][2][64], [classes][64], [classes]
  float* losses;                          // [K][blocks][2]: loss and right answers, summed
  float smoothing;
  int kind, classes, parameters, channels, images;
};

DEVICE float warp_sum(float v) {
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) v += __shfl_xor_sync(~0u, v, step);
  return v;
}

// Pooling, linear layer, cross-entropy and their gradients. A warp has one image: a lane has 8 channels (lane & 7) of
// every fourth pixel. Behind the ReLU a channel's gradient is one number wherever the ReLU let through, so the norm's
// sums need only how many pixels that are, and the sum of their y.
extern "C" __global__ void __launch_bounds__(256) head(const __grid_constant__ Head a) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float moments[2 * 64];
  const int classes = a.classes, k = blockIdx.y, tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  float *scale = memory, *shift = scale + 64, *shortcut_scale = shift + 64, *extra = shortcut_scale + 64;
  float *scratch = memory + 256, *pools = scratch + 8 * 128 + 128, *slopes = pools + 8 * 64,
        *results = slopes + 8 * classes;
  wait_for_kernel_before();
  scale_and_shift<64, 256, true>(a.norm, k, blockIdx.x == 0, a.parameters, a.channels, scratch, scale, shift, moments);
  __syncthreads();
  if (a.kind == PROJECTED) {
    scale_and_shift<64, 256>(a.shortcut_norm, k, blockIdx.x == 0, a.parameters, a.channels, scratch, shortcut_scale,
                             extra);
    if (tid < 64) shift[tid] += extra[tid];
  } else if (tid < 64) {
    shortcut_scale[tid] = 1.f;
  }
  __syncthreads();

  const float4* weight4 = reinterpret_cast<const float4*>(a.weight + (size_t)k * a.parameters);
  const float* bias = a.bias + (size_t)k * a.parameters;
  const int image = blockIdx.x * 8 + warp, own = lane & 7, part = lane >> 3;
  const size_t start = ((size_t)k * a.images + image) * 512;  // in chunks
  const bool adds = a.kind == PADDED ? own >= 2 && own < 6 : a.kind != NONE;
  float factor[8], offset[8], shortcut_factor[8], pool[8], count[8], above[8];
#pragma unroll
  for (int i = 0; i < 8; i++)
    factor[i] = scale[own * 8 + i], offset[i] = shift[own * 8 + i], shortcut_factor[i] = shortcut_scale[own * 8 + i];
  clear(pool), clear(count), clear(above);
  u32 on[4] = {0, 0, 0, 0};  // a bit a value: whether the ReLU let it through
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int p = part + 4 * i;
    uint4 y = a.output[start + p * 8 + own], e = make_uint4(0, 0, 0, 0);
    if (adds) {  // a padded shortcut: 16x16 pixels of 32 channels
      const size_t padded = ((size_t)k * a.images + image) * 1024 + (p / 8) * 128 + p % 8 * 8 + own - 2;
      e = a.shortcut[a.kind == PADDED ? padded : start + p * 8 + own];
    }
    const u32 *ys = &y.x, *es = &e.x;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const float v = c & 1 ? high(ys[c / 2]) : low(ys[c / 2]), s = c & 1 ? high(es[c / 2]) : low(es[c / 2]);
      const float x = low(pack_relu(v * factor[c] + (s * shortcut_factor[c] + offset[c]), 0.f));
      pool[c] += x;
      if (x > 0.f) on[i / 4] |= 1u << (i % 4 * 8 + c), count[c] += 1.f, above[c] += v;
    }
  }
#pragma unroll
  for (int c = 0; c < 8; c++) {
    pool[c] += __shfl_xor_sync(~0u, pool[c], 8);
    pool[c] = (pool[c] + __shfl_xor_sync(~0u, pool[c], 16)) * (1.f / 64);
    if (part == 0) pools[warp * 64 + own * 8 + c] = pool[c];
  }

  float* logits = slopes + warp * classes;
  for (int first = 0; first < classes; first += 4) {
    const int j = first + part;
    float z = 0.f;
    if (j < classes) {
      const float4 w0 = weight4[j * 16 + own * 2], w1 = weight4[j * 16 + own * 2 + 1];
      z = pool[0] * w0.x + pool[1] * w0.y + pool[2] * w0.z + pool[3] * w0.w + pool[4] * w1.x + pool[5] * w1.y +
          pool[6] * w1.z + pool[7] * w1.w;
    }
#pragma unroll
    for (int step = 1; step < 8; step <<= 1) z += __shfl_xor_sync(~0u, z, step);
    if (own == 0 && j < classes) logits[j] = z + bias[j];
  }
  __syncwarp();
  const int target = a.targets[k * a.images + image];
  float top = -__int_as_float(0x7f800000), total = 0.f, sum = 0.f;
  int best = classes;
  for (int j = lane; j < classes; j += 32) {
    if (logits[j] > top) top = logits[j], best = j;
    sum += logits[j];
  }
#pragma unroll
  for (int step = 1; step < 32; step <<= 1) {
    const float other = __shfl_xor_sync(~0u, top, step);
    const int index = __shfl_xor_sync(~0u, best, step);
    if (other > top || (other == top && index < best)) top = other, best = index;
  }
  for (int j = lane; j < classes; j += 32) total += expf(logits[j] - top);
  total = warp_sum(total), sum = warp_sum(sum);
  const float normaliser = logf(total) + top, even = a.smoothing / classes;
  if (lane == 0) {
    const float hit = target < 0 ? 0.f : logits[target];
    results[2 * warp] = target < 0 ? 0.f : normaliser - (1.f - a.smoothing) * hit - even * sum;
    results[2 * warp + 1] = target >= 0 && best == target ? 1.f : 0.f;
  }
  const size_t block = (size_t)k * gridDim.x + blockIdx.x;
  __syncthreads();
  if (tid < 2) {
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < 8; w++) s += results[2 * w + tid];
    a.losses[block * 2 + tid] = s;
  }
  if (!a.gradient) return;  // not in training
  for (int j = lane; j < classes; j += 32)
    logits[j] = (expf(logits[j] - top) / total - even - (j == target ? 1.f - a.smoothing : 0.f)) / a.images;
  __syncwarp();

  float slope[8];
  clear(slope);
#pragma unroll 5
  for (int j = 0; j < classes; j++) {
    const float4 w0 = weight4[j * 16 + own * 2], w1 = weight4[j * 16 + own * 2 + 1];
    const float z = logits[j];
    slope[0] += z * w0.x, slope[1] += z * w0.y, slope[2] += z * w0.z, slope[3] += z * w0.w;
    slope[4] += z * w1.x, slope[5] += z * w1.y, slope[6] += z * w1.z, slope[7] += z * w1.w;
  }
#pragma unroll
  for (int c = 0; c < 8; c++) slope[c] = low(pack(slope[c] * (1.f / 64), 0.f));
#pragma unroll
  for (int i = 0; i < 16; i++) {
    uint4 g;
    u32* gs = &g.x;
#pragma unroll
    for (int c = 0; c < 8; c += 2) {
      const u32 bits = on[i / 4] >> (i % 4 * 8 + c);
      gs[c / 2] = pack(bits & 1 ? slope[c] : 0.f, bits & 2 ? slope[c + 1] : 0.f);
    }
    a.gradient[start + (part + 4 * i) * 8 + own] = g;
  }
#pragma unroll
  for (int c = 0; c < 8; c++) {
    const int channel = own * 8 + c;
    float s1 = slope[c] * count[c], s2 = slope[c] * (above[c] - count[c] * moments[channel]);
    s1 += __shfl_xor_sync(~0u, s1, 8), s2 += __shfl_xor_sync(~0u, s2, 8);
    s1 += __shfl_xor_sync(~0u, s1, 16), s2 += __shfl_xor_sync(~0u, s2, 16);
    if (part == 0) scratch[warp * 128 + channel] = s1, scratch[warp * 128 + 64 + channel] = s2;
  }
  __syncthreads();

  if (tid < 128) {
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < 8; w++) s += scratch[w * 128 + tid];
    if (tid >= 64) s *= rsqrtf(moments[tid] + EPSILON);
    a.sums[block * 128 + tid] = s;
  }
  for (int i = tid; i < classes * 64; i += 256) {
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < 8; w++) s += slopes[w * classes + i / 64] * pools[w * 64 + i % 64];
    a.weight_sums[block * classes * 64 + i] = s;
  }
  for (int j = tid; j < classes; j += 256) {
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < 8; w++) s += slopes[w * classes + j];
    a.bias_sums[block * classes + j] = s;
  }
}
