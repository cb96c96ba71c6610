// A 3x3 convolution, and the 1x1 one beside it where there is one
#pragma once

#include "norms.cuh"
#include "products.cuh"
#include "tiles.cuh"

struct Forward {
  const uint4* input;     // raw output of the convolution before
  const uint4* shortcut;  // JOIN: what is added to its norm, see kind
  uint4* joined;          // JOIN: the block's input, written here; with STRIDE 2 unless null
  const uint4 *weights, *project_weights;
  bf16 *output, *projected;
  float *sums, *projected_sums;  // [K][units][2][COUT]; null: running statistics are in use, and nobody needs them
  Norm norm, shortcut_norm;
  Cut cut;
  int kind, weight_pitch, parameters, channels, images;
};

// Tile: ROWS rows of output pixels of one image, or all rows of IMAGES images, with the frame of input pixels that the
// 3x3 taps need. Raw input rows arrive in `stage` by cp.async while the tile before is worked on; then every thread
// applies norm, ReLU and shortcut to the chunks that it asked for itself and writes them to the padded tile; then each
// warp multiplies M times 16 pixels with all taps. PITCH: a pixel in bytes, padded so that ldmatrix meets no bank
// twice.
template <int CIN_, int COUT_, int STRIDE_, bool JOIN_, bool PROJECT_, int ROWS_, int IMAGES_, int WARPS_, int ATONCE_,
          Place PLACE_>
struct ForwardShape {
  static constexpr int CIN = CIN_, COUT = COUT_, STRIDE = STRIDE_, ROWS = ROWS_, IMAGES = IMAGES_, WARPS = WARPS_;
  static constexpr bool JOIN = JOIN_, PROJECT = PROJECT_;
  static constexpr Place PLACE = PLACE_;
  static constexpr int ATONCE = ATONCE_;  // rows that a thread reads from the stage before it works on them
  static constexpr int THREADS = WARPS * 32, WIDTH = 512 / CIN, SIDE = WIDTH / STRIDE;  // sides of input and output
  static constexpr int TILE_ROWS = ROWS * STRIDE + (STRIDE == 1 ? 2 : 1), COLUMNS = WIDTH + 2, PITCH = CIN * 2 + 16;
  static constexpr int ALL_ROWS = IMAGES * TILE_ROWS, PIXELS = IMAGES * ROWS * SIDE, M = PIXELS / 16 / WARPS;
  static constexpr bool DOWNWARDS = STRIDE == 1 && SIDE >= 16;
  static constexpr int COEFFICIENTS = 16 * CIN, SCRATCH = THREADS * 16 + 8 * (CIN > COUT ? CIN : COUT);
  static constexpr int TILE_BYTES = ALL_ROWS * COLUMNS * PITCH, WEIGHT_BYTES = PLACE == SHARED ? 18 * CIN * COUT : 0;
  static constexpr int SHARED_BYTES =
      COEFFICIENTS + SCRATCH + TILE_BYTES + WEIGHT_BYTES + ALL_ROWS * 1024 * (JOIN ? 2 : 1);
  static_assert(M * 16 * WARPS == PIXELS && (IMAGES == 1 || ROWS == SIDE), "whole warps, whole images");
  static_assert(SCRATCH >= WARPS * 8 * COUT, "room for a unit's sums");
};

template <int COUT, int M>
DEVICE void store_outputs(const float (&acc)[M][COUT / 8][4], bf16* output, const int (&pixel)[M],
                          float (&s1)[Channels<COUT>::MINE], float (&s2)[Channels<COUT>::MINE]) {
  constexpr int V = Channels<COUT>::V;
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int g = 0; g < Channels<COUT>::GROUPS; g++) {
        Pack<V> v;
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
          v.pair[i] = pack(acc[m][g * 4 + i][2 * half], acc[m][g * 4 + i][2 * half + 1]);
          const float f0 = low(v.pair[i]), f1 = high(v.pair[i]);
          const int c = g * V + 2 * i;
          s1[c] += f0, s2[c] += f0 * f0, s1[c + 1] += f1, s2[c + 1] += f1 * f1;
        }
        store<V>(output + (pixel[m] + (lane >> 2) + half * 8) * COUT + g * 32 + (lane & 3) * V, v);
      }
}

