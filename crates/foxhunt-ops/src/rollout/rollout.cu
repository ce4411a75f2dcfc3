// Vector steps of few environments, many in one launch: a cluster keeps its environments from the first step to the last, and the network's weights in shared
// memory. Nothing passes between clusters, as weights do not change on the way.
//
// In: environments and what each shows, pending steps, the market; the online network's weight image and biases. Out: the same `steps` bars later, the states
// to act in next, and the log (rollout.cuh), from which account.cu makes rows in their order and statistics.
// A step: Q-values of the cluster's environments (acting.cuh), of which a block finishes OWN; these are the environments that it steps, a lane each (act.cuh);
// then it makes their next states and hands them to the other blocks of the cluster. Windows, rows and counts of a step are settled in the next one, beside the
// longest product, where also all is asked for that the step after that needs of memory.
// Moved: the image once a cluster; then for each step and environment 128 bytes of bars, 192 of features, 128 of its own twice, 12 to 16 of the log beside its
// Q-values and a row of 32.
#include "common.cuh"
#include "philox.cuh"
#include "power.cuh"
#include "shared_structs.cuh"
#include "env_step.cuh"
#include "n_step.cuh"
#include "q_monitor.cuh"
#include "select_actions.cuh"
#include "compact.cuh"
#include "act.cuh"
#include "acting.cuh"
#include "rollout.cuh"

static_assert(IN == OBSERVED && OUTPUTS <= HEAD_WIDTH && OWN <= GROUP, "shape");

// Behind what acting.cuh has: counts; of each of the block's own environments {portfolio inputs, bar} of the state it shows, the bar whose features are here,
// and these. Where states lie there as they come, Q-values of the own rows.
constexpr int TALLY = SHARED, SEEN = rounded_up(TALLY + COUNTS * 4, 16), FEATURES = SEEN + OWN * 16, FETCHED_BAR = FEATURES + OWN * MARKET_FEATURES * 4;
constexpr int WHOLE = FETCHED_BAR + OWN * 4, STAGED = FETCHED;
static_assert(WHOLE == SHARED_BYTES && OWN * OUTPUTS <= ROWS * IN, "shared memory");

constexpr u32 STATE_SLABS = row_slabs(IN), OWN_LINES = OWN * 128, OWN_WARPS = GROUP / 32;

// One thread, as `expect_blocks`.
__device__ __forceinline__ void expect_states(u32 base) {
  if (BLOCKS > 1) expect_bytes(states_are_there(base), (BLOCKS - 1) * STATE_SLABS * OWN_LINES);
}

// `each(own, k, v)` hears of 16 / BYTES values of the states of the block's own rows, from the k-th on; those behind the last are 0.
template <typename Each>
__device__ __forceinline__ void for_states(const Market& market, Each&& each) {
  constexpr u32 EACH = 16 / BYTES, CHUNKS = depth(0) / EACH;
  static_assert(MARKET_FEATURES % EACH == 0, "features end where a chunk does");
  for (u32 i = threadIdx.x; i < CHUNKS * OWN; i += ALL) {
    u32 own = i / CHUNKS, k = i % CHUNKS * EACH;
    float4 seen = ((const float4*)(shared + SEEN))[own];
    float v[EACH] = {};
    if (k < MARKET_FEATURES) {
      u32 bar = __float_as_uint(seen.w);
      const float* here = (const float*)(shared + FEATURES) + own * MARKET_FEATURES;
      const float4* from = (const float4*)((bar == ((const u32*)(shared + FETCHED_BAR))[own] ? here : market.features + (u64)bar * MARKET_FEATURES) + k);
#pragma unroll
      for (u32 n = 0; n < EACH; n += 4) {
        float4 four = from[n / 4];
        v[n] = four.x, v[n + 1] = four.y, v[n + 2] = four.z, v[n + 3] = four.w;
      }
    } else if (k == MARKET_FEATURES) {
      v[0] = seen.x, v[1] = seen.y, v[2] = seen.z;
    }
    each(own, k, v);
  }
}

