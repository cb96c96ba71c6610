// In evaluation: all 3x3 convolutions of one width behind each other, and nothing between them in the GPU's memory
#pragma once

#include "norms.cuh"
#include "products.cuh"

// What all norms are with running statistics: y * affine[k][0] + affine[k][1]
struct Affine {
  const float *parameters, *running;  // [K][P], [K][2][channels]
  const int* places;                  // [2][channels]: of scale and shift in the parameters
  float* affine;                      // [K][2][channels]
  int count, channels;                // P and channels
};

extern "C" __global__ void __launch_bounds__(256) affine(const __grid_constant__ Affine a) {
  const int k = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x;
  wait_for_kernel_before();
  if (c >= a.channels) return;
  const float* parameters = a.parameters + (size_t)k * a.count;
  const size_t at = (size_t)k * 2 * a.channels + c;
  const float2 line = norm_line(parameters[a.places[c]], parameters[a.places[a.channels + c]], a.running[at],
                                a.running[at + a.channels]);
  a.affine[at] = line.x, a.affine[at + a.channels] = line.y;
}

struct Link {  // one of the convolutions
  int weights, norm;  // where its packed weights start, in 16 bytes, and the channels of its norm among all
};

struct Series {
  const uint4* input;     // raw output of the convolution before
  const uint4* shortcut;  // where that is the first one of a block: what is added to the norm of the second, see kind
  const Link* links;
  const uint4* weights;
  const float* affine;
  bf16* output;  // of the last block: the next one's input
  int kind, count, input_norm, shortcut_norm, weight_pitch, channels, images, networks;
};

// Running statistics make a line of each norm that does not depend on the batch, so a block of threads takes IMAGES
// images through all layers. They stand in two tiles with frames of zeros: inputs of blocks, to which the second
// convolution's output is added in place, and what is between a block's two convolutions. Rounded as in `forward`.
template <int C_, int IMAGES_, int WARPS_> struct SeriesShape {
  static constexpr int C = C_, IMAGES = IMAGES_, WARPS = WARPS_, THREADS = WARPS * 32;
  static constexpr int SIDE = 512 / C, COLUMNS = SIDE + 2, PITCH = C * 2 + 16, PIXELS = IMAGES * SIDE * SIDE;
  static constexpr int M = PIXELS / 16 / WARPS, TILE_BYTES = IMAGES * COLUMNS * COLUMNS * PITCH;
  static constexpr int SHARED_BYTES = 2 * TILE_BYTES;
  static constexpr bool DOWNWARDS = SIDE >= 16;
  static constexpr bool OPENS = C == 16;  // with a block's first convolution; the others with a second one
  static_assert(M * 16 * WARPS == PIXELS && THREADS % 64 == 0, "whole warps, and a thread keeps to its channels");
  static_assert(!DOWNWARDS || SIDE % M == 0, "a warp's rows are of one image");

  static DEVICE int place(int pixel) {  // of a pixel of these images in a tile
    return ((pixel / (SIDE * SIDE) * COLUMNS + pixel / SIDE % SIDE + 1) * COLUMNS + pixel % SIDE + 1) * PITCH;
  }
};

template <int N> DEVICE void take(float (&values)[N], const float* from) {  // four, or eight of every 32
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(from + i / 8 * 32 + i % 8);
    values[i] = v.x, values[i + 1] = v.y, values[i + 2] = v.z, values[i + 3] = v.w;
  }
}

// The images' way into the tiles; `first`: their first chunk among all networks'
template <class L> DEVICE void begin_series(const Series& a, size_t first, const float* affine, u8* joined, u8* middle) {
  constexpr int CHUNKS = L::C / 8;
  const int chunk = threadIdx.x & 63, own = chunk % CHUNKS;
  // a padded shortcut comes from twice the side and half the channels, see `forward`
  const bool padded = a.kind == PADDED, adds = padded ? own >= CHUNKS / 4 && own < CHUNKS / 4 * 3 : true;
  const uint4* shortcut = a.shortcut + (padded ? 2 * first + chunk - CHUNKS / 4 : first + chunk);
  float factor[8], offset[8];
  take(factor, affine + a.input_norm + own * 8), take(offset, affine + a.channels + a.input_norm + own * 8);
#pragma unroll 4
  for (int r = threadIdx.x / 64; r < L::IMAGES * L::SIDE; r += L::THREADS / 64) {
    const int at = L::place(r * L::SIDE + chunk / CHUNKS) + own * 16;
    uint4 v = a.input[first + r * 64 + chunk];
    u32* vs = &v.x;
#pragma unroll
    for (int i = 0; i < 4; i++)
      vs[i] = pack_relu(low(vs[i]) * factor[2 * i] + offset[2 * i], high(vs[i]) * factor[2 * i + 1] + offset[2 * i + 1]);
    *reinterpret_cast<uint4*>((L::OPENS ? joined : middle) + at) = v;
    if (!L::OPENS)
      *reinterpret_cast<uint4*>(joined + at) = adds ? shortcut[r * (padded ? 128 : 64)] : make_uint4(0, 0, 0, 0);
  }
}

