// Vector steps of few environments, many in one launch: a cluster keeps its environments from the first step to the last, and of the network's weights as many as
// shared memory has room for. Nothing passes between clusters, as weights do not change on the way.
//
// In: environments and what each shows, pending steps, the market; the online network's weight image and biases. Out: the same `steps` bars later, the states
// to act in next, counts, and the log (rollout.cuh), from which account.cu makes rows in their order and the other statistics.
// Of a block two warpgroups pass rows through the network (acting.cuh), and a third, a lane an environment, steps those OWN whose Q-values the block finishes
// (act.cuh); then the first make their next states and hand them to the other blocks of the cluster. Windows, rows and counts of a step are settled while the
// next one is in the network, when all is asked for that it needs of memory too; features of the bar that is likely to follow are in shared memory by then, where they find room.
// Moved: the image once a cluster, without KEEPS_WEIGHTS the first layer and the head once a step; then for each step and environment 128 bytes of bars, 192 of
// features, what a pending step is made of and left by, 16 of the log beside its Q-values and a row of 32.
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

// Behind what acting.cuh has: counts; of each of the block's own environments {portfolio inputs, bar} of the state it shows, whether that bar is another than the
// one expected, and features of that unless there is no room for any, when all bars are unexpected. Where states lie there as they come, Q-values of the own rows.
constexpr int TALLY = SHARED, SEEN = rounded_up(TALLY + COUNTS * 4, 16), FEATURES = SEEN + OWN * 16, UNEXPECTED = FEATURES + (FETCHES_FEATURES ? OWN * MARKET_FEATURES * 4 : 0);
constexpr int MEETINGS = rounded_up(UNEXPECTED + OWN * 4, 8), WHOLE = MEETINGS + 16, STAGED = FETCHED;
static_assert(WHOLE == SHARED_BYTES && OWN * OUTPUTS <= ROWS * IN, "shared memory");

// Environments belong to the lanes of a warpgroup by turns of its warps, as those of a warp wait for one another.
constexpr u32 BLOCK = ALL + GROUP, OWN_WARPS = GROUP / 32;
constexpr u32 STATE_SLABS = row_slabs(IN), OWN_LINES = OWN * 128;
// Values of a state that are stored at once, and how often.
constexpr u32 EACH = 16 / BYTES, CHUNKS = depth(0) / EACH, FEATURE_CHUNKS = MARKET_FEATURES / EACH;
static_assert(MARKET_FEATURES % EACH == 0 && PORTFOLIO_INPUTS <= EACH, "features end where a chunk does");

// All threads of a block, those that pass rows and those that step environments at places of their own, at meeting 0 or 1 of a step. Barriers of a block's own
// are for threads that come to one place.
__device__ __forceinline__ void halves_meet(u32 base, u32 meeting, u32 parity) {
  u32 barrier = base + MEETINGS + meeting * 8;
  arrive(barrier);
  wait_for(barrier, parity);
  __syncwarp();
}

// One thread, as `expect_blocks`.
__device__ __forceinline__ void expect_states(u32 base) {
  if (BLOCKS > 1) expect_bytes(states_are_there(base), (BLOCKS - 1) * STATE_SLABS * OWN_LINES);
}

__device__ __forceinline__ void load_chunk(float (&v)[EACH], const float* from) {
#pragma unroll
  for (u32 n = 0; n < EACH; n += 4) {
    float4 four = *(const float4*)(from + n);
    v[n] = four.x, v[n + 1] = four.y, v[n + 2] = four.z, v[n + 3] = four.w;
  }
}
// Chunk number `chunk` of the state of the own row `own`, as part of a right operand.
__device__ __forceinline__ void store_chunk(const Here& at, u32 own, u32 chunk, const float (&v)[EACH]) {
  u32 k = chunk * EACH;
  store_sixteen(at.base + k / LINE * SLAB + place(at.rank * OWN + own, k % LINE), v);
}

// Those that pass rows: the features of the next states as far as they are expected.
__device__ __forceinline__ void expected_states(const Here& at) {
#pragma unroll 1
  for (u32 i = this_thread(); i < FEATURE_CHUNKS * OWN; i += ALL) {
    u32 own = i / FEATURE_CHUNKS, chunk = i % FEATURE_CHUNKS;
    float v[EACH];
    load_chunk(v, (const float*)(shared + FEATURES) + own * MARKET_FEATURES + chunk * EACH);
    store_chunk(at, own, chunk, v);
  }
}
// The rest of these states, here and all of them in the other blocks.
__device__ __forceinline__ void give_states(const Market& market, const Here& at) {
#pragma unroll 1
  for (u32 i = this_thread(); i < CHUNKS * OWN; i += ALL) {
    u32 own = i / CHUNKS, chunk = i % CHUNKS;
    float4 seen = ((const float4*)(shared + SEEN))[own];
    float v[EACH] = {};
    if (chunk >= FEATURE_CHUNKS) {
      if (chunk == FEATURE_CHUNKS) v[0] = seen.x, v[1] = seen.y, v[2] = seen.z;
    } else if (((const u32*)(shared + UNEXPECTED))[own]) {
      load_chunk(v, market.features + (u64)__float_as_uint(seen.w) * MARKET_FEATURES + chunk * EACH);
    } else {
      continue;
    }
    store_chunk(at, own, chunk, v);
  }
  rows_are_stored();
  u32 i = threadIdx.x / 32;
  static_assert((BLOCKS - 1) * STATE_SLABS <= WARPS, "a warp a copy");
  if (threadIdx.x % 32 == 0 && i < (BLOCKS - 1) * STATE_SLABS) {
    u32 lines = at.base + i % STATE_SLABS * SLAB + at.rank * OWN_LINES;
    hand(lines, lines, OWN_LINES, states_are_there(at.base), (at.rank + 1 + i / STATE_SLABS) % BLOCKS);
  }
}

