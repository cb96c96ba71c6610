// Types, and numbers in bf16: alone, in pairs, in runs of neighbouring channels
#pragma once

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef u16 bf16;  // bits only: all arithmetic is fp32

#define DEVICE __device__ __forceinline__

DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

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