template <class L> DEVICE void forward(const Forward& a) {
  constexpr int CIN = L::CIN, COUT = L::COUT, WIDTH = L::WIDTH, SIDE = L::SIDE, CHUNKS = CIN / 8,
                MINE = Channels<COUT>::MINE;
  constexpr int STEP = L::THREADS / 64, TURNS = (L::ALL_ROWS + STEP - 1) / STEP, ATONCE = L::ATONCE;
  extern __shared__ __align__(16) u8 shared[];
  float *scale = reinterpret_cast<float*>(shared), *shift = scale + CIN, *shortcut_scale = scale + 2 * CIN;
  float *extra = scale + 3 * CIN, *scratch = scale + 4 * CIN;
  u8* tile = shared + L::COEFFICIENTS + L::SCRATCH;
  uint4* weights = reinterpret_cast<uint4*>(tile + L::TILE_BYTES);
  uint4* stage = weights + L::WEIGHT_BYTES / 16;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int chunk = tid & 63, own = chunk % CHUNKS, first_row = tid >> 6;  // own: which 8 channels
  const size_t network = (size_t)a.images * WIDTH * 64;                    // chunks of a network's input
  // a padded shortcut comes from twice the side and half the channels: its chunks are the same, CHUNKS / 4 to the right
  const bool padded = a.kind == PADDED;
  const bool adds = L::JOIN && (padded ? own >= CHUNKS / 4 && own < CHUNKS / 4 * 3 : a.kind != NONE);

  auto request = [&](const Cursor& at) {
    const uint4* input = a.input + at.k * network + chunk;
    const uint4* shortcut =
        padded ? a.shortcut + at.k * 2 * network + chunk - CHUNKS / 4 : a.shortcut + at.k * network + chunk;
#pragma unroll 4
    for (int r = first_row; r < L::ALL_ROWS; r += STEP) {
      const Row row = row_of<L, WIDTH>(at.tile, r);
      if (!row.inside) continue;
      copy_async(stage + r * 64 + chunk, input + row.at * 64);
      if (L::JOIN && adds) copy_async(stage + (L::ALL_ROWS + r) * 64 + chunk, shortcut + row.at * (padded ? 128 : 64));
    }
  };
  Weights<CIN, COUT, 9, L::PLACE> w;
  Weights<CIN, COUT, 1, GLOBAL> project;
  float factor[8], offset[8], shortcut_factor[8];
  auto take_network = [&](const Cursor& at) {  // its weights and norms
    w.fetch(a.weights + (size_t)at.k * a.weight_pitch, weights);
    if (L::PROJECT) project.fetch(a.project_weights + (size_t)at.k * a.weight_pitch, nullptr);
    const bool writes = at.number == 0;
    scale_and_shift<CIN, L::THREADS, L::STRIDE == 2>(a.norm, at.k, writes, a.parameters, a.channels, scratch, scale, shift);
    if (L::JOIN && a.kind == PROJECTED) {
      __syncthreads();
      scale_and_shift<CIN, L::THREADS>(a.shortcut_norm, at.k, writes, a.parameters, a.channels, scratch, shortcut_scale,
                                       extra);
      if (tid < CIN) shift[tid] += extra[tid];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
      factor[i] = scale[own * 8 + i], offset[i] = shift[own * 8 + i];
      shortcut_factor[i] = L::JOIN && a.kind == PROJECTED ? shortcut_scale[own * 8 + i] : 1.f;
    }
  };

  int pixel[L::M];  // the first of each 16 in the tile
  u32 rows[L::M];   // this lane's pixel of them
#pragma unroll
  for (int m = 0; m < L::M; m++) {
    constexpr int STRIPS = SIDE >= 16 ? SIDE / 16 : 1;
    pixel[m] = L::DOWNWARDS ? (warp / STRIPS * L::M + m) * SIDE + warp % STRIPS * 16 : (warp * L::M + m) * 16;
    const int q = pixel[m] + (lane & 15), image = q / (L::ROWS * SIDE), h = q / SIDE % L::ROWS;
    rows[m] = shared_address(tile) + (lane >> 4) * 16 +
              ((image * L::TILE_ROWS + h * L::STRIDE) * L::COLUMNS + q % SIDE * L::STRIDE) * L::PITCH;
  }
  clear_frame<L, CHUNKS>(tile);

  Cursor at(a.cut);
  wait_for_kernel_before();
  request(at);
  for (int k = -1; !at.done();) {
    if (at.k != k) __syncthreads(), take_network(at);
    k = at.k;
    const int row = at.row(a.cut);
    float s1[MINE], s2[MINE], p1[L::PROJECT ? MINE : 1], p2[L::PROJECT ? MINE : 1];
    clear(s1), clear(s2), clear(p1), clear(p2);
    for (bool ends = false; !ends;) {
      __syncthreads();
      wait_for_copies();
#pragma unroll 1
      for (int turn = 0; turn < TURNS; turn += ATONCE) {
        uint4 v[ATONCE], e[ATONCE];
#pragma unroll
        for (int j = 0; j < ATONCE; j++) {
          const int r = first_row + (turn + j) * STEP;
          v[j] = e[j] = make_uint4(0, 0, 0, 0);
          if (r < L::ALL_ROWS && row_of<L, WIDTH>(at.tile, r).inside) {
            v[j] = stage[r * 64 + chunk];
            if (L::JOIN && adds) e[j] = stage[(L::ALL_ROWS + r) * 64 + chunk];
          }
        }
#pragma unroll
        for (int j = 0; j < ATONCE; j++) {
          const int r = first_row + (turn + j) * STEP;
          if (r >= L::ALL_ROWS) break;
          const Row row = row_of<L, WIDTH>(at.tile, r);
          if (row.inside) {
            u32 *vs = &v[j].x, *es = &e[j].x;
#pragma unroll
            for (int i = 0; i < 4; i++) {
              const int c = 2 * i;
              const float b0 = L::JOIN ? low(es[i]) * shortcut_factor[c] + offset[c] : offset[c];
              const float b1 = L::JOIN ? high(es[i]) * shortcut_factor[c + 1] + offset[c + 1] : offset[c + 1];
              vs[i] = pack_relu(low(vs[i]) * factor[c] + b0, high(vs[i]) * factor[c + 1] + b1);
            }
            const int inner = L::IMAGES > 1 ? r % L::TILE_ROWS : r;
            if (L::JOIN && (L::STRIDE == 1 || a.joined) && inner >= 1 && inner <= L::ROWS * L::STRIDE)
              a.joined[k * network + row.at * 64 + chunk] = v[j];
          }
          *reinterpret_cast<uint4*>(tile + (r * L::COLUMNS + chunk / CHUNKS + 1) * L::PITCH + own * 16) = v[j];
        }
      }
      ends = at.ends_unit();
      const size_t out = ((size_t)k * a.images * SIDE * SIDE + (size_t)at.tile * L::PIXELS) * COUT;
      at.advance(a.cut);
      if (!at.done()) request(at);
      __syncthreads();

      float acc[L::M][COUT / 8][4];
      clear(acc);
      if constexpr (L::DOWNWARDS)
        convolve_downwards<L::COLUMNS, CIN, COUT, L::M, L::PITCH>(acc, rows[0], w);
      else
        convolve<AllTaps<L::COLUMNS>, CIN, COUT, L::M, L::PITCH>(acc, rows, w);
      store_outputs<COUT, L::M>(acc, a.output + out, pixel, s1, s2);
      if constexpr (L::PROJECT) {
        clear(acc);
        convolve<CentreTap<L::COLUMNS>, CIN, COUT, L::M, L::PITCH>(acc, rows, project);
        store_outputs<COUT, L::M>(acc, a.projected + out, pixel, p1, p2);
      }
    }
    if (!a.sums) continue;
    write_sums<COUT, L::WARPS>(s1, s2, scratch, a.sums + (size_t)row * 2 * COUT, nullptr);
    if constexpr (L::PROJECT) {
      __syncthreads();
      write_sums<COUT, L::WARPS>(p1, p2, scratch, a.projected_sums + (size_t)row * 2 * COUT, nullptr);
    }
  }
}