// The third warpgroup: features of the bars that are likely to follow begin to come.
__device__ __forceinline__ void fetch_features(const Market& market, u32 base, u32 last_bar) {
  constexpr u32 PIECES = MARKET_FEATURES / 4;
#pragma unroll 1
  for (u32 i = threadIdx.x - ALL; i < OWN * PIECES; i += GROUP) {
    u32 bar = min(__float_as_uint(((const float4*)(shared + SEEN))[i / PIECES].w) + 1, last_bar);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(base + FEATURES + i * 16), "l"(market.features + (u64)bar * MARKET_FEATURES + i % PIECES * 4)
                 : "memory");
  }
}
__device__ __forceinline__ void features_are_there() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What the two halves of a block have in common.
struct Work {
  const Market& market;
  const EnvParams& params;
  const CollectParams& c;
  const CollectBuffers& b;
  const RolloutLog& log;
  const RolloutArgs& a;
  u32 first;  // of the own environments
};

// Those that pass rows.
__device__ __forceinline__ void pass_rows(const Work& work, Here at) {
  u32 steps = work.a.steps;
  float* staged = (float*)(shared + STAGED);
  give_states(work.market, at);
#pragma unroll 1
  for (u32 step = 0; step < steps; step++) {
    at.parity = step & 1;
    if (BLOCKS > 1) wait_for_blocks(states_are_there(at.base), at.parity);
    layer<0>(at);
    if (!KEEPS_WEIGHTS && step + 1 < steps) bring_weights<0>(at);
    wait_for_blocks(parts_are_there(at.base), at.parity);
    finish_rows(work.a.head, work.a.dueling, at.rank, [&](u32 own, u32 o, float v) {
      staged[own * OUTPUTS + o] = v;
      if (work.first + own < work.c.n_envs) work.log.q[((u64)step * work.c.n_envs + work.first + own) * OUTPUTS + o] = v;
    });
    halves_meet(at.base, 0, at.parity);  // Q-values are there, and features
    if (threadIdx.x == 0) {
      expect_blocks(at.base, at.rank);
      expect_states(at.base);
    }
    if (FETCHES_FEATURES) expected_states(at);
    halves_meet(at.base, 1, at.parity);  // environments have moved on
    if (step + 1 < steps) give_states(work.market, at);
  }
}

