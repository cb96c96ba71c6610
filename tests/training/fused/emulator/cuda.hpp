// What the kernels use of CUDA C++, on a CPU: threads of a block take turns on one thread of the machine.
//
// A thread runs until it has to wait for others: for its warp, where 32 of them do something together, or for its block.
// Between two such points threads may run in any order; `schedule` chooses one, and a kernel whose threads wait for each
// other wherever they must does the same in all of them. Copies are done as late as allowed, or at once.
#pragma once

#include <csetjmp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define __CUDA_ARCH__ 900
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline int min(int a, int b) { return a < b ? a : b; }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class To, class From> To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
inline float __int_as_float(int bits) { return same_bits<float>(bits); }
template <class T> T __ldg(const T* p) { return *p; }

namespace emulator {

constexpr int MOST_THREADS = 512, STACK = 1 << 16, MOST_COPIES = 4096, MOST_SHARED = 227 * 1024, PAGE = 4096;

// Something that the threads of a warp do together: `perform` is called once, with what each of them brought
struct Together {
  void (*perform)(Together* const*);
};

enum State { READY, AT_WARP, AT_BLOCK, ENDED };

struct Copy {
  uint8_t* to;
  const uint8_t* from;
};

struct Thread {
  ucontext_t context;
  jmp_buf at;
  State state;
  Together* brings;
  bool started;
  int copies;
  Copy copy[MOST_COPIES];
};

typedef void (*Kernel)(const void*);

struct Place {
  unsigned x, y, z;
};

inline Thread threads[MOST_THREADS];
inline uint8_t (*stacks)[STACK];
// Dynamic shared memory ends where no memory may be touched
alignas(PAGE) inline uint8_t arena[(MOST_SHARED + PAGE - 1) / PAGE * PAGE + PAGE];
inline uint8_t* dynamic_shared = arena;
inline jmp_buf scheduler;
inline int running, warp, position;  // the thread, the first one of its warp, and whose turn it is in it
inline Kernel kernel;
inline const void* arguments;
inline char problem[256];
inline uint64_t order = 0;       // of threads and blocks; 0: ascending
inline bool copies_at_once = false;

}  // namespace emulator

inline emulator::Place threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

[[noreturn]] inline void fail(const char* what, long long value) {
  if (!*problem)
    snprintf(problem, sizeof(problem), "%s %lld in thread %d of block %u, %u", what, value, running, blockIdx.x, blockIdx.y);
  _longjmp(scheduler, 1);
}

// The i-th of `count` in the present order: a shift and a direction
inline int turn(int i, int count) {
  const int shifted = (i + int(order >> 1) % count) % count;
  return order & 1 ? count - 1 - shifted : shifted;
}

// On to the next thread of this warp that can run, or back to who called `run_threads`
inline void life();
[[noreturn]] inline void run_next() {
  while (++position < 32) {
    const int number = warp + turn(position, 32);
    Thread& thread = threads[number];
    if (thread.state != READY) continue;
    running = number, threadIdx = {unsigned(number), 0, 0};
    if (thread.started) _longjmp(thread.at, 1);
    thread.started = true;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks[number], thread.context.uc_stack.ss_size = STACK;
    makecontext(&thread.context, life, 0);
    setcontext(&thread.context);
  }
  _longjmp(scheduler, 1);
}

// Lets others run until it is this thread's turn again
inline __attribute__((noinline)) void pause_as(State state) {
  threads[running].state = state;
  if (!_setjmp(threads[running].at)) run_next();
}

inline void meet(Together& brings) {
  threads[running].brings = &brings;
  pause_as(AT_WARP);
}

inline void life() {
  for (;;) {
    kernel(arguments);
    pause_as(ENDED);
  }
}

// Each thread of a warp that can run, until it waits
inline __attribute__((noinline)) void run_threads(int first) {
  warp = first, position = -1;
  if (!_setjmp(scheduler)) run_next();
}

// A warp's threads up to the next point where they wait for the block, or to their end
inline void run_warp(int first) {
  for (;;) {
    run_threads(first);
    if (*problem) return;
    Together* brought[32];
    int together = 0;
    for (int lane = 0; lane < 32; lane++) {
      brought[lane] = threads[first + lane].brings;
      together += threads[first + lane].state == AT_WARP && brought[lane]->perform == brought[0]->perform;
    }
    if (!together) {
      for (int lane = 0; lane < 32; lane++)
        if (threads[first + lane].state == AT_WARP) together = -1;
      if (!together) return;
    }
    if (together != 32) {
      running = first;
      snprintf(problem, sizeof(problem), "threads %d to %d of block %u, %u part where they should act together", first,
               first + 31, blockIdx.x, blockIdx.y);
      return;
    }
    brought[0]->perform(brought);
    for (int lane = 0; lane < 32; lane++) threads[first + lane].state = READY;
  }
}

inline void run_block() {
  const int warps = blockDim.x / 32;
  for (unsigned i = 0; i < blockDim.x; i++) threads[i].state = READY, threads[i].copies = 0;
  for (bool ended = false; !ended && !*problem;) {
    for (int i = 0; i < warps && !*problem; i++) run_warp(turn(i, warps) * 32);
    ended = true;
    for (unsigned i = 0; i < blockDim.x; i++)
      if (threads[i].state == AT_BLOCK) threads[i].state = READY, ended = false;
  }
}

}  // namespace emulator

inline void __syncthreads() { emulator::pause_as(emulator::AT_BLOCK); }
inline void __syncwarp() {
  emulator::Together nothing{[](emulator::Together* const*) {}};
  emulator::meet(nothing);
}

template <class T> struct Shuffle : emulator::Together {
  T value, other;
  int mask;
};
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
  Shuffle<T> own;
  own.value = value, own.mask = mask;
  own.perform = [](emulator::Together* const* brought) {
    auto of = [&](int lane) { return static_cast<Shuffle<T>*>(brought[lane]); };
    for (int lane = 0; lane < 32; lane++) of(lane)->other = of(lane ^ of(lane)->mask)->value;
  };
  emulator::meet(own);
  return own.other;
}

// ---- what Python calls

extern "C" {

void schedule(unsigned long long order, int copies_at_once) {
  emulator::order = order, emulator::copies_at_once = copies_at_once;
}

// Runs a kernel; null, or what went wrong
const char* launch(emulator::Kernel kernel, int width, int height, int threads, int shared, const void* arguments) {
  using namespace emulator;
  if (!stacks) {
    void* room = mmap(nullptr, size_t(MOST_THREADS) * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || mprotect(arena + sizeof(arena) - PAGE, PAGE, PROT_NONE)) return "no memory";
    stacks = reinterpret_cast<uint8_t(*)[STACK]>(room);
  }
  if (threads > MOST_THREADS || shared > MOST_SHARED) return "too many threads or too much shared memory";
  emulator::kernel = kernel, emulator::arguments = arguments;
  gridDim = {unsigned(width), unsigned(height), 1}, blockDim = {unsigned(threads), 1, 1};
  *problem = 0;
  dynamic_shared = arena + sizeof(arena) - PAGE - (shared + 15) / 16 * 16;
  for (int i = 0; i < width * height && !*problem; i++) {
    const int block = turn(i, width * height);
    blockIdx = {unsigned(block % width), unsigned(block / width), 0};
    memset(dynamic_shared, 0xff, shared);  // NaN in float32 and bf16
    run_block();
  }
  if (*problem)
    for (Thread& thread : emulator::threads) thread.started = false;
  return *problem ? problem : nullptr;
}

}