template <class L> DEVICE void series(const Series& a) {
  constexpr int C = L::C, V = Channels<C>::V, GROUPS = Channels<C>::GROUPS, MINE = Channels<C>::MINE;
  extern __shared__ __align__(16) u8 shared[];
  u8 *joined = shared, *middle = shared + L::TILE_BYTES;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, channel = (lane & 3) * V;
  for (int i = threadIdx.x; i < L::SHARED_BYTES / 16; i += L::THREADS)
    reinterpret_cast<uint4*>(shared)[i] = make_uint4(0, 0, 0, 0);

  int pixel[L::M];  // the first of each 16
  u32 rows[L::M];   // this lane's pixel of them, where its first tap reads
#pragma unroll
  for (int m = 0; m < L::M; m++) {
    constexpr int STRIPS = L::DOWNWARDS ? L::SIDE / 16 : 1;
    pixel[m] = L::DOWNWARDS ? (warp / STRIPS * L::M + m) * L::SIDE + warp % STRIPS * 16 : (warp * L::M + m) * 16;
    rows[m] = L::place(pixel[m] + (lane & 15)) - (L::COLUMNS + 1) * L::PITCH + (lane >> 4) * 16;
  }

  wait_for_kernel_before();
  const int groups = a.images / L::IMAGES;  // of a network
  const long long all = (long long)groups * a.networks;
  const int last = (int)(all * (blockIdx.x + 1) / gridDim.x);
  for (int group = (int)(all * blockIdx.x / gridDim.x); group < last; group++) {
    const int k = group / groups;
    const size_t first = (size_t)group * L::IMAGES * L::SIDE * 64;
    const float* affine = a.affine + (size_t)k * 2 * a.channels;
    __syncthreads();
    begin_series<L>(a, first, affine, joined, middle);
#pragma unroll 1
    for (int number = 0; number < a.count; number++) {
      const Link link = a.links[number];
      const bool second = L::OPENS == (number & 1), ends = number == a.count - 1;
      Weights<C, C, 9, GLOBAL> w;
      w.fetch(a.weights + (size_t)k * a.weight_pitch + link.weights, nullptr);
      __syncthreads();
      const u32 from = shared_address(second ? middle : joined);
      float acc[L::M][C / 8][4];
      clear(acc);
      if constexpr (L::DOWNWARDS) {
        convolve_downwards<L::COLUMNS, C, C, L::M, L::PITCH>(acc, from + rows[0], w);
      } else {
        u32 at[L::M];
#pragma unroll
        for (int m = 0; m < L::M; m++) at[m] = from + rows[m];
        convolve<AllTaps<L::COLUMNS>, C, C, L::M, L::PITCH>(acc, at, w);
      }

      float factor[MINE], offset[MINE], shortcut_factor[MINE];
      take(factor, affine + link.norm + channel), take(offset, affine + a.channels + link.norm + channel);
#pragma unroll
      for (int i = 0; i < MINE; i++) shortcut_factor[i] = 1.f;
      if (!L::OPENS && number == 0 && a.kind == PROJECTED) {
        float extra[MINE];
        const float* projected = affine + a.shortcut_norm + channel;
        take(shortcut_factor, projected), take(extra, projected + a.channels);
#pragma unroll
        for (int i = 0; i < MINE; i++) offset[i] += extra[i];
      }
#pragma unroll
      for (int m = 0; m < L::M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
          for (int g = 0; g < GROUPS; g++) {
            const int own = pixel[m] + (lane >> 2) + half * 8;
            bf16* to = reinterpret_cast<bf16*>((second ? joined : middle) + L::place(own)) + g * 32 + channel;
            Pack<V> v, e;
            if (second) e = load<V>(to);
#pragma unroll
            for (int i = 0; i < V / 2; i++) {
              const int c = g * V + 2 * i;
              const u32 y = pack(acc[m][g * 4 + i][2 * half], acc[m][g * 4 + i][2 * half + 1]);
              const float b0 = second ? low(e.pair[i]) * shortcut_factor[c] + offset[c] : offset[c];
              const float b1 = second ? high(e.pair[i]) * shortcut_factor[c + 1] + offset[c + 1] : offset[c + 1];
              v.pair[i] = pack_relu(low(y) * factor[c] + b0, high(y) * factor[c + 1] + b1);
            }
            store<V>(ends ? a.output + first * 8 + own * C + g * 32 + channel : to, v);
          }
    }
  }
}
