// Convolutions as matrix products: where weights stand, which taps there are, the products themselves
#pragma once

#include "instructions.cuh"

// 64-channel weights (72 KB) stand in shared memory where a block may have 227 KB of it, else they come through the L1
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DEEP_WEIGHTS SHARED
#else
#define DEEP_WEIGHTS GLOBAL
#endif

enum Place { GLOBAL, SHARED, REGISTERS };  // where a block keeps its weights

// B fragments of one convolution, packed [tap][K / 16][N / 16][lane], 16 bytes for a lane: two tiles of 8 columns.
template <int K, int N, int TAPS, Place PLACE> struct Weights {
  static constexpr int CHUNKS = TAPS * K * N / 8;
  const uint4* at;
  uint4 own[PLACE == REGISTERS ? CHUNKS / 32 : 1];
  DEVICE void fetch(const uint4* global, uint4* shared) {
    at = (PLACE == SHARED ? shared : global) + (threadIdx.x & 31);
    if (PLACE == SHARED)
      for (int i = threadIdx.x; i < CHUNKS; i += blockDim.x) copy_async(shared + i, global + i);
    if (PLACE == REGISTERS) {
#pragma unroll
      for (int i = 0; i < CHUNKS / 32; i++) own[i] = at[i * 32];
    }
  }
  DEVICE uint4 fragment(int tap, int step, int pair) const {
    const int i = (tap * (K / 16) + step) * (N / 16) + pair;
    return PLACE == REGISTERS ? own[PLACE == REGISTERS ? i : 0] : PLACE == SHARED ? at[i * 32] : __ldg(at + i * 32);
  }
};

// Where tap t of a convolution reads in the padded tile (in pixels), whether it takes part, and which weights it has.
template <int COLUMNS> struct AllTaps {
  static constexpr __device__ bool used(int) { return true; }
  static constexpr __device__ int offset(int tap) { return tap / 3 * COLUMNS + tap % 3; }
  static constexpr __device__ int weights(int tap) { return tap; }
};
template <int COLUMNS> struct CentreTap : AllTaps<COLUMNS> {  // a 1x1 convolution
  static constexpr __device__ bool used(int tap) { return tap == 4; }
  static constexpr __device__ int weights(int) { return 0; }
};
// The gradient of a stride-2 convolution at input pixels (2 h + PH, 2 w + PW)
template <int COLUMNS, int PH, int PW> struct ParityTaps {
  static constexpr __device__ bool used(int tap) { return ((PH + tap / 3) & 1) && ((PW + tap % 3) & 1); }
  static constexpr __device__ int offset(int tap) {
    return (1 + (PH + 1 - tap / 3) / 2) * COLUMNS + 1 + (PW + 1 - tap % 3) / 2;
  }
  static constexpr __device__ int weights(int tap) { return tap; }
};

// acc[m] += sum over taps of pixels [16 x K] times weights [K x N]; at[m]: this lane's row of the m-th 16 pixels;
// first: of the pairs of 8 columns, where the weights have more than N
template <class Taps, int K, int N, int M, int PITCH, class W>
DEVICE void convolve(float (&acc)[M][N / 8][4], const u32 (&at)[M], const W& w, int first = 0) {
#pragma unroll
  for (int tap = 0; tap < 9; tap++) {
    if (!Taps::used(tap)) continue;
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
      uint4 b[N / 16];
#pragma unroll
      for (int n = 0; n < N / 16; n++) b[n] = w.fragment(Taps::weights(tap), step, first + n);
#pragma unroll
      for (int m = 0; m < M; m++) {
        u32 a[4];
        load_matrices(a, at[m] + Taps::offset(tap) * PITCH + step * 32);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
          multiply(acc[m][2 * n], a, b[n].x, b[n].y);
          multiply(acc[m][2 * n + 1], a, b[n].z, b[n].w);
        }
      }
    }
  }
}

// The same for M rows of 16 pixels below each other: a row, once loaded, serves the three taps of its column
template <int COLUMNS, int K, int N, int M, int PITCH, class W>
DEVICE void convolve_downwards(float (&acc)[M][N / 8][4], u32 at, const W& w) {
#pragma unroll
  for (int column = 0; column < 3; column++)
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
      uint4 b[3][N / 16];
#pragma unroll
      for (int tap = 0; tap < 3; tap++)
#pragma unroll
        for (int n = 0; n < N / 16; n++) b[tap][n] = w.fragment(tap * 3 + column, step, n);
#pragma unroll
      for (int row = 0; row < M + 2; row++) {
        u32 a[4];
        load_matrices(a, at + (row * COLUMNS + column) * PITCH + step * 32);
#pragma unroll
        for (int tap = 0; tap < 3; tap++) {
          const int m = row - tap;
          if (m < 0 || m >= M) continue;
#pragma unroll
          for (int n = 0; n < N / 16; n++) {
            multiply(acc[m][2 * n], a, b[tap][n].x, b[tap][n].y);
            multiply(acc[m][2 * n + 1], a, b[tap][n].z, b[tap][n].w);
          }
        }
      }
    }
}

template <int M, int N> DEVICE void clear(float (&acc)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++) clear(acc[m][n]);
}
