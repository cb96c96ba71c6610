// A 3x3 convolution's two gradients
#pragma once

#include "norms.cuh"
#include "products.cuh"
#include "tiles.cuh"

struct Backward {
  const uint4 *gradient, *output;  // at this layer's norm, and this convolution's raw output
  const uint4* input;              // MIDDLE: raw, norm and ReLU are applied here; else a block's joined input
  const bf16* raw;                 // not MIDDLE: the raw output whose norm made the input
  const bf16* residual;            // not MIDDLE: the shortcut's gradient, to be added
  const uint4* weights;
  bf16* input_gradient;             // behind the input's ReLU: the gradient at the norm before it
  const float* sums;                // [K][sum_blocks][2][COUT]: Σg and Σ g x̂ of this layer's norm
  float *input_sums, *weight_sums;  // [K][units][2][CIN]; [K][units / run][9 CIN COUT]
  const float *moments, *gamma, *input_moments, *input_gamma, *input_beta;
  Cut cut;
  float inverse;
  int residual_pitch, residual_offset, sum_blocks, weight_pitch, parameters, channels, images;
};

// Input gradient and weight gradient in one pass. Tile: dy at ROWS rows of output pixels (or all rows of IMAGES images)
// with a frame, and the input pixels that belong to those rows, without one; both arrive through `stage` as in
// `forward`. The input gradient is a convolution of the dy tile; with stride 2, one for each parity of input pixels.
// The weight gradient of a tap is input transposed times shifted dy: a warp owns 16 input channels, NI times 8 output
// channels and all nine taps, and where fewer warps would do, GROUPS of them share the pixels and add up at the end.
// Of the input gradient a warp has M times 16 pixels; of 64 channels it takes half, which needs fewer weights.
template <int CIN_, int COUT_, int STRIDE_, bool MIDDLE_, int ROWS_, int IMAGES_, int WARPS_, int ATONCE_, Place PLACE_>
struct BackwardShape {
  static constexpr int CIN = CIN_, COUT = COUT_, STRIDE = STRIDE_, ROWS = ROWS_, IMAGES = IMAGES_, WARPS = WARPS_;
  static constexpr bool MIDDLE = MIDDLE_;
  static constexpr Place PLACE = PLACE_;
  static constexpr int ATONCE = ATONCE_;
  static constexpr int THREADS = WARPS * 32, SIDE = 512 / COUT, WIDTH = SIDE * STRIDE;  // sides of output and input
  static constexpr int TILE_ROWS = ROWS + 2, COLUMNS = SIDE + 2, PITCH = COUT * 2 + 16, INPUT_PITCH = CIN * 2 + 16;
  static constexpr int ALL_ROWS = IMAGES * TILE_ROWS, PIXELS = IMAGES * ROWS * SIDE;
  static constexpr int SPLIT = CIN > 32 ? CIN / 32 : 1, M = PIXELS / 16 * SPLIT / WARPS;
  static constexpr int INPUT_PIXELS = PIXELS * STRIDE * STRIDE, INPUT_CHUNKS = INPUT_PIXELS * CIN / 8;
  static constexpr bool DOWNWARDS = STRIDE == 1 && SIDE >= 16;
  static constexpr int UNITS = CIN / 16 * (COUT / 8), NI = UNITS > WARPS ? UNITS / WARPS : 1;
  static constexpr int WARPS_IN = CIN / 16, WARPS_OUT = COUT / (8 * NI), GROUPS = WARPS / (WARPS_IN * WARPS_OUT);
  // What the input gradient's end needs is asked for before its products, where registers have room for it. In MIDDLE
  // it is the raw input, which stays where it arrived; the next tile's has a second place.
  static constexpr bool EARLY = CIN < 64 && !MIDDLE;
  static constexpr int COEFFICIENTS = 4 * (3 * COUT + 4 * CIN), SCRATCH = THREADS * 16 + 8 * COUT;
  static constexpr int TILE_BYTES = ALL_ROWS * COLUMNS * PITCH, INPUT_BYTES = INPUT_PIXELS * INPUT_PITCH;
  static constexpr int WEIGHT_BYTES = PLACE == SHARED ? 18 * CIN * COUT : 0;
  static constexpr int SHARED_BYTES = COEFFICIENTS + SCRATCH + TILE_BYTES + INPUT_BYTES + WEIGHT_BYTES +
                                      ALL_ROWS * 2048 + (MIDDLE ? 2 : 1) * INPUT_CHUNKS * 16;
  static_assert(M * 16 * WARPS == PIXELS * SPLIT && (IMAGES == 1 || ROWS == SIDE), "whole warps, whole images");
  static_assert(SPLIT == 1 || (SPLIT == Channels<CIN>::GROUPS && !DOWNWARDS && STRIDE == 1), "a warp has a run of 32");
  static_assert(INPUT_CHUNKS % THREADS == 0 && SCRATCH >= WARPS * 8 * CIN, "whole loads, room for a unit's sums");
  static_assert(GROUPS == 1 || INPUT_BYTES >= 36 * CIN * COUT, "the groups add up in the input tile's memory");
};

