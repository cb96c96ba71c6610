// The kernels' single instructions on a CPU, under the names and with the arguments of the file that this one stands for
#pragma once

#include "types.cuh"

DEVICE u32 shared_address(const void* p) { return u32(reinterpret_cast<const u8*>(p) - emulator::arena); }
inline u8* at_shared_address(u32 address) { return emulator::arena + int32_t(address); }

inline float value(u32 pair, int half) { return half ? high(pair) : low(pair); }

// Eight rows of 16 bytes for each of COUNT matrices, whose addresses the lanes bring, eight after eight
template <int COUNT, bool TRANSPOSED> struct Matrices : emulator::Together {
  u32 at;
  u32 result[COUNT];
  static void load(emulator::Together* const* brought) {
    u16 all[COUNT][8][8];
    for (int lane = 0; lane < COUNT * 8; lane++)
      memcpy(all[lane / 8][lane % 8], at_shared_address(static_cast<Matrices*>(brought[lane])->at), 16);
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < COUNT; i++) {
        const int own = lane / 4, pair = lane % 4 * 2;
        const u16 first = TRANSPOSED ? all[i][pair][own] : all[i][own][pair];
        const u16 second = TRANSPOSED ? all[i][pair + 1][own] : all[i][own][pair + 1];
        static_cast<Matrices*>(brought[lane])->result[i] = first | u32(second) << 16;
      }
  }
  Matrices(u32 address) : Together{load}, at(address) {
    if (address % 16) emulator::fail("a matrix begins at an address that is no multiple of 16:", address);
  }
};
template <int COUNT, bool TRANSPOSED> void load_some(u32 (&r)[COUNT], u32 at) {
  Matrices<COUNT, TRANSPOSED> own(at);
  emulator::meet(own);
  for (int i = 0; i < COUNT; i++) r[i] = own.result[i];
}
DEVICE void load_matrices(u32 (&r)[4], u32 at) { load_some<4, false>(r, at); }
DEVICE void load_transposed(u32 (&r)[4], u32 at) { load_some<4, true>(r, at); }
DEVICE void load_transposed(u32 (&r)[2], u32 at) { load_some<2, true>(r, at); }

// c[16 x 8] += a[16 x 16] b[16 x 8]
struct Product : emulator::Together {
  float (&c)[4];
  const u32 (&a)[4];
  u32 b[2];
  static void multiply(emulator::Together* const* brought) {
    float a[16][16], b[16][8], sum[16][8];
    for (int lane = 0; lane < 32; lane++) {
      const Product& own = *static_cast<Product*>(brought[lane]);
      const int row = lane / 4, pair = lane % 4 * 2;
      for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 4; i++) a[row + i % 2 * 8][pair + half + i / 2 * 8] = value(own.a[i], half);
        for (int i = 0; i < 2; i++) b[pair + half + i * 8][row] = value(own.b[i], half);
      }
      for (int i = 0; i < 4; i++) sum[row + i / 2 * 8][pair + i % 2] = own.c[i];
    }
    for (int row = 0; row < 16; row++)
      for (int k = 0; k < 16; k++)
        for (int column = 0; column < 8; column++) sum[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        static_cast<Product*>(brought[lane])->c[i] = sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
  Product(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) : Together{multiply}, c(c), a(a), b{b0, b1} {}
};
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  Product own(c, a, b0, b1);
  emulator::meet(own);
}

DEVICE void copy_async(void* shared, const void* global) {
  const uintptr_t to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
  if (to % 16 || from % 16) emulator::fail("a copy begins at an address that is no multiple of 16:", to % 16 ? to : from);
  emulator::Thread& own = emulator::threads[emulator::running];
  if (emulator::copies_at_once) {
    memcpy(shared, global, 16);
  } else {
    if (own.copies == emulator::MOST_COPIES) emulator::fail("more copies are asked for than there is room for:", own.copies);
    own.copy[own.copies++] = {static_cast<u8*>(shared), static_cast<const u8*>(global)};
  }
}
DEVICE void wait_for_copies() {
  emulator::Thread& own = emulator::threads[emulator::running];
  for (int i = 0; i < own.copies; i++) memcpy(own.copy[i].to, own.copy[i].from, 16);
  own.copies = 0;
}
DEVICE void wait_for_kernel_before() {}  // it has ended

inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? copysignf(0.f, x) : x; }
DEVICE float add_as_memory(float a, float b) { return flushed(flushed(a) + flushed(b)); }
DEVICE void add_in_memory(float4* p, const float4& v) {
  p->x = add_as_memory(p->x, v.x), p->y = add_as_memory(p->y, v.y);
  p->z = add_as_memory(p->z, v.z), p->w = add_as_memory(p->w, v.w);
}

inline u16 rounded(float x) {  // to nearest, ties to even
  const u32 bits = same_bits<u32>(x);
  return x != x ? 0x7fff : u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
DEVICE u32 pack(float first, float second) { return rounded(first) | u32(rounded(second)) << 16; }
inline float not_below_0(float x) { return x < 0.f || x == 0.f ? 0.f : x; }
DEVICE u32 pack_relu(float first, float second) { return pack(not_below_0(first), not_below_0(second)); }
DEVICE u32 where_positive(u32 pair) { return (low(pair) > 0.f ? 0xffffu : 0) | (high(pair) > 0.f ? 0xffff0000u : 0); }
