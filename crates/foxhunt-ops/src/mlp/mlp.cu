// The network's layers on the device: forward passes, and the way back.
//
//   forward_layer     out = finish(x W^T + b) for up to three jobs (online(s), online(s'), target(s')) in one launch;
//                     for the first layer more blocks count the inputs that are not finite; for acting the head's blocks
//                     give Q-values where one of them makes whole rows
//   backward_layer    d_before = mask(d W), and the layer's weight and bias gradients, in one launch, beside them those of layers
//                     whose way back head_pass.cu or cluster_pass.cu made; in the first launch one more block sums the losses
//                     and prepares the step
//
// In f32 every element is the chain of foxhunt-ops/src/mlp/panels.rs (its twin): from the bias over inputs in order, from 0
// over outputs in order, from 0 over the rows of a segment in order, and nothing depends on the launch shape. With PRECISION
// products go to tensor cores (mma.cuh); sums of biases, losses and segments stay these chains.
// Moved, a forward job: rows * (n_in + n_out) + n_in * n_out words, tiles reading their operands through L2.
#include "common.cuh"
#include "shared_structs.cuh"
#ifdef PRECISION
#include "mma.cuh"
#else
#include "tiles.cuh"
#endif
#include "q_from_head.cuh"
#include "step.cuh"

extern __shared__ __align__(16) float shared[];

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ u32 count_bad(const float* x, u64 n, u32 block, u32 blocks) {
  u32 bad = 0;
#pragma unroll 8
  for (u64 i = (u64)block * THREADS + threadIdx.x; i < n; i += (u64)blocks * THREADS) bad += !is_finite(x[i]);
  return bad;
}

// Counts what is not finite before a relu or an argmax can lose it (case C12).
__device__ void inspect(const ForwardArgs& f, u32 block) {
  u64 values = (u64)f.rows[0] * f.n_in;
  u32 states = count_bad(f.x[0], values, block, f.inspectors) + count_bad(f.next_states, values, block, f.inspectors);
  u32 rewards = count_bad(f.rewards, f.rows[0], block, f.inspectors);
  rewards += count_bad(f.terminated, f.rows[0], block, f.inspectors);
  states = warp_sum(states), rewards = warp_sum(rewards);
  if ((threadIdx.x & 31) == 0) {
    if (states) atomicAdd(&f.state->bad_states, states);
    if (rewards) atomicAdd(&f.state->bad_rewards, rewards);
  }
}