// The second warpgroup, of each of whose lanes `bar` is that of its environment: features of the next one begin to come.
__device__ __forceinline__ void fetch_features(const Market& market, u32 base, u32 own, u32 bar) {
  if (own < OWN) ((u32*)(shared + FETCHED_BAR))[own] = bar;
  constexpr u32 PIECES = MARKET_FEATURES / 4;
#pragma unroll 1
  for (u32 i = 0; i < OWN; i++) {
    // The lane that has row i tells the others of its warp, which bring it.
    if (i % OWN_WARPS != threadIdx.x % GROUP / 32) continue;
    u32 of = __shfl_sync(ALL_LANES, bar, i / OWN_WARPS), lane = threadIdx.x % 32;
    if (lane < PIECES)
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(base + FEATURES + i * (MARKET_FEATURES * 4) + lane * 16),
                   "l"(market.features + (u64)of * MARKET_FEATURES + lane * 4)
                   : "memory");
  }
}
__device__ __forceinline__ void features_are_there() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// States of the block's own rows as a right operand, here and in the other blocks.
__device__ __forceinline__ void give_states(const Market& market, const Here& at) {
  for_states(market, [&](u32 own, u32 k, const float (&v)[16 / BYTES]) {
    store_sixteen(at.base + k / LINE * SLAB + place(at.rank * OWN + own, k % LINE), v);
  });
  rows_are_stored();
  u32 i = threadIdx.x / 32;
  static_assert((BLOCKS - 1) * STATE_SLABS <= WARPS, "a warp a copy");
  if (threadIdx.x % 32 == 0 && i < (BLOCKS - 1) * STATE_SLABS) {
    u32 lines = at.base + i % STATE_SLABS * SLAB + at.rank * OWN_LINES;
    hand(lines, lines, OWN_LINES, states_are_there(at.base), (at.rank + 1 + i / STATE_SLABS) % BLOCKS);
  }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ALL, 1)
    rollout(Market market, EnvParams params, CollectParams c, CollectBuffers b, RolloutLog log, const __grid_constant__ RolloutArgs a) {
  u32 base = shared_address(shared), rank = blockIdx.x % BLOCKS;
  // The same for a whole warp, as the compiler is to know.
  u32 group = __shfl_sync(ALL_LANES, threadIdx.x / GROUP, 0);
  // Environments belong to lanes of the second warpgroup, which has less to multiply, by turns of its warps: those of one warp wait for one another.
  u32 lane = threadIdx.x % 32, own = group == 0 ? OWN : lane * OWN_WARPS + threadIdx.x % GROUP / 32;
  u32 first = blockIdx.x / BLOCKS * ROWS + rank * OWN, env = first + own;
  bool live = own < OWN && env < c.n_envs;
  u32* tally = (u32*)(shared + TALLY);
  float* staged = (float*)(shared + STAGED);
  float4* seen = (float4*)(shared + SEEN);
  Here at = {a.image, base, rank, group, 0};
  if (threadIdx.x == 0) {
    make_barriers(base);
    expect_blocks(base, rank);
    expect_states(base);
    barriers_are_made();
  }
  for (u32 i = threadIdx.x; i < COUNTS; i += ALL) tally[i] = 0;
  cluster_arrive();
  dependency_wait();
  u64 before = b.ledger->vector_step;
  float epsilon = b.ledger->epsilon;
  NStepRing ring = ring_of(c, b);
  uint2 place = live ? ((const uint2*)b.places)[env] : make_uint2(0, 0);
  if (own < OWN) {
    // Rows without an environment show the first bar, and nobody looks at what they get.
    seen[own] = live ? ((const float4*)b.shown)[env] : make_float4(0.f, 0.f, 0.f, __uint_as_float(c.first_bar));
    ((u32*)(shared + FETCHED_BAR))[own] = ~0u;
  }
  load_biases(a.parameters, a.bias, rank);
  cluster_wait();  // behind it all blocks have their barriers
  __syncthreads();
  bring_layers<0>(at);
  OneEnv of;
  Acted did;
  float4 oldest;  // pending step
  u32 bar = own < OWN ? __float_as_uint(seen[own].w) : 0;
  // What is left of a step behind its decision.
  auto settled = [&](u32 step) {
    u32 rows_out = 0;
    if (live) {
      u32 head = place.x, was = place.y;
      u32* rows = rows_of(log, c, step, env);
      rows_out = settle(ring, env, did, of.recent, place, [&](u32 k, float sum, float) {
        const Way& way = did.way;
        float4 from = k == was ? way.acted : k == 0 ? oldest : ring.pending[(u64)slot_after(head, k, c.n) * c.n_envs + env];
        store_compact(rows + ROW_WORDS * k, way.first_bar + k, __float_as_uint(way.reached.w), from, way.reached, __float_as_uint(from.w), way.terminal, sum);
      }).rows;
      u64 at_step = (u64)step * c.n_envs + env;
      log.rewards[at_step] = did.reward;
      log.log_returns[at_step] = did.log_return(params);
      log.row_counts[at_step] = rows_out;
      if (did.bad_states) atomicAdd(&log.bad[2 * step], did.bad_states);
      if (did.bad_rewards) atomicAdd(&log.bad[2 * step + 1], did.bad_rewards);
    }
    did.count(tally, live);
    rows_out = warp_sum(rows_out);
    if (lane == 0) log.part_rows[((u64)step * gridDim.x + blockIdx.x) * OWN_WARPS + threadIdx.x % GROUP / 32] = rows_out;
  };
  give_states(market, at);
#pragma unroll 1
  for (u32 step = 0; step < a.steps; step++) {
    at.parity = step & 1;
    if (BLOCKS > 1) wait_for_blocks(states_are_there(base), at.parity);
    u32 word = 0;
    bool random = false;
    layer<0>(at, [&] {
      if (group == 0) return;
      if (step > 0) settled(step - 1);
      fetch_features(market, base, own, min(bar + 1, c.last_bar));
      if (!live) return;
      of.load(b, env);
      of.load_bars(market, c, ring, env, bar, place);
      oldest = ring.pending[(u64)place.x * c.n_envs + env];
      if (step > 0) epsilon = epsilon_at(c, (before + step) * c.n_envs);
      random = explore_coin(c.seed, env, before + step, epsilon, &word);
    });
    bool last = step + 1 == a.steps;
    if (!KEEPS_WEIGHTS && !last) bring_weights<0>(at);
    wait_for_blocks(parts_are_there(base), at.parity);
    finish_rows(a.head, a.dueling, rank, [&](u32 own, u32 o, float v) {
      staged[own * OUTPUTS + o] = v;
      if (first + own < c.n_envs) log.q[((u64)step * c.n_envs + first + own) * OUTPUTS + o] = v;
    });
    features_are_there();
    __syncthreads();
    if (threadIdx.x == 0) {
      expect_blocks(base, rank);
      expect_states(base);
    }
    if (live) {
      did = act(market, params, c, env, of, place.y, random, word, staged + own * OUTPUTS);
      bar = __float_as_uint(of.seen.w);
      seen[own] = of.seen;
      of.store(b, env);
      // What the step after the next reads of the market.
      fetch_line(market.bars + min(bar + 2, c.last_bar));
    }
    __syncthreads();
    if (!last) give_states(market, at);
  }
  if (group > 0) {
    settled(a.steps - 1);
    if (live) ((uint2*)b.places)[env] = place;
  }
  for_states(market, [&](u32 own, u32 k, const float (&v)[16 / BYTES]) {
#pragma unroll
    for (u32 n = 0; n < 16 / BYTES; n++)
      if (first + own < c.n_envs && k + n < IN) b.states[(u64)(first + own) * IN + k + n] = v[n];
  });
  dependents_may_start();
  __syncthreads();
  for (u32 i = threadIdx.x; i < COUNTS; i += ALL)
    if (tally[i]) atomicAdd(&b.ledger->counts[i], (u64)tally[i]);
  cluster_arrive();  // a block's memory is there until all others have what it gave them
  cluster_wait();
}