// What the parts of a backward block share
template <class L> struct BackwardTile {
  static constexpr int MINE = Channels<L::CIN>::MINE / L::SPLIT;
  const Backward& a;
  u8 *tile, *inputs;
  const bf16* raw_inputs;    // MIDDLE: before norm and ReLU
  const float* coefficient;  // of the input's norm: scale, shift, mean, 1 / deviation
  Weights<L::COUT, L::CIN, 9, L::PLACE> weights;
  float s1[MINE], s2[MINE];
  int k, number;  // the network, and the tile's number in it

  // First of the m-th 16 output pixels of this warp
  DEVICE int pixel(int m) const {
    constexpr int STRIPS = L::SIDE >= 16 ? L::SIDE / 16 : 1;
    const int warp = (threadIdx.x >> 5) / L::SPLIT;
    return L::DOWNWARDS ? (warp / STRIPS * L::M + m) * L::SIDE + warp % STRIPS * 16 : (warp * L::M + m) * 16;
  }

  template <int PH, int PW> DEVICE void input_gradient() {
    constexpr int CIN = L::CIN, V = Channels<CIN>::V, GROUPS = Channels<CIN>::GROUPS / L::SPLIT, HALVES = 2 * L::M;
    const bool adds = !L::MIDDLE && (L::STRIDE == 1 || (PH == 0 && PW == 0));  // known when compiled
    const int lane = threadIdx.x & 31, part = (threadIdx.x >> 5) % L::SPLIT, channel = part * 32 + (lane & 3) * V;
    const size_t inputs_before = ((size_t)k * a.images * L::WIDTH * L::WIDTH + (size_t)number * L::INPUT_PIXELS) * CIN;
    const size_t outputs_before = (size_t)k * a.images * L::SIDE * L::SIDE + (size_t)number * L::PIXELS;
    auto output_pixel = [&](int half) { return pixel(half / 2) + (half & 1) * 8 + (lane >> 2); };
    auto input_pixel = [&](int half) {  // in the tile
      const int q = output_pixel(half);
      if (L::STRIDE == 1) return q;
      const int image = q / (L::ROWS * L::SIDE), h = q / L::SIDE % L::ROWS;
      return (image * L::ROWS * 2 + 2 * h + PH) * L::WIDTH + 2 * (q % L::SIDE) + PW;
    };
    auto raw_at = [&](int half, int g) {
      return load<V>((L::MIDDLE ? raw_inputs : a.raw + inputs_before) + input_pixel(half) * CIN + g * 32 + channel);
    };
    auto residual_at = [&](int half, int g) {
      const bf16* from =
          L::STRIDE == 1 ? a.residual + inputs_before + input_pixel(half) * CIN
                         : a.residual + (outputs_before + output_pixel(half)) * a.residual_pitch + a.residual_offset;
      return load<V>(from + g * 32 + channel);
    };

    Pack<V> early_raw[L::EARLY ? HALVES : 1][GROUPS], early_residual[L::EARLY ? HALVES : 1][GROUPS];
    if (L::EARLY) {
#pragma unroll
      for (int half = 0; half < HALVES; half++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
          early_raw[L::EARLY ? half : 0][g] = raw_at(half, g);
          if (adds) early_residual[L::EARLY ? half : 0][g] = residual_at(half, g);
        }
    }
    float acc[L::M][CIN / 8 / L::SPLIT][4];
    clear(acc);
    u32 at[L::M];
#pragma unroll
    for (int m = 0; m < L::M; m++) {
      const int q = pixel(m) + (lane & 15), image = q / (L::ROWS * L::SIDE), h = q / L::SIDE % L::ROWS;
      at[m] =
          shared_address(tile) + ((image * L::TILE_ROWS + h) * L::COLUMNS + q % L::SIDE) * L::PITCH + (lane >> 4) * 16;
    }
    if constexpr (L::DOWNWARDS)
      convolve_downwards<L::COLUMNS, L::COUT, CIN, L::M, L::PITCH>(acc, at[0], weights);
    else if constexpr (L::STRIDE == 1)
      convolve<AllTaps<L::COLUMNS>, L::COUT, CIN / L::SPLIT, L::M, L::PITCH>(acc, at, weights, part * 2);
    else
      convolve<ParityTaps<L::COLUMNS, PH, PW>, L::COUT, CIN, L::M, L::PITCH>(acc, at, weights);

#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
      for (int half = 0; half < HALVES; half++) {
        const int first = g * 32 + channel;
        const Pack<V> y = L::EARLY ? early_raw[L::EARLY ? half : 0][g] : raw_at(half, g);
        const Pack<V> x = load<V>(reinterpret_cast<const bf16*>(inputs + input_pixel(half) * L::INPUT_PITCH) + first);
        Pack<V> r, out;
        if (adds) r = L::EARLY ? early_residual[L::EARLY ? half : 0][g] : residual_at(half, g);
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
          const int c = first + 2 * i, s = g * V + 2 * i;
          const float* sums = acc[half / 2][g * 4 + i];
          float v0 = sums[(half & 1) * 2], v1 = sums[(half & 1) * 2 + 1];
          if (adds) v0 += low(r.pair[i]), v1 += high(r.pair[i]);
          out.pair[i] = pack(v0, v1) & where_positive(x.pair[i]);  // where the ReLU let the value through
          v0 = low(out.pair[i]), v1 = high(out.pair[i]);
          s1[s] += v0, s2[s] += v0 * (low(y.pair[i]) - coefficient[2 * CIN + c]);
          s1[s + 1] += v1, s2[s + 1] += v1 * (high(y.pair[i]) - coefficient[2 * CIN + c + 1]);
        }
        store<V>(a.input_gradient + inputs_before + input_pixel(half) * CIN + first, out);
      }
  }

  // Rows of at least 16 pixels: going down a strip of 16, an input row once loaded serves three kernel rows
  DEVICE void weight_gradient_wide(float (&acc)[9][L::NI][4], int in, int out, int group) const {
    constexpr int STRIPS = L::SIDE / 16, ROWS = L::ROWS / (L::GROUPS / STRIPS > 0 ? L::GROUPS / STRIPS : 1);
    static_assert(L::NI <= 2 && L::GROUPS >= STRIPS && L::IMAGES == 1, "one load for all channels, a strip a group");
    const int lane = threadIdx.x & 31, strip = group % STRIPS, first = group / STRIPS * ROWS;
    const u32 dy = shared_address(tile) + (first * L::COLUMNS + strip * 16 + (lane & 15)) * L::PITCH +
                   out * L::NI * 16 + (L::NI == 2 ? (lane >> 4) * 16 : 0);
    const u32 x = shared_address(inputs) + in * 32 + ((lane >> 3) & 1) * 16 +
                  (first * L::SIDE + strip * 16 + (lane & 7) + ((lane >> 4) << 3)) * L::INPUT_PITCH;
    u32 f[3][4];  // [row % 3]
#pragma unroll
    for (int row = 0; row < ROWS + 2; row++) {  // of dy, with its frame
      if (row < ROWS) load_transposed(f[row % 3], x + row * L::SIDE * L::INPUT_PITCH);
#pragma unroll
      for (int column = 0; column < 3; column++) {
        u32 b[2 * L::NI];
        load_transposed(b, dy + (row * L::COLUMNS + 2 - column) * L::PITCH);
#pragma unroll
        for (int kernel_row = 0; kernel_row < 3; kernel_row++) {
          const int from = row - 2 + kernel_row;
          if (from < 0 || from >= ROWS) continue;
#pragma unroll
          for (int n = 0; n < L::NI; n++) multiply(acc[kernel_row * 3 + column][n], f[from % 3], b[2 * n], b[2 * n + 1]);
        }
      }
    }
  }

  // Rows of 8 pixels: two of them are one step of 16, and a dy row is one 8x8 matrix for each 8 channels
  DEVICE void weight_gradient_narrow(float (&acc)[9][L::NI][4], int in, int out) const {
    static_assert(L::GROUPS == 1 && L::ROWS == 8, "rows of 8, all by one warp");
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int image = 0; image < L::IMAGES; image++) {
      const u32 x = shared_address(inputs) + in * 32 + ((lane >> 3) & 1) * 16 +
                    (image * 64 + (lane & 7) + ((lane >> 4) << 3)) * L::INPUT_PITCH;
#pragma unroll
      for (int column = 0; column < 3; column++) {
        const u32 dy = shared_address(tile) + out * L::NI * 16 + (lane >> 3) % L::NI * 16 +
                       (image * L::TILE_ROWS * L::COLUMNS + 2 - column + (lane & 7)) * L::PITCH;
        u32 b[4][L::NI];  // [row % 4][8 channels]
        load_transposed(b[0], dy);
        load_transposed(b[1], dy + L::COLUMNS * L::PITCH);
#pragma unroll
        for (int step = 0; step < 4; step++) {
          load_transposed(b[(2 * step + 2) % 4], dy + (2 * step + 2) * L::COLUMNS * L::PITCH);
          load_transposed(b[(2 * step + 3) % 4], dy + (2 * step + 3) * L::COLUMNS * L::PITCH);
          u32 f[4];
          load_transposed(f, x + step * 16 * L::INPUT_PITCH);
#pragma unroll
          for (int row = 0; row < 3; row++)
#pragma unroll
            for (int n = 0; n < L::NI; n++)
              multiply(acc[row * 3 + column][n], f, b[(2 * step + 2 - row) % 4][n], b[(2 * step + 3 - row) % 4][n]);
        }
      }
    }
  }

  // Stride 2: taps of one parity read the same input pixels
  template <int PH, int PW> DEVICE void weight_gradient_parity(float (&acc)[9][L::NI][4], u32 dy, u32 x) const {
    using Taps = ParityTaps<L::COLUMNS, PH, PW>;
    u32 f[4];
    load_transposed(f, x + (PH * L::WIDTH + PW) * L::INPUT_PITCH);
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
      if (!Taps::used(tap)) continue;
      u32 b[2 * L::NI];
      load_transposed(b, dy + Taps::offset(tap) * L::PITCH);
#pragma unroll
      for (int n = 0; n < L::NI; n++) multiply(acc[tap][n], f, b[2 * n], b[2 * n + 1]);
    }
  }
  DEVICE void weight_gradient_strided(float (&acc)[9][L::NI][4], int in, int out, int group) const {
    static_assert(L::NI <= 2, "one load for all channels");
    const int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int step = group; step < L::PIXELS / 16; step += L::GROUPS) {
      const int q = step * 16 + (lane & 15), p = step * 16 + (lane & 7) + ((lane >> 4) << 3);
      const int image = q / (L::ROWS * L::SIDE), h = q / L::SIDE % L::ROWS;
      const u32 dy = shared_address(tile) + out * L::NI * 16 + (L::NI == 2 ? (lane >> 4) * 16 : 0) +
                     ((image * L::TILE_ROWS + h) * L::COLUMNS + q % L::SIDE) * L::PITCH;
      const int pixel =
          (p / (L::ROWS * L::SIDE) * L::ROWS * 2 + 2 * (p / L::SIDE % L::ROWS)) * L::WIDTH + 2 * (p % L::SIDE);
      const u32 x = shared_address(inputs) + pixel * L::INPUT_PITCH + in * 32 + ((lane >> 3) & 1) * 16;
      weight_gradient_parity<0, 0>(acc, dy, x);
      weight_gradient_parity<0, 1>(acc, dy, x);
      weight_gradient_parity<1, 0>(acc, dy, x);
      weight_gradient_parity<1, 1>(acc, dy, x);
    }
  }
};

