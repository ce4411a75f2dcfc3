// Factorised Gaussian noise on the weights of linear layers (NoisyNet).
//
//   draw_weights     w = mu + sigma * (g f), b = mu + sigma * g, for up to three passes in one launch
//   scale_gradient   dsigma = dw * (g f), db * g
//
// Contract, addresses and twin: foxhunt-ops/src/noise/mod.rs, cpu.rs. A block has up to ROWS outputs of one layer and 256 of
// its inputs, a thread an input; it makes the factors of its rows and columns itself, so that no factor is stored. Every
// element is its own; nothing depends on the launch shape. The step comes from device memory. Moved: 12 bytes an element and
// pass, 8 for the gradient.
#include "common.cuh"
#include "shared_structs.cuh"
#include "philox.cuh"
#include "power.cuh"
#include "normal.cuh"

constexpr u32 ROWS = 16;
constexpr u32 NOISE = 5;  // the purpose in foxhunt-core/src/philox.rs

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ float factor(const NoiseArgs& a, u64 step, u32 layer, u32 side, u32 pass, u32 i) {
  u32 c[4] = {(u32)step, (u32)(step >> 32), layer | side << 8 | pass << 16, NOISE | i / 4 << 8};
  philox4x32(c, (u32)a.seed, (u32)(a.seed >> 32));
  u32 word = i % 4;
  return factor_of(word == 0 ? c[0] : word == 1 ? c[1] : word == 2 ? c[2] : c[3]);
}

// What a block works on, and the factors of its rows and of this thread's column.
struct Piece {
  u32 layer, first_row, rows, column;
  bool in_row, has_bias;
  float f;
};

__device__ __forceinline__ Piece find(const NoiseArgs& a, u32 block, u32 pass, float* g) {
  Piece p;
  p.layer = 0;
  while (p.layer + 1 < a.layers && block >= a.first_block[p.layer + 1]) p.layer++;
  block -= a.first_block[p.layer];
  u32 n_in = a.n_in[p.layer], n_out = a.n_out[p.layer], across = (n_in + 255) / 256;
  p.first_row = block / across * ROWS;
  p.rows = min(ROWS, n_out - p.first_row);
  p.column = block % across * 256 + threadIdx.x;
  p.in_row = p.column < n_in;
  p.has_bias = block % across == 0 && threadIdx.x < p.rows;
  u64 step = a.clock[0] + (a.clocks > 1 ? a.clock[1] : 0);
  p.f = p.in_row ? factor(a, step, p.layer, 0, pass, p.column) : 0.f;
  if (threadIdx.x < p.rows) g[threadIdx.x] = factor(a, step, p.layer, 1, pass, p.first_row + threadIdx.x);
  __syncthreads();
  return p;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(256) draw_weights(NoiseArgs a) {
  __shared__ float g[ROWS];
  dependency_wait();
  dependents_may_start();
  u32 job = blockIdx.x / a.blocks;
  Piece p = find(a, blockIdx.x % a.blocks, a.first_pass + job, g);
  const float *mean = a.parameters[job], *scale = mean + a.n;
  float* out = a.out[job];
  if (p.in_row) {
    u64 at = a.weight[p.layer] + (u64)p.first_row * a.n_in[p.layer] + p.column;
    for (u32 r = 0; r < p.rows; r++, at += a.n_in[p.layer]) out[at] = mean[at] + scale[at] * (g[r] * p.f);
  }
  if (p.has_bias) {
    u64 at = a.bias[p.layer] + (u64)p.first_row + threadIdx.x;
    out[at] = mean[at] + scale[at] * g[threadIdx.x];
  }
}

extern "C" __global__ void __launch_bounds__(256) scale_gradient(NoiseArgs a) {
  __shared__ float g[ROWS];
  dependency_wait();
  dependents_may_start();
  Piece p = find(a, blockIdx.x, a.first_pass, g);
  const float* of_means = a.parameters[0];
  float* of_scales = a.out[0];
  if (p.in_row) {
    u64 at = a.weight[p.layer] + (u64)p.first_row * a.n_in[p.layer] + p.column;
    for (u32 r = 0; r < p.rows; r++, at += a.n_in[p.layer]) of_scales[at] = of_means[at] * (g[r] * p.f);
  }
  if (p.has_bias) {
    u64 at = a.bias[p.layer] + (u64)p.first_row + threadIdx.x;
    of_scales[at] = of_means[at] * g[threadIdx.x];
  }
}