// db[o] = sum of d[r, o] over the rows of a segment in order, for one tile of outputs.
__device__ float bias_chain(const Matrix& d, u32 o0, u32 first, u32 end, Dependency& ahead) {
  using A = Product<false, false>::A;
  u32 slabs = (end - first + SLAB - 1) / SLAB;
  u32 memory = (u32)__cvta_generic_to_shared(shared);
  A::Feed feed(d, o0, first);
  ahead.wait();
  for (u32 s = 0; s < STAGES - 1; s++) {
    if (s < slabs) feed.next(memory + s * A::FLOATS * 4);
    end_of_group();
  }
  float sum = 0.f;
  for (u32 s = 0; s < slabs; s++) {
    wait_for_groups<STAGES - 2>();
    __syncthreads();
    u32 next = s + STAGES - 1;
    if (next < slabs) feed.next(memory + next % STAGES * A::FLOATS * 4);
    end_of_group();
    u32 count = min((u32)SLAB, end - (first + s * SLAB));
    const float* slab = shared + s % STAGES * A::FLOATS + threadIdx.x;
    if (threadIdx.x < TILE_M) {
#pragma unroll 8
      for (u32 k = 0; k < count; k++) sum += slab[k * A::STRIDE];
    }
  }
  wait_for_groups<0>();
  __syncthreads();
  return sum;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(THREADS, 1) forward_layer(ForwardArgs f) {
  // Beside the kernel ahead it waits only at its end, as the kernels behind count on everything ahead being done.
  bool beside = f.ahead >= AHEAD_LEAVES_ALL;
  Dependency ahead(f.lonely, beside);
  u32 block = blockIdx.x;
  if (block >= f.tiles) {
    ahead.wait();
    inspect(f, block - f.tiles);
    dependents_may_start();
    return;
  }
  u32 job = (block >= f.first_block[1]) + (block >= f.first_block[2]);
  block -= f.first_block[job];
  u32 m0 = block / f.n_tiles * TILE_M, n0 = block % f.n_tiles * TILE_N;
  u32 rows = f.rows[job];
  const float* bias = f.parameters[job] + f.bias;
  using P = Product<true, true>;
  float acc[THREAD_M][THREAD_N];
  bool early = f.ahead >= AHEAD_LEAVES_PARAMETERS;
  if (!early) ahead.wait();
#pragma unroll
  for (int j = 0; j < THREAD_N; j++) {
    u32 n = n0 + P::n(j);
    float b = n < f.n_out ? bias[n] : 0.f;
#pragma unroll
    for (int i = 0; i < THREAD_M; i++) acc[i][j] = b;
  }
  Matrix x = {f.x[job], f.x_stride, rows, f.n_in};
  Matrix w = {f.parameters[job] + f.weight, f.n_in, f.n_out, f.n_in};
  P::run(acc, x, w, m0, n0, 0, f.n_in, shared, early, ahead);
  dependents_may_start();
  if (f.head.q) {
#pragma unroll
    for (int i = 0; i < THREAD_M; i++)
#pragma unroll
      for (int j = 0; j < THREAD_N; j++)
        if (P::n(j) < TILE_N) shared[P::m(i) * (TILE_N + 1) + P::n(j)] = acc[i][j];
    __syncthreads();
    store_q<THREADS>(f.head, shared, TILE_N + 1, m0, TILE_M);
    if (beside) dependency_wait();
    return;
  }
  float* out = f.out[job];
  bool wide = is_wide(out, f.out_stride);
#pragma unroll
  for (int i = 0; i < THREAD_M; i++) {
    u32 m = m0 + P::m(i);
    if (m >= rows) continue;
#pragma unroll
    for (int j = 0; j < THREAD_N; j += P::RUN) {
      float v[P::RUN];
#pragma unroll
      for (int q = 0; q < P::RUN; q++) v[q] = f.relu && acc[i][j + q] < 0.f ? 0.f : acc[i][j + q];  // a NaN passes
      store_run(out + (u64)m * f.out_stride, n0 + P::n(j), f.n_out, wide, v);
    }
  }
  if (beside) dependency_wait();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) backward_layer(BackwardLayers layers, SumArgs sums) {
  u32 number = (blockIdx.x >= layers.first_block[1]) + (blockIdx.x >= layers.first_block[2]);
  const BackwardArgs& a = layers.of[number];
  u32 block = blockIdx.x - layers.first_block[number];
  Dependency ahead(layers.of[0].lonely);
  Matrix d = {a.d, a.d_stride, a.rows, a.n_out};
  if (block < a.weight_tiles * a.splits) {
    // Weight gradient: the rows of one segment, or of all, one segment after the other.
    using P = Product<false, false>;
    u32 split = block / a.weight_tiles;
    block %= a.weight_tiles;
    u32 o0 = block / a.n_tiles * TILE_M, i0 = block % a.n_tiles * TILE_N;
    Matrix x = {a.x, a.x_stride, a.rows, a.n_in};
    float* out = a.gradient + (u64)split * a.split_stride + a.weight;
    bool add = a.add, wide = is_wide(out, a.n_in);
    u32 last = a.splits > 1 ? min(a.rows, (split + 1) * a.segment) : a.rows;
    for (u32 first = split * a.segment; first < last; first += a.segment) {
      float acc[THREAD_M][THREAD_N] = {};
      P::run(acc, d, x, o0, i0, first, min(first + a.segment, last), shared, a.early, ahead);
#pragma unroll
      for (int i = 0; i < THREAD_M; i++) {
        u32 o = o0 + P::m(i);
        if (o >= a.n_out) continue;
        float* row = out + (u64)o * a.n_in;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += P::RUN) {
          u32 n = i0 + P::n(j);
          float v[P::RUN];
#pragma unroll
          for (int q = 0; q < P::RUN; q++) v[q] = acc[i][j + q];
          if (add) {
            float old[P::RUN];
            load_run(row, n, a.n_in, wide, old);
#pragma unroll
            for (int q = 0; q < P::RUN; q++) v[q] = old[q] + v[q];
          }
          store_run(row, n, a.n_in, wide, v);
        }
      }
      add = true;
    }
    dependents_may_start();
    return;
  }
  block -= a.weight_tiles * a.splits;
  if (block < a.bias_tiles * a.splits) {
    u32 split = block / a.bias_tiles, o0 = block % a.bias_tiles * TILE_M, o = o0 + threadIdx.x;
    float* out = a.gradient + (u64)split * a.split_stride + a.bias + o;
    bool add = a.add;
    u32 last = a.splits > 1 ? min(a.rows, (split + 1) * a.segment) : a.rows;
    for (u32 first = split * a.segment; first < last; first += a.segment) {
      float sum = bias_chain(d, o0, first, min(first + a.segment, last), ahead);
      if (threadIdx.x < TILE_M && o < a.n_out) *out = add ? *out + sum : sum;
      add = true;
    }
    dependents_may_start();
    return;
  }
  block -= a.bias_tiles * a.splits;
  if (block < a.before_tiles) {
    using P = Product<true, false>;
    u32 m0 = block / a.n_tiles * TILE_M, n0 = block % a.n_tiles * TILE_N;
    float acc[THREAD_M][THREAD_N] = {};
    Matrix w = {a.w, a.n_in, a.n_out, a.n_in};
    P::run(acc, d, w, m0, n0, 0, a.n_out, shared, true, ahead);
    dependents_may_start();
    // 0 where the unit was not above 0. The layer's inputs are the units before it, [rows, n_in].
    bool wide = is_wide(a.x, a.x_stride) && is_wide(a.before, a.before_stride);
#pragma unroll
    for (int i = 0; i < THREAD_M; i++) {
      u32 m = m0 + P::m(i);
      if (m >= a.rows) continue;
#pragma unroll
      for (int j = 0; j < THREAD_N; j += P::RUN) {
        u32 n = n0 + P::n(j);
        float h[P::RUN], v[P::RUN];
        load_run(a.x + (u64)m * a.x_stride, n, a.n_in, wide, h);
#pragma unroll
        for (int q = 0; q < P::RUN; q++) v[q] = h[q] <= 0.f ? 0.f : acc[i][j + q];
        store_run(a.before + (u64)m * a.before_stride, n, a.n_in, wide, v);
      }
    }
    return;
  }
  ahead.wait();
  dependents_may_start();
  sum_up(sums, layers.of[0].rows, (double*)shared);
}
