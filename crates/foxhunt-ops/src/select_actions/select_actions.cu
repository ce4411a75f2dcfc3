// Epsilon-greedy actions of a batch of decisions, and routing. Twin: foxhunt-ops/src/select_actions/cpu.rs.
//
// select_actions             in: q f32 [n, width] (5 or 45), mask u8 [n, width] or null; out: actions u32 [n].
// select_actions_routed      in: q f32 [n, 5], router inputs f32 [n] or [1]; out: factored actions u32 [n].
// select_actions_branching   in: q f32 [n, 11]; out: factored actions u32 [n].
// route_exposures            in: exposures u32 [n]; out: factored actions u32 [n]; an exposure of 5 or more is counted
//                            in `bad` and becomes u32::MAX.
//   Launch: a thread a decision, any n. `fell_back` gains the decisions that fell back: an integer sum, so its order
//   does not matter. Bytes: the row of Q-values, the action.
#include "common.cuh"
#include "philox.cuh"
#include "shared_structs.cuh"
#include "select_actions.cuh"

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ void count_lanes(bool one, u64* counter) {
  u32 lanes = __ballot_sync(ALL_LANES, one);
  if (lanes && (threadIdx.x & 31) == 0) atomicAdd(counter, (u64)__popc(lanes));
}

__device__ __forceinline__ float at(const float* values, u32 n, u32 row) { return values[n == 1 ? 0 : row]; }

__device__ __forceinline__ u32 route_row(const RouterInputs& r, u32 row) {
  return route(at(r.spread, r.spreads, row), at(r.median_spread, r.median_spreads, row), at(r.volatility, r.volatilities, row),
               at(r.median_volatility, r.median_volatilities, row));
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(128)
    select_actions(const float* q, u32 width, Mask mask, Explore x, u32 n, u32* actions, u64* fell_back) {
  u32 b = blockIdx.x * blockDim.x + threadIdx.x, word = 0;
  bool fallback = false;
  dependency_wait();
  dependents_may_start();
  if (b < n) {
    bool random = explore_coin(x.seed, x.first_env + b, x.vector_step, x.epsilon, &word);
    u64 row = (u64)b * width;
    actions[b] = select_action(q + row, mask ? mask + row : nullptr, width, random, word, &fallback);
  }
  count_lanes(fallback, fell_back);
}

extern "C" __global__ void __launch_bounds__(128)
    select_actions_routed(const float* q, Mask mask, Explore x, RouterInputs router, u32 n, u32* actions, u64* fell_back) {
  u32 b = blockIdx.x * blockDim.x + threadIdx.x, word = 0;
  bool fallback = false;
  dependency_wait();
  dependents_may_start();
  if (b < n) {
    bool random = explore_coin(x.seed, x.first_env + b, x.vector_step, x.epsilon, &word);
    u64 row = (u64)b * N_EXPOSURES;
    u32 exposure = select_action(q + row, mask ? mask + row : nullptr, N_EXPOSURES, random, word, &fallback);
    actions[b] = exposure * 9 + route_row(router, b);
  }
  count_lanes(fallback, fell_back);
}

extern "C" __global__ void __launch_bounds__(128)
    select_actions_branching(const float* q, Mask mask, Explore x, u32 n, u32* actions, u64* fell_back) {
  u32 b = blockIdx.x * blockDim.x + threadIdx.x, word = 0;
  bool fallback = false;
  dependency_wait();
  dependents_may_start();
  if (b < n) {
    bool random = explore_coin(x.seed, x.first_env + b, x.vector_step, x.epsilon, &word);
    u64 row = (u64)b * N_BRANCHING;
    actions[b] = select_branching(q + row, mask ? mask + row : nullptr, random, word, &fallback);
  }
  count_lanes(fallback, fell_back);
}

extern "C" __global__ void __launch_bounds__(128)
    route_exposures(const u32* exposures, RouterInputs router, u32 n, u32* actions, u64* bad) {
  u32 b = blockIdx.x * blockDim.x + threadIdx.x;
  bool wrong = false;
  dependency_wait();
  dependents_may_start();
  if (b < n) {
    u32 exposure = exposures[b];
    wrong = exposure >= N_EXPOSURES;
    actions[b] = wrong ? ALL_LANES : exposure * 9 + route_row(router, b);
  }
  count_lanes(wrong, bad);
}
