// The optimiser's step, running statistics and results
#pragma once

#include "instructions.cuh"

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
  float gradient = s.run == 4 ? total<4>(row, s) : total<1>(row, s);
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