// Those that step environments, `own` of a lane below OWN where it has one.
__device__ __forceinline__ void step_environments(const Work& work, u32 base, u32 own, u32* tally) {
  const CollectParams& c = work.c;
  const CollectBuffers& b = work.b;
  const RolloutLog& log = work.log;
  u32 lane = threadIdx.x % 32, warp = threadIdx.x % GROUP / 32, env = work.first + own, steps = work.a.steps;
  bool live = own < OWN && env < c.n_envs;
  u64 before = b.ledger->vector_step;
  float epsilon = b.ledger->epsilon;
  NStepRing ring = ring_of(c, b);
  OneEnv of;
  Acted did;
  float4 oldest;  // pending step
  uint2 place;
  if (live) {
    of.load(b, env);
    place = ((const uint2*)b.places)[env];
  }
  // What is left of a step behind its decision.
  auto settled = [&](u32 step) {
    u32 rows_out = 0;
    if (live) {
      u32 head = place.x, was = place.y;
      u32* rows = rows_of(log, c, step, env);
      const Way& way = did.way;
      Pushed pushed = settle(ring, env, did, of.recent, place, [&](u32 k, float sum, float) {
        float4 from = k == was ? way.acted : k == 0 ? oldest : ring.pending[(u64)slot_after(head, k, c.n) * c.n_envs + env];
        store_compact(rows + ROW_WORDS * k, way.first_bar + k, __float_as_uint(way.reached.w), from, way.reached, __float_as_uint(from.w), way.terminal, sum);
      });
      rows_out = pushed.rows;
      u64 at_step = (u64)step * c.n_envs + env;
      log.rewards[at_step] = did.reward;
      log.log_returns[at_step] = did.log_return(work.params);
      log.row_counts[at_step] = rows_out;
      if (did.bad_states) atomicAdd(&log.bad[2 * step], did.bad_states);
      if (did.bad_rewards) atomicAdd(&log.bad[2 * step + 1], did.bad_rewards);
    }
    did.count(tally, live);
    rows_out = warp_sum(rows_out);
    if (lane == 0) log.part_rows[((u64)step * gridDim.x + blockIdx.x) * OWN_WARPS + warp] = rows_out;
  };
#pragma unroll 1
  for (u32 step = 0; step < steps; step++) {
    // All of the cluster meet once a hidden layer, whose last takes the longest.
#pragma unroll 1
    for (u32 l = 1; l < LAYERS; l++) {
      cluster_arrive();
      cluster_wait();
    }
    cluster_arrive();
    if (FETCHES_FEATURES) fetch_features(work.market, base, c.last_bar);
    if (step > 0) settled(step - 1);
    u32 word = 0;
    bool random = false;
    if (live) {
      of.load_bars(work.market, c, ring, env, place);
      oldest = ring.pending[(u64)place.x * c.n_envs + env];
      if (step > 0) epsilon = epsilon_at(c, (before + step) * c.n_envs);
      random = explore_coin(c.seed, env, before + step, epsilon, &word);
      // What the step after this one reads of the market.
      fetch_line(work.market.bars + min(of.s.bar + 2, c.last_bar));
      fetch_line(work.market.features + (u64)min(of.s.bar + 2, c.last_bar) * MARKET_FEATURES);
      fetch_line(work.market.features + (u64)min(of.s.bar + 2, c.last_bar) * MARKET_FEATURES + 32);
    }
    features_are_there();
    cluster_wait();
    halves_meet(base, 0, step & 1);  // Q-values are there, and features
    if (live) {
      u32 expected = min(of.s.bar + 1, c.last_bar);
      did = act(work.market, work.params, c, env, of, place.y, random, word, (const float*)(shared + STAGED) + own * OUTPUTS);
      ((float4*)(shared + SEEN))[own] = of.seen;
      ((u32*)(shared + UNEXPECTED))[own] = !FETCHES_FEATURES || __float_as_uint(of.seen.w) != expected;
    }
    halves_meet(base, 1, step & 1);  // environments have moved on
  }
  settled(steps - 1);
  if (live) {
    of.store(b, env);
    ((uint2*)b.places)[env] = place;
  }
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(BLOCK, 1)
    rollout(Market market, EnvParams params, CollectParams c, CollectBuffers b, RolloutLog log, const __grid_constant__ RolloutArgs a) {
  u32 base = shared_address(shared), rank = blockIdx.x % BLOCKS, first = blockIdx.x / BLOCKS * ROWS + rank * OWN;
  // The same for a whole warp, as the compiler is to know.
  u32 group = __shfl_sync(ALL_LANES, threadIdx.x / GROUP, 0), own = threadIdx.x % 32 * OWN_WARPS + threadIdx.x % GROUP / 32;
  u32* tally = (u32*)(shared + TALLY);
  float4* seen = (float4*)(shared + SEEN);
  Here at = {a.image, base, rank, group, 0};
  Work work = {market, params, c, b, log, a, first};
  if (threadIdx.x == 0) {
    make_barriers(base);
    for (u32 i = 0; i < 2; i++) make_barrier(base + MEETINGS + i * 8, BLOCK);
    expect_blocks(base, rank);
    expect_states(base);
    barriers_are_made();
  }
  for (u32 i = threadIdx.x; i < COUNTS; i += BLOCK) tally[i] = 0;
  cluster_arrive();
  cluster_wait();  // behind it all blocks have their barriers
  auto load_weights = [&] {
    if (group >= ALL / GROUP) return;
    bring_layers<0>(at);
    load_biases(a.parameters, a.bias, rank);
  };
  bool early = a.ahead >= AHEAD_LEAVES_PARAMETERS;
  if (early) load_weights();
  dependency_wait();
  if (!early) load_weights();
  for (u32 i = threadIdx.x; i < OWN; i += BLOCK) {
    // Rows without an environment show the first bar, and nobody looks at what they get.
    seen[i] = first + i < c.n_envs ? ((const float4*)b.shown)[first + i] : make_float4(0.f, 0.f, 0.f, __uint_as_float(c.first_bar));
    ((u32*)(shared + UNEXPECTED))[i] = 1;
  }
  __syncthreads();
  if (group < ALL / GROUP) pass_rows(work, at);
  else step_environments(work, base, own, tally);
  __syncthreads();
  dependents_may_start();
  for (u32 i = threadIdx.x; i < OWN * OBSERVED; i += BLOCK) {
    u32 own = i / OBSERVED, k = i % OBSERVED;
    const float* inputs = (const float*)&seen[own];
    float v = k < MARKET_FEATURES ? market.features[(u64)__float_as_uint(inputs[3]) * MARKET_FEATURES + k] : inputs[k - MARKET_FEATURES];
    if (first + own < c.n_envs) b.states[(u64)(first + own) * OBSERVED + k] = v;
  }
  for (u32 i = threadIdx.x; i < COUNTS; i += BLOCK)
    if (tally[i]) atomicAdd(&b.ledger->counts[i], (u64)tally[i]);
  cluster_arrive();  // a block's memory is there until all others have what it gave them
  cluster_wait();
}