// What a warp has of a unit's weight gradient, with what there was `before` it, to [9][COUT / 8][CIN / 16][lane][4]: as
// the products leave it, so that a warp writes 512 bytes at once
template <class L, bool ADD>
DEVICE void put_weight_sums(const float (&acc)[9][L::NI][4], const float4* before, float4* to) {
#pragma unroll
  for (int tap = 0; tap < 9; tap++)
#pragma unroll
    for (int n = 0; n < L::NI; n++) {
      const int at = (tap * (L::COUT / 8) + n) * L::WARPS_IN * 32;
      float4 v = make_float4(acc[tap][n][0], acc[tap][n][1], acc[tap][n][2], acc[tap][n][3]);
      if (before) v.x += before[at].x, v.y += before[at].y, v.z += before[at].z, v.w += before[at].w;
      if (ADD)
        add_in_memory(to + at, v);
      else
        to[at] = v;
    }
}

// Groups add up in turn, in shared memory. Behind the `first` unit of a run, the sum is added to what this very thread
// has put there, so the order is fixed; a reduction, since nothing waits for it as it would for the old value.
template <class L>
DEVICE void write_weight_sums(const float (&acc)[9][L::NI][4], int in, int out, int group, float4* buffer, float4* row,
                              bool first) {
  const int own = (out * L::NI * L::WARPS_IN + in) * 32 + (threadIdx.x & 31);
  buffer += own, row += own;
#pragma unroll
  for (int turn = 0; turn < L::GROUPS; turn++) {
    const float4* before = turn ? buffer : nullptr;
    if (turn + 1 < L::GROUPS) {
      if (group == turn) put_weight_sums<L, false>(acc, before, buffer);
      __syncthreads();
    } else if (group == turn) {
      if (first)
        put_weight_sums<L, false>(acc, before, row);
      else
        put_weight_sums<L, true>(acc, before, row);
    }
  }
}

