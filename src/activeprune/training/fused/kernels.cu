// K residual networks for 32x32 images, trained side by side. Every kernel serves all of them: network k is blockIdx.y.
//
// Activations are bf16 [K, image, row, column, channel]. At every stage side * channels = 512, so a row of pixels is
// always 1 KB, or 64 chunks of 8 channels; that is how all convolutions address memory. What is stored of a layer is
// the raw output of its convolution; batch norm, ReLU and residual sum are applied by whoever reads it. Only a block's
// input (the "joined" value) is stored as well, because its convolution, its shortcut and its ReLU's mask all need it.
//
// Sums over a batch (batch norm, weight gradients, loss) are never added atomically: every unit of work writes its own
// row of partial sums and whoever needs the total adds the rows in a fixed order. How a network's batch is cut into
// units depends on the batch alone, so a network's numbers do not depend on its neighbours or on their number. Large
// kernels have as many blocks as the GPU can hold at once; each takes a run of units, of one network or of several.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef u16 bf16;  // bits only: all arithmetic is fp32

#define DEVICE __device__ __forceinline__
#define EPSILON 1e-5f

// 64-channel weights (72 KB) stand in shared memory where a block may have 227 KB of it, else they come through the L1
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define DEEP_WEIGHTS SHARED
#else
#define DEEP_WEIGHTS GLOBAL
#endif

enum Place { GLOBAL, SHARED, REGISTERS };             // where a block keeps its weights
enum Shortcut { NONE, IDENTITY, PADDED, PROJECTED };  // what is added to a block's second norm

// One batch norm as its reader sees it. sums: [K][blocks][2][C] rows of Σy and Σy²; blocks = 0: the moments are given
struct Norm {
  const float* sums;
  float* moments;  // [K][2][channels]: mean and biased variance; written by the first reader
  const float *gamma, *beta;
  int blocks;
  float inverse;  // 1 / number of values per channel
};

// ------------------------------------------------------------------------------------------------- instructions

DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

DEVICE void load_matrices(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
DEVICE void load_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
DEVICE void load_transposed(u32 (&r)[2], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
}
// c[16 x 8] += a[16 x 16] b[16 x 8]
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global));
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A kernel's blocks may start when those of the kernel before have ended, but before what these wrote is there for all.
// Returns when it is; nothing that a kernel has written since the step began may be read before.
DEVICE void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Sums in memory take numbers below 2^-126 for 0; `add_as_memory` does as well, and so gives the same bits
DEVICE void add_in_memory(float4* p, const float4& v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
#else
  float* q = reinterpret_cast<float*>(p);
  atomicAdd(q, v.x), atomicAdd(q + 1, v.y), atomicAdd(q + 2, v.z), atomicAdd(q + 3, v.w);
#endif
}
DEVICE float add_as_memory(float a, float b) {
  float sum;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
}

DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE u32 pack(float first, float second) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
DEVICE u32 pack_relu(float first, float second) {  // of NaN: NaN, so that who diverges is seen to
  u32 pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// V neighbouring channels
template <int V> union Pack;
template <> union Pack<4> {
  uint2 all;
  u32 pair[2];
};
template <> union Pack<8> {
  uint4 all;
  u32 pair[4];
};
template <int V> DEVICE Pack<V> load(const bf16* p) {
  Pack<V> v;
  v.all = *reinterpret_cast<const decltype(v.all)*>(p);
  return v;
}
template <int V> DEVICE void store(bf16* p, const Pack<V>& v) { *reinterpret_cast<decltype(v.all)*>(p) = v.all; }

template <int N> DEVICE void clear(float (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) values[i] = 0.f;
}

// Columns of a product are permuted (the packed weights see to it) so that a thread's C channels are GROUPS runs of V
// neighbours, which it can store at once; run g starts at channel g * 32 + (lane & 3) * V.
template <int C> struct Channels {
  static constexpr int V = C == 16 ? 4 : 8, GROUPS = C == 16 ? 1 : C / 32, MINE = V * GROUPS;
};

// ------------------------------------------------------------------------------------------------- sums

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

// norm(y) = y * scale + shift of network k, for all C channels; `writes`: whether the moments are put down here.
// Scratch: THREADS * 4 + 2 C floats. `keep`: room for this block's own copy of mean and variance, which must not be read
// back from memory that another block of the same launch may not have written yet. The caller synchronises.
template <int C, int THREADS>
DEVICE void scale_and_shift(const Norm& n, int k, bool writes, int parameters, int channels, float* scratch,
                            float* scale, float* shift, float* keep = nullptr) {
  const int c = threadIdx.x;
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
    const float factor = n.gamma[(size_t)k * parameters + c] * rsqrtf(variance + EPSILON);
    scale[c] = factor;
    shift[c] = n.beta[(size_t)k * parameters + c] - mean * factor;
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

// ------------------------------------------------------------------------------------------------- products

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

// ------------------------------------------------------------------------------------------------- input

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

// ------------------------------------------------------------------------------------------------- stem

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

// ------------------------------------------------------------------------------------------------- units

// How the tiles of all networks are dealt out: a unit is `per_unit` tiles of one network, with sums of its own. A block
// takes whole runs of `run` units; where there are networks enough for that, it adds up a run's weight gradients itself.
struct Cut {
  int tiles, per_unit, units, networks, run;  // tiles and units: of one network; units is a multiple of run
};

// Where a block is in its run of units
struct Cursor {
  int unit, last, k, number, tile, end;  // number: of the unit in network k; tile: of network k; both ends excluded
  DEVICE explicit Cursor(const Cut& cut) {
    const long long runs = (long long)(cut.units / cut.run) * cut.networks;
    unit = (int)(runs * blockIdx.x / gridDim.x) * cut.run, last = (int)(runs * (blockIdx.x + 1) / gridDim.x) * cut.run;
    enter(cut);
  }
  DEVICE void enter(const Cut& cut) {
    k = unit / cut.units, number = unit % cut.units;
    tile = number * cut.per_unit, end = min(cut.tiles, tile + cut.per_unit);
  }
  DEVICE bool done() const { return unit >= last; }
  DEVICE void advance(const Cut& cut) {
    if (++tile < end) return;
    if (++unit < last) enter(cut);
  }
  DEVICE bool ends_unit() const { return tile + 1 == end; }
  DEVICE int row(const Cut& cut) const { return k * cut.units + number; }  // of partial sums
};

// ------------------------------------------------------------------------------------------------- forward

struct Forward {
  const uint4* input;     // raw output of the convolution before
  const uint4* shortcut;  // JOIN: what is added to its norm, see kind
  uint4* joined;          // JOIN: the block's input, written here
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

// Zeros in the tile's left and right columns, which no row of pixels ever overwrites
template <class L, int CHUNKS> DEVICE void clear_frame(u8* tile) {
  for (int i = threadIdx.x; i < L::ALL_ROWS * 2 * CHUNKS; i += L::THREADS) {
    const int side = i / CHUNKS;
    *reinterpret_cast<uint4*>(tile + (side / 2 * L::COLUMNS + side % 2 * (L::COLUMNS - 1)) * L::PITCH +
                              i % CHUNKS * 16) = make_uint4(0, 0, 0, 0);
  }
}

// Row r of a tile with its frame: its number among all rows of the network's batch, and whether it is in the image
struct Row {
  int at;
  bool inside;
};
template <class L, int SIDE> DEVICE Row row_of(int tile, int r) {
  constexpr int HEIGHT = 512 / L::COUT, STEP = SIDE / HEIGHT;  // of the output; input rows for each of its rows
  const int image = L::IMAGES > 1 ? tile * L::IMAGES + r / L::TILE_ROWS : tile / (HEIGHT / L::ROWS);
  const int h = L::IMAGES > 1 ? r % L::TILE_ROWS - 1 : tile % (HEIGHT / L::ROWS) * L::ROWS * STEP - 1 + r;
  return Row{image * SIDE + h, h >= 0 && h < SIDE};
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
    scale_and_shift<CIN, L::THREADS>(a.norm, at.k, writes, a.parameters, a.channels, scratch, scale, shift);
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
            if (L::JOIN && inner >= 1 && inner <= L::ROWS * L::STRIDE)
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

// ------------------------------------------------------------------------------------------------- backward

struct Backward {
  const uint4 *gradient, *output;  // at this layer's norm, and this convolution's raw output
  const uint4* input;              // MIDDLE: raw, norm and ReLU are applied here; else a block's joined input
  const bf16* raw;                 // the raw output whose norm made the input (MIDDLE: the same as input)
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
template <int CIN_, int COUT_, int STRIDE_, bool MIDDLE_, int ROWS_, int IMAGES_, int ATONCE_, Place PLACE_>
struct BackwardShape {
  static constexpr int CIN = CIN_, COUT = COUT_, STRIDE = STRIDE_, ROWS = ROWS_, IMAGES = IMAGES_, WARPS = 8;
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
  static constexpr bool EARLY = CIN < 64;  // what the input gradient's end needs is asked for before its products
  static constexpr int COEFFICIENTS = 4 * (3 * COUT + 4 * CIN), SCRATCH = THREADS * 16 + 8 * COUT;
  static constexpr int TILE_BYTES = ALL_ROWS * COLUMNS * PITCH, INPUT_BYTES = INPUT_PIXELS * INPUT_PITCH;
  static constexpr int WEIGHT_BYTES = PLACE == SHARED ? 18 * CIN * COUT : 0;
  static constexpr int SHARED_BYTES =
      COEFFICIENTS + SCRATCH + TILE_BYTES + INPUT_BYTES + WEIGHT_BYTES + ALL_ROWS * 2048 + INPUT_CHUNKS * 16;
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
      return load<V>(a.raw + inputs_before + input_pixel(half) * CIN + g * 32 + channel);
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
        Pack<V> x, r, out;
        if (!L::MIDDLE) x = load<V>(reinterpret_cast<const bf16*>(inputs + input_pixel(half) * L::INPUT_PITCH) + first);
        if (adds) r = L::EARLY ? early_residual[L::EARLY ? half : 0][g] : residual_at(half, g);
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
          const int c = first + 2 * i, s = g * V + 2 * i;
          const float* sums = acc[half / 2][g * 4 + i];
          float v0 = sums[(half & 1) * 2], v1 = sums[(half & 1) * 2 + 1];
          if (adds) v0 += low(r.pair[i]), v1 += high(r.pair[i]);
          const float y0 = low(y.pair[i]), y1 = high(y.pair[i]);
          bool on0, on1;  // whether the ReLU let the value through
          if (L::MIDDLE) {
            on0 = y0 * coefficient[c] + coefficient[CIN + c] > 0.f;
            on1 = y1 * coefficient[c + 1] + coefficient[CIN + c + 1] > 0.f;
          } else {
            on0 = low(x.pair[i]) > 0.f, on1 = high(x.pair[i]) > 0.f;
          }
          out.pair[i] = pack(on0 ? v0 : 0.f, on1 ? v1 : 0.f);
          v0 = low(out.pair[i]), v1 = high(out.pair[i]);
          s1[s] += v0, s2[s] += v0 * (y0 - coefficient[2 * CIN + c]);
          s1[s + 1] += v1, s2[s + 1] += v1 * (y1 - coefficient[2 * CIN + c + 1]);
        }
        store<V>(a.input_gradient + inputs_before + input_pixel(half) * CIN + first, out);
      }
  }

  // Rows of at least 16 pixels: going down a strip of 16, a dy row once loaded serves three kernel rows
  DEVICE void weight_gradient_wide(float (&acc)[9][L::NI][4], int in, int out, int group) const {
    constexpr int STRIPS = L::SIDE / 16, ROWS = L::ROWS / (L::GROUPS / STRIPS > 0 ? L::GROUPS / STRIPS : 1);
    static_assert(L::NI == 1 && L::GROUPS >= STRIPS && L::IMAGES == 1, "a strip a group");
    const int lane = threadIdx.x & 31, strip = group % STRIPS, first = group / STRIPS * ROWS;
    const u32 dy = shared_address(tile) + (first * L::COLUMNS + strip * 16 + (lane & 15)) * L::PITCH + out * 16;
    const u32 x = shared_address(inputs) + in * 32 + ((lane >> 3) & 1) * 16 +
                  (first * L::SIDE + strip * 16 + (lane & 7) + ((lane >> 4) << 3)) * L::INPUT_PITCH;
    u32 b[3][3][2];  // [row % 3][kernel column]
#pragma unroll
    for (int row = 0; row < ROWS + 2; row++) {
#pragma unroll
      for (int column = 0; column < 3; column++)
        load_transposed(b[row % 3][column], dy + (row * L::COLUMNS + 2 - column) * L::PITCH);
      if (row < 2) continue;
      u32 f[4];
      load_transposed(f, x + (row - 2) * L::SIDE * L::INPUT_PITCH);
#pragma unroll
      for (int tap = 0; tap < 9; tap++) {
        const u32(&from)[2] = b[(row - tap / 3) % 3][tap % 3];
        multiply(acc[tap][0], f, from[0], from[1]);
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

// A unit's weight gradient, [9][COUT / 8][CIN / 16][lane][4]: as the products leave it, so that a warp writes 512 bytes
// at once. Groups add up in turn, in shared memory. Behind the `first` unit of a run, the sum is added to what this very
// thread has put there, so the order is fixed; a reduction, since nothing waits for it as it would for the old value.
template <class L>
DEVICE void write_weight_sums(const float (&acc)[9][L::NI][4], int in, int out, int group, float4* buffer, float4* row,
                              bool first) {
#pragma unroll
  for (int turn = 0; turn < L::GROUPS; turn++) {
    if (group == turn) {
#pragma unroll
      for (int tap = 0; tap < 9; tap++)
#pragma unroll
        for (int n = 0; n < L::NI; n++) {
          const int at = ((tap * (L::COUT / 8) + out * L::NI + n) * L::WARPS_IN + in) * 32 + (threadIdx.x & 31);
          float4 v = make_float4(acc[tap][n][0], acc[tap][n][1], acc[tap][n][2], acc[tap][n][3]);
          if (turn) {
            const float4 before = buffer[at];
            v.x += before.x, v.y += before.y, v.z += before.z, v.w += before.w;
          }
          if (turn + 1 == L::GROUPS && !first)
            add_in_memory(row + at, v);
          else
            (turn + 1 < L::GROUPS ? buffer : row)[at] = v;
        }
    }
    if (turn + 1 < L::GROUPS) __syncthreads();
  }
}

template <class L> DEVICE void backward(const Backward& a) {
  constexpr int CIN = L::CIN, COUT = L::COUT, SIDE = L::SIDE, WIDTH = L::WIDTH, CHUNKS = COUT / 8;
  constexpr int STEP = L::THREADS / 64, TURNS = (L::ALL_ROWS + STEP - 1) / STEP, ATONCE = L::ATONCE;
  extern __shared__ __align__(16) u8 shared[];
  float *line = reinterpret_cast<float*>(shared), *coefficient = line + 3 * COUT, *scratch = coefficient + 4 * CIN;
  u8 *tile = shared + L::COEFFICIENTS + L::SCRATCH, *inputs = tile + L::TILE_BYTES;
  uint4* weights = reinterpret_cast<uint4*>(inputs + L::INPUT_BYTES);
  uint4* stage = weights + L::WEIGHT_BYTES / 16;
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
    for (int i = tid; i < L::INPUT_CHUNKS; i += L::THREADS) copy_async(stage + 2 * L::ALL_ROWS * 64 + i, input + i);
  };
  BackwardTile<L> work{a, tile, inputs, coefficient};
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
          uint4 v = stage[2 * L::ALL_ROWS * 64 + i];
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

// ------------------------------------------------------------------------------------------------- projection

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

// ------------------------------------------------------------------------------------------------- head

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
  scale_and_shift<64, 256>(a.norm, k, blockIdx.x == 0, a.parameters, a.channels, scratch, scale, shift, moments);
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

// ------------------------------------------------------------------------------------------------- update

struct Segment {  // where a parameter tensor's gradient is: `count` rows, `pitch` floats apart
  const float* rows;
  long long network_pitch;
  int count, pitch, start, length, run;  // start: in the parameters; run: rows that are added up first, see Cut
};

struct Update {
  float *parameters, *velocity;             // [K][P]
  const u8 *mask, *active;                  // [K][P], [K]
  bf16 *forward, *backward;                 // packed weights [K][W]
  const int *forward_slot, *backward_slot;  // [P], -1: none
  const Segment* segments;
  const int* segment_of;  // for each 256 parameters
  const float* rates;     // [K][steps]
  const int* step;        // [K]
  float momentum, decay;
  int nesterov, steps, count, packed;  // P and W
};

// Runs of rows are added up each by itself, then all runs, both in order
template <int RUN> DEVICE float total(const float* row, const Segment& s) {
  float sum = 0.f;
#pragma unroll(8 / RUN)
  for (int j = 0; j < s.count; j += RUN) {
    float run = row[(size_t)j * s.pitch];
#pragma unroll
    for (int i = 1; i < RUN; i++) run = add_as_memory(run, row[(size_t)(j + i) * s.pitch]);
    sum += run;
  }
  return sum;
}

// SGD with momentum. A block has 256 parameters, all of one tensor (the flat row is padded to make it so).
extern "C" __global__ void __launch_bounds__(256) update(const __grid_constant__ Update a) {
  const int k = blockIdx.y, i = blockIdx.x * 256 + threadIdx.x;
  const Segment s = a.segments[a.segment_of[blockIdx.x]];
  wait_for_kernel_before();
  if (!a.active[k] || i - s.start >= s.length) return;
  const float* row = s.rows + k * s.network_pitch + (i - s.start);
  float gradient = s.run == 4 ? total<4>(row, s) : s.run == 2 ? total<2>(row, s) : total<1>(row, s);
  const size_t at = (size_t)k * a.count + i;
  const float old = a.parameters[at], rate = a.rates[(size_t)k * a.steps + a.step[k]];
  gradient = (a.mask[at] ? gradient : 0.f) + a.decay * old;
  const float velocity = a.momentum * a.velocity[at] + gradient;
  const float value = old - rate * (a.nesterov ? gradient + a.momentum * velocity : velocity);
  a.velocity[at] = velocity;
  a.parameters[at] = value;
  const bf16 rounded = (bf16)(pack(value, 0.f) & 0xffff);
  if (a.forward_slot[i] >= 0) a.forward[(size_t)k * a.packed + a.forward_slot[i]] = rounded;
  if (a.backward_slot[i] >= 0) a.backward[(size_t)k * a.packed + a.backward_slot[i]] = rounded;
}

struct Finish {
  const float* moments;     // [K][2][channels]
  float* running;           // the same
  const float* correction;  // [channels]: n / (n - 1)
  const u8* active;
  const float* losses;  // [K][parts][blocks][2]
  float* table;         // [K][steps][parts][2]
  int* step;
  int training, channels, blocks, parts, steps;
};

// Running statistics, the step's loss and right answers, and on to the next step. One block a network.
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ Finish a) {
  const int k = blockIdx.y, tid = threadIdx.x;
  wait_for_kernel_before();
  const int step = a.step[k];
  if (a.training && a.active[k])
    for (int c = tid; c < a.channels; c += 256) {
      const size_t at = (size_t)k * 2 * a.channels + c;
      a.running[at] = 0.9f * a.running[at] + 0.1f * a.moments[at];
      a.running[at + a.channels] =
          0.9f * a.running[at + a.channels] + 0.1f * (a.moments[at + a.channels] * a.correction[c]);
    }
  if (tid < 2 * a.parts) {
    const int part = k * a.parts + tid / 2;
    float s = 0.f;
    for (int b = 0; b < a.blocks; b++) s += a.losses[((size_t)part * a.blocks + b) * 2 + tid % 2];
    a.table[(((size_t)k * a.steps + step) * a.parts + tid / 2) * 2 + tid % 2] = s;
  }
  __syncthreads();
  if (tid == 0) a.step[k] = step + 1;
}

// ------------------------------------------------------------------------------------------------- kernels

// <name>_shape tells the host: threads, dynamic shared memory in bytes, output pixels of a tile, and how many blocks a
// multiprocessor holds where a block takes any number of units (else 0)
#define SHAPE(name, threads, bytes, pixels, blocks) \
  extern "C" __device__ int name##_shape[4] = {threads, bytes, pixels, blocks};
#define KERNEL(name, function, Arguments, L, blocks)                                                           \
  extern "C" __global__ void __launch_bounds__(L::THREADS, blocks) name(const __grid_constant__ Arguments a) { \
    function(a);                                                                                               \
  }
#define FORWARD(name, blocks, ...)                                                             \
  using name##_layer = ForwardShape<__VA_ARGS__>;                                              \
  SHAPE(name, name##_layer::THREADS, name##_layer::SHARED_BYTES, name##_layer::PIXELS, blocks) \
  KERNEL(name, forward<name##_layer>, Forward, name##_layer, blocks)
#define BACKWARD(name, blocks, ...)                                                            \
  using name##_layer = BackwardShape<__VA_ARGS__>;                                             \
  SHAPE(name, name##_layer::THREADS, name##_layer::SHARED_BYTES, name##_layer::PIXELS, blocks) \
  KERNEL(name, backward<name##_layer>, Backward, name##_layer, blocks)
#define PROJECT(name, C)                                                                  \
  using name##_layer = ProjectShape<C / 2, C>;                                            \
  SHAPE(name, name##_layer::THREADS, name##_layer::SHARED_BYTES, name##_layer::PIXELS, 0) \
  KERNEL(name, (project_backward<C / 2, C>), ProjectBackward, name##_layer, 4)

SHAPE(gather, 128, 0, 0, 0)
SHAPE(stem_forward, 128, 0, STEM_PIXELS, 0)
SHAPE(stem_backward, 256, 0, STEM_PIXELS, 0)
SHAPE(head, 256, 0, 0, 0)
SHAPE(update, 256, 0, 0, 0)
SHAPE(finish, 256, 0, 0, 0)

// clang-format off
//      name              blocks  in out stride join  project rows images warps at once weights
FORWARD(forward_16_middle,   4, 16, 16, 1, false, false,  8, 1, 4, 3, REGISTERS)
FORWARD(forward_16_join,     4, 16, 16, 1, true,  false,  8, 1, 4, 3, REGISTERS)
FORWARD(forward_32_down,     2, 16, 32, 2, true,  false,  8, 1, 8, 3, SHARED)
FORWARD(forward_32_project,  2, 16, 32, 2, true,  true,   8, 1, 8, 3, SHARED)
FORWARD(forward_32_middle,   3, 32, 32, 1, false, false, 16, 1, 4, 3, SHARED)
FORWARD(forward_32_join,     2, 32, 32, 1, true,  false, 16, 1, 4, 2, SHARED)
FORWARD(forward_64_down,     2, 32, 64, 2, true,  false,  8, 1, 4, 3, SHARED)
FORWARD(forward_64_project,  2, 32, 64, 2, true,  true,   8, 1, 4, 3, SHARED)
FORWARD(forward_64_middle,   1, 64, 64, 1, false, false,  8, 4, 8, 5, DEEP_WEIGHTS)
FORWARD(forward_64_join,     1, 64, 64, 1, true,  false,  8, 4, 8, 3, DEEP_WEIGHTS)
//       name             blocks  in out stride middle rows images at once weights
BACKWARD(backward_16_middle, 2, 16, 16, 1, true,   8, 1, 2, SHARED)
BACKWARD(backward_16_join,   2, 16, 16, 1, false,  8, 1, 3, SHARED)
BACKWARD(backward_32_down,   2, 16, 32, 2, false,  8, 1, 2, SHARED)
BACKWARD(backward_32_middle, 2, 32, 32, 1, true,   8, 1, 3, SHARED)
BACKWARD(backward_32_join,   2, 32, 32, 1, false,  8, 1, 3, SHARED)
BACKWARD(backward_64_down,   1, 32, 64, 2, false,  8, 2, 2, DEEP_WEIGHTS)
BACKWARD(backward_64_middle, 1, 64, 64, 1, true,   8, 2, 1, DEEP_WEIGHTS)
BACKWARD(backward_64_join,   1, 64, 64, 1, false,  8, 2, 1, DEEP_WEIGHTS)
// clang-format on

PROJECT(project_backward_32, 32)
PROJECT(project_backward_64, 64)
SHAPE(shortcut_sums_32, 256, 0, 0, 0)
SHAPE(shortcut_sums_64, 256, 0, 0, 0)
extern "C" __global__ void __launch_bounds__(256) shortcut_sums_32(const __grid_constant__ ShortcutSums a) {
  shortcut_sums<32>(a);
}
extern "C" __global__ void __launch_bounds__(256) shortcut_sums_64(const __grid_constant__ ShortcutSums a) {
  shortcut_sums<64>(a);
}
