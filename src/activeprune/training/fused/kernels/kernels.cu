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

#include "input.cuh"
#include "stem.cuh"
#include "forward.cuh"
#include "series.cuh"
#include "backward.cuh"
#include "projection.cuh"
#include "head.cuh"
#include "update.cuh"

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
#define SERIES(name, blocks, ...)                                                              \
  using name##_layer = SeriesShape<__VA_ARGS__>;                                               \
  SHAPE(name, name##_layer::THREADS, name##_layer::SHARED_BYTES, name##_layer::PIXELS, blocks) \
  KERNEL(name, series<name##_layer>, Series, name##_layer, blocks)
#define PROJECT(name, C)                                                                  \
  using name##_layer = ProjectShape<C / 2, C>;                                            \
  SHAPE(name, name##_layer::THREADS, name##_layer::SHARED_BYTES, name##_layer::PIXELS, 0) \
  KERNEL(name, (project_backward<C / 2, C>), ProjectBackward, name##_layer, 4)

SHAPE(gather, 128, 0, 0, 0)
SHAPE(stem_forward, 128, 0, STEM_PIXELS, 0)
SHAPE(stem_backward, 256, 0, STEM_PIXELS, 0)
SHAPE(head, 256, 0, 0, 0)
SHAPE(affine, 256, 0, 0, 0)
SHAPE(update, 256, 0, 0, 0)
SHAPE(finish, 256, 0, 0, 0)

// clang-format off
//      name              blocks  in out stride join  project rows images warps at once weights
FORWARD(forward_16_middle,   4, 16, 16, 1, false, false,  8, 1, 4, 3, REGISTERS)
FORWARD(forward_16_join,     4, 16, 16, 1, true,  false,  8, 1, 4, 3, REGISTERS)
FORWARD(forward_32_down,     2, 16, 32, 2, true,  false,  8, 1, 4, 3, SHARED)
FORWARD(forward_32_project,  2, 16, 32, 2, true,  true,   8, 1, 8, 3, SHARED)
FORWARD(forward_32_middle,   3, 32, 32, 1, false, false, 16, 1, 4, 3, SHARED)
FORWARD(forward_32_join,     2, 32, 32, 1, true,  false, 16, 1, 4, 3, SHARED)
FORWARD(forward_64_down,     2, 32, 64, 2, true,  false,  8, 1, 4, 3, SHARED)
FORWARD(forward_64_project,  2, 32, 64, 2, true,  true,   8, 1, 4, 3, SHARED)
FORWARD(forward_64_middle,   1, 64, 64, 1, false, false,  8, 4, 8, 5, DEEP_WEIGHTS)
FORWARD(forward_64_join,     1, 64, 64, 1, true,  false,  8, 4, 8, 3, DEEP_WEIGHTS)
//     name   blocks width images warps
SERIES(series_16, 2, 16, 1, 8)
SERIES(series_32, 3, 32, 1, 4)
SERIES(series_64, 2, 64, 2, 4)
//       name             blocks  in out stride middle rows images warps at once weights
BACKWARD(backward_16_middle, 3, 16, 16, 1, true,   8, 1, 4, 3, SHARED)
BACKWARD(backward_16_join,   3, 16, 16, 1, false,  8, 1, 4, 3, SHARED)
BACKWARD(backward_32_down,   2, 16, 32, 2, false,  8, 1, 4, 1, SHARED)
BACKWARD(backward_32_middle, 2, 32, 32, 1, true,   8, 1, 4, 1, SHARED)
BACKWARD(backward_32_join,   2, 32, 32, 1, false,  8, 1, 4, 3, SHARED)
BACKWARD(backward_64_down,   1, 32, 64, 2, false,  8, 2, 8, 3, DEEP_WEIGHTS)
BACKWARD(backward_64_middle, 1, 64, 64, 1, true,   8, 2, 8, 3, DEEP_WEIGHTS)
BACKWARD(backward_64_join,   1, 64, 64, 1, false,  8, 2, 8, 1, DEEP_WEIGHTS)
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