template <class L> DEVICE void backward(const Backward& a) {
  constexpr int CIN = L::CIN, COUT = L::COUT, SIDE = L::SIDE, WIDTH = L::WIDTH, CHUNKS = COUT / 8;
  constexpr int STEP = L::THREADS / 64, TURNS = (L::ALL_ROWS + STEP - 1) / STEP, ATONCE = L::ATONCE;
  extern __shared__ __align__(16) u8 shared[];
  float *line = reinterpret_cast<float*>(shared), *coefficient = line + 3 * COUT, *scratch = coefficient + 4 * CIN;
  u8 *tile = shared + L::COEFFICIENTS + L::SCRATCH, *inputs = tile + L::TILE_BYTES;
  uint4* weights = reinterpret_cast<uint4*>(inputs + L::INPUT_BYTES);
  uint4 *stage = weights + L::WEIGHT_BYTES / 16, *inputs_stage = stage + 2 * L::ALL_ROWS * 64;
  const int tid = threadIdx.x, warp = tid >> 5;
  const int chunk = tid & 63, own = chunk % CHUNKS, first_row = tid >> 6;

  auto request = [&](const Cursor& at) {
    const size_t start = (size_t)at.k * a.images * SIDE * 64 + chunk;
    const uint4 *gradient = a.gradient + start, *output = a.output + start;
#pragma unroll 2
    for (int r = first_row; r < L::ALL_ROWS; r += STEP) {
      const Row row = row_of<L, SIDE>(at.tile, r);
      if (!row.inside) continue;
      copy_async(stage + r * 64 + chunk, gradient + row.at * 64);
      copy_async(stage + (L::ALL_ROWS + r) * 64 + chunk, output + row.at * 64);
    }
    const uint4* input = a.input + (size_t)at.k * a.images * WIDTH * 64 + at.tile * L::INPUT_CHUNKS;
#pragma unroll 2
    for (int i = tid; i < L::INPUT_CHUNKS; i += L::THREADS) copy_async(inputs_stage + i, input + i);
  };
  BackwardTile<L> work{a, tile, inputs, nullptr, coefficient};
  auto take_network = [&](int k) {  // its weights and norms
    work.weights.fetch(a.weights + (size_t)k * a.weight_pitch, weights);
    backward_line<COUT, L::THREADS>(a.sums, a.sum_blocks, a.moments, a.gamma, a.inverse, k, a.parameters, a.channels,
                                    scratch, line);
    if (tid < CIN) {
      const float* moments = a.input_moments + (size_t)k * 2 * a.channels;
      const float mean = moments[tid], inverse = rsqrtf(moments[a.channels + tid] + EPSILON);
      if (L::MIDDLE) {
        const float scale = a.input_gamma[(size_t)k * a.parameters + tid] * inverse;
        coefficient[tid] = scale;
        coefficient[CIN + tid] = a.input_beta[(size_t)k * a.parameters + tid] - mean * scale;
      }
      coefficient[2 * CIN + tid] = mean, coefficient[3 * CIN + tid] = inverse;
    }
    __syncthreads();
  };

  clear_frame<L, CHUNKS>(tile);
  const int in = warp % L::WARPS_IN, out = warp / L::WARPS_IN % L::WARPS_OUT,
            group = warp / (L::WARPS_IN * L::WARPS_OUT);

  Cursor at(a.cut);
  wait_for_kernel_before();
  request(at);
  int place = 0;  // of the two
  for (work.k = -1; !at.done();) {
    if (at.k != work.k) __syncthreads(), take_network(at.k);
    work.k = at.k;
    const int row = at.row(a.cut);
    const bool first = at.number % a.cut.run == 0;
    float acc[9][L::NI][4];
    clear(acc), clear(work.s1), clear(work.s2);
    for (bool ends = false; !ends;) {
      __syncthreads();
      work.number = at.tile;
      wait_for_copies();
      {
        float A[8], B[8], D[8];
        take_line<COUT>(line, own * 8, A, B, D);
#pragma unroll 1
        for (int turn = 0; turn < TURNS; turn += ATONCE) {
          uint4 g[ATONCE], y[ATONCE];
#pragma unroll
          for (int j = 0; j < ATONCE; j++) {
            const int r = first_row + (turn + j) * STEP;
            if (r >= L::ALL_ROWS) break;
            g[j] = stage[r * 64 + chunk], y[j] = stage[(L::ALL_ROWS + r) * 64 + chunk];
          }
#pragma unroll
          for (int j = 0; j < ATONCE; j++) {
            const int r = first_row + (turn + j) * STEP;
            if (r >= L::ALL_ROWS) break;
            const uint4 v = apply_line(g[j], y[j], A, B, D);
            *reinterpret_cast<uint4*>(tile + (r * L::COLUMNS + chunk / CHUNKS + 1) * L::PITCH + own * 16) =
                row_of<L, SIDE>(at.tile, r).inside ? v : make_uint4(0, 0, 0, 0);
          }
        }
      }
      {
        const int c = tid % (CIN / 8) * 8;
        float scale[8], shift[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
          scale[i] = L::MIDDLE ? coefficient[c + i] : 0.f, shift[i] = L::MIDDLE ? coefficient[CIN + c + i] : 0.f;
#pragma unroll(CIN < 64 ? 4 : 1)
        for (int i = tid; i < L::INPUT_CHUNKS; i += L::THREADS) {
          uint4 v = inputs_stage[i];
          if (L::MIDDLE) {
            u32* vs = &v.x;
#pragma unroll
            for (int j = 0; j < 4; j++)
              vs[j] = pack_relu(low(vs[j]) * scale[2 * j] + shift[2 * j],
                                high(vs[j]) * scale[2 * j + 1] + shift[2 * j + 1]);
          }
          *reinterpret_cast<uint4*>(inputs + i / (CIN / 8) * L::INPUT_PITCH + c * 2) = v;
        }
      }
      if (L::MIDDLE) {
        work.raw_inputs = reinterpret_cast<const bf16*>(inputs_stage);
        place ^= 1, inputs_stage = stage + 2 * L::ALL_ROWS * 64 + place * L::INPUT_CHUNKS;
      }
      ends = at.ends_unit();
      at.advance(a.cut);
      if (!at.done()) request(at);
      __syncthreads();

      work.template input_gradient<0, 0>();
      if constexpr (L::STRIDE == 2) {
        work.template input_gradient<0, 1>();
        work.template input_gradient<1, 0>();
        work.template input_gradient<1, 1>();
        work.weight_gradient_strided(acc, in, out, group);
      } else if constexpr (L::DOWNWARDS) {
        work.weight_gradient_wide(acc, in, out, group);
      } else {
        work.weight_gradient_narrow(acc, in, out);
      }
    }
    write_sums<CIN, L::WARPS, L::SPLIT>(work.s1, work.s2, scratch, a.input_sums + (size_t)row * 2 * CIN,
                                        coefficient + 3 * CIN);
    float* weight_row = a.weight_sums + (size_t)(row / a.cut.run) * 9 * CIN * COUT;
    write_weight_sums<L>(acc, in, out, group, reinterpret_cast<float4*>(inputs), reinterpret_cast<float4*>(weight_row),
                         first);
  }
}
