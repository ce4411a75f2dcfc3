// The account of a rollout: of its log (rollout.cuh) the rows of all its vector steps in their order, and statistics, as if the steps had been made one by one.
//
// In: the log; counts of rows by step and part, u32 [steps, parts]. Out: rows, step by step in order of environment, and their number; sums of groups, counts,
// faults; vector step, epsilon and progress.
//   Launch: 512 threads; a block for each group of 32 environments, whose warps share out the steps, then a block for each step, which moves its rows.
//   Determinism: a row's place is a sum of integers; a group's f64 sums are made by step in a tree over its lanes, and added in order of the steps.
//   Moved: the log once, but counts by part for every step behind theirs; each row once more.
#include "common.cuh"
#include "philox.cuh"
#include "power.cuh"
#include "shared_structs.cuh"
#include "env_step.cuh"
#include "n_step.cuh"
#include "q_monitor.cuh"
#include "select_actions.cuh"
#include "act.cuh"
#include "rollout.cuh"

constexpr u32 THREADS = 512, WARPS = THREADS / 32;

// Sums by step in front, then what warps have of Q-values.
extern __shared__ double sums[];

__device__ __forceinline__ void account_group(const CollectParams& c, const CollectBuffers& b, const RolloutLog& log, u32 group, u32 steps) {
  __shared__ u32 tally[COUNTS];
  u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = group * 32, env = first + lane, words = min(32u, c.n_envs - first) * OUTPUTS;
  bool live = env < c.n_envs;
  float* own = (float*)(sums + 3 * steps) + warp * 32 * OUTPUTS;
  Group* of = b.groups + group;
  for (u32 i = threadIdx.x; i < COUNTS; i += THREADS) tally[i] = 0;
  __syncthreads();
  for (u32 step = warp; step < steps; step += WARPS) {
    u64 at = (u64)step * c.n_envs + first;
    float reward = live ? log.rewards[at + lane] : 0.f;
    double log_return = live ? log.log_returns[at + lane] : 0.0;
#pragma unroll 15
    for (u32 i = lane; i < 32 * OUTPUTS; i += 32) own[i] = i < words ? log.q[at * OUTPUTS + i] : 0.f;
    __syncwarp();
    QSums q = q_sums_of(own + lane * OUTPUTS, live);
    double reward_sum = warp_tree_sum(is_finite(reward) ? (double)reward : 0.0), return_sum = warp_tree_sum(log_return);
    if (lane == 0) {
      sums[step] = q.top, sums[steps + step] = reward_sum, sums[2 * steps + step] = return_sum;
      q.count(c, tally);
      if (step + 1 == steps) q.store_last(of);
    }
    __syncwarp();
  }
  __syncthreads();
  if (threadIdx.x < 3) {
    double* total = threadIdx.x == 0 ? &of->max_q : threadIdx.x == 1 ? &of->reward : &of->episode_log_return;
    double sum = *total;
    for (u32 step = 0; step < steps; step++) sum = sum + sums[threadIdx.x * steps + step];
    *total = sum;
  }
  for (u32 i = threadIdx.x; i < COUNTS; i += THREADS)
    if (tally[i]) atomicAdd(&b.ledger->counts[i], (u64)tally[i]);
}

// The sum of `v` over all threads with a lower number; `total` that over all. `scratch` holds a word a warp.
__device__ __forceinline__ u32 sum_before(u32 v, u32* scratch, u32* total) {
  u32 lane = threadIdx.x % 32, sum = v;
#pragma unroll
  for (u32 k = 1; k < 32; k <<= 1) {
    u32 left = __shfl_up_sync(ALL_LANES, sum, k);
    if (lane >= k) sum += left;
  }
  if (lane == 31) scratch[threadIdx.x / 32] = sum;
  __syncthreads();
  u32 before = 0, all = 0;
#pragma unroll
  for (u32 w = 0; w < WARPS; w++) {
    u32 of = scratch[w];
    before += w < threadIdx.x / 32 ? of : 0;
    all += of;
  }
  __syncthreads();
  *total = all;
  return before + sum - v;
}

// Gives the number of rows up to the end of this step.
__device__ __forceinline__ u32 move_rows(const CollectParams& c, const RolloutLog& log, u32* rows, u32 step, u32 parts) {
  __shared__ u32 scratch[WARPS];
  u32 ahead = 0, total;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < step * parts; i += THREADS) ahead += log.part_rows[i];
  sum_before(ahead, scratch, &ahead);
  for (u32 base = 0; base < c.n_envs; base += THREADS) {
    u32 env = base + threadIdx.x, count = env < c.n_envs ? log.row_counts[(u64)step * c.n_envs + env] : 0;
    u32 to = ahead + sum_before(count, scratch, &total);
    const uint4* from = (const uint4*)rows_of(log, c, step, env);
    for (u32 k = 0; k < count; k++) {
      uint4 low = from[2 * k], high = from[2 * k + 1];
      ((uint4*)rows)[2 * (u64)(to + k)] = low, ((uint4*)rows)[2 * (u64)(to + k) + 1] = high;
    }
    ahead += total;
  }
  return ahead;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    account(CollectParams c, CollectBuffers b, RolloutLog log, u32* rows, u32* row_count, u64* progress, u32 steps, u32 parts) {
  u32 groups = (c.n_envs + 31) / 32, step = blockIdx.x - groups;
  dependency_wait();
  dependents_may_start();
  if (blockIdx.x < groups) return account_group(c, b, log, blockIdx.x, steps);
  u32 all = move_rows(c, log, rows, step, parts);
  if (step + 1 < steps) return;
  u32* bad = (u32*)sums;
  for (u32 i = threadIdx.x; i < 2 * steps; i += THREADS) bad[i] = log.bad[i], log.bad[i] = 0;
  __syncthreads();
  if (threadIdx.x != 0) return;
  *row_count = all;
  end_steps(c, b.ledger, bad, steps, progress);
}
