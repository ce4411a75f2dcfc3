// One vector step of all environments. Twin: foxhunt-ops/src/collect/cpu.rs.
//
// collect_act    in: Q-values f32 [n_envs, OUTPUTS], environments, what each shows, pending steps; out: the same one bar
//                later, returns and number of the rows that leave, statistics. Two warps a group of 32 environments: one
//                acts, a lane an environment, while the other takes the statistics of the Q-values.
//   Launch: 64 or 256 threads a block, any n_envs. Bytes an environment: Q-values, 112 of state twice, two bars (128).
// collect_move   in: what collect_act left; out: rows in order of environment, their number, the states to act in next;
//                then the step is over: vector step, epsilon, faults.
//   Launch: `envs_a_block` environments (a divisor of 32) and 256 threads a block. Bytes an environment: three states
//   written (612), two rows of features read (384); with COMPACT, rows of 32 bytes, a state (204) and a compact row (32)
//   written, one row of features read (192).
//   Both are chains of trips to memory: what is needed later is asked for early, and whatever the next trip will read
//   from far away is fetched into L2 beforehand.
//
// HEAD is 0 exposure, 1 factored, 2 branching; OUTPUTS its Q-values. Determinism: a row's place is a sum of integers;
// counts are integers; each f64 sum belongs to one group and is a tree over its 32 lanes, added by one lane.
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

// ------------------------------------------------------------------------------------------------ device code

// This lane's two words of the state that shows the portfolio inputs p at `bar`: columns `lane` and 32 + `lane`, of which
// there are 19.
struct Words {
  float low, high;
};
__device__ __forceinline__ Words state_words(const Market& market, u32 bar, const float* p) {
  u32 lane = threadIdx.x & 31;
  const float* features = market.features + (u64)bar * MARKET_FEATURES;
  Words w = {__ldg(features + lane), 0.f};
  if (lane < OBSERVED - 32) w.high = __ldg(lane < MARKET_FEATURES - 32 ? features + 32 + lane : p + lane - (MARKET_FEATURES - 32));
  return w;
}
__device__ __forceinline__ void store_words(float* state, Words w) {
  u32 lane = threadIdx.x & 31;
  state[lane] = w.low;
  if (lane < OBSERVED - 32) state[32 + lane] = w.high;
}

// ------------------------------------------------------------------------------------------------ kernels

extern "C" __global__ void __launch_bounds__(256)
    collect_act(Market market, EnvParams params, CollectParams c, CollectBuffers b, const float* q) {
  constexpr u32 SHARE = (OUTPUTS + 1) / 2;  // words of a group's Q-values that a lane of its two warps carries
  __shared__ float staged[4][32 * OUTPUTS];  // OUTPUTS is odd, so lanes reading their rows do not collide
  __shared__ u32 tally[COUNTS];
  u32 lane = threadIdx.x & 31, pair = threadIdx.x >> 6, in_pair = threadIdx.x & 63;
  u32 group = blockIdx.x * (blockDim.x >> 6) + pair, first = group * 32, env = first + lane;
  bool acts = in_pair < 32, live = env < c.n_envs, own = lane == 0 && live;
  for (u32 i = threadIdx.x; i < COUNTS; i += blockDim.x) tally[i] = 0;
  dependency_wait();
  dependents_may_start();
  Ledger* ledger = b.ledger;
  u64 step = ledger->vector_step;
  float epsilon = ledger->epsilon, share[SHARE];
  u32 words = (first < c.n_envs ? min(32u, c.n_envs - first) : 0) * OUTPUTS;
  OneEnv of;
  uint2 place;
  if (acts && live) {
    of.load(b, env);
    place = ((const uint2*)b.places)[env];
  }
#pragma unroll
  for (u32 j = 0; j < SHARE; j++) share[j] = j * 64 + in_pair < words ? q[(u64)first * OUTPUTS + j * 64 + in_pair] : 0.f;
  NStepRing ring = ring_of(c, b);
  if (acts && live) of.load_bars(market, c, ring, env, place);
#pragma unroll
  for (u32 j = 0; j < SHARE; j++)
    if (j * 64 + in_pair < 32 * OUTPUTS) staged[pair][j * 64 + in_pair] = share[j];
  Group* sums = b.groups + group;
  __syncthreads();
  const float* row = staged[pair] + lane * OUTPUTS;

  if (!acts) {
    // Statistics of the Q-values.
    double was = own ? sums->max_q : 0.0;
    QSums q_sums = q_sums_of(row, live);
    if (own) {
      sums->max_q = was + q_sums.top;
      q_sums.store_last(sums);
      q_sums.count(c, tally);
    }
  } else {
    double was_reward = own ? sums->reward : 0.0, was_return = own ? sums->episode_log_return : 0.0;
    Acted did;
    u32 rows_out = 0;
    if (live) {
      u32 word = 0;
      bool random = explore_coin(c.seed, env, step, epsilon, &word);
      did = act(market, params, c, env, of, place.y, random, word, row);
      Pushed pushed = settle(ring, env, did, of.recent, place, [&](u32 k, float sum, float discount) {
        ((float2*)b.returns)[(u64)k * c.n_envs + env] = make_float2(sum, discount);
      });
      rows_out = pushed.rows;
      ((uint2*)b.places)[env] = place;
      ((uint4*)b.moves)[env] = make_uint4(pushed.rows, pushed.first_slot, did.way.first_bar, did.way.terminal);
      ((float4*)b.reached)[env] = did.way.reached;
      of.store(b, env);
    }
    did.count(tally, live);
    double reward_part = warp_tree_sum(did.counted_reward()), return_part = warp_tree_sum(did.log_return(params));
    u32 leaving = warp_sum(rows_out), bad_states = warp_sum(did.bad_states), bad_rewards = warp_sum(did.bad_rewards);
    if (own) {
      sums->reward = was_reward + reward_part;
      sums->episode_log_return = was_return + return_part;
      b.group_rows[group] = leaving;
      if (bad_states) atomicAdd(&ledger->bad_states, bad_states);
      if (bad_rewards) atomicAdd(&ledger->bad_rewards, bad_rewards);
    }
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < COUNTS; i += blockDim.x)
    if (tally[i]) atomicAdd(&ledger->counts[i], (u64)tally[i]);
}

extern "C" __global__ void __launch_bounds__(256)
    collect_move(Market market, CollectParams c, CollectBuffers b, Rows rows, u32* row_count, u32 envs_a_block, u64* progress) {
  constexpr u32 TILE = COMPACT ? 256 : 64;
  __shared__ u32 parts[8], starts[33], env_of[TILE], reached_bar[32], next_bar[32];
  __shared__ uint4 moves[32];
  u32 tid = threadIdx.x, lane = tid & 31, first = blockIdx.x * envs_a_block, count = min(envs_a_block, c.n_envs - first);
  u32 group = first / 32, own_rows = 0;
  dependency_wait();
  dependents_may_start();

  // Rows of the environments before this block's, and of its own.
  u32 ahead = 0;
  for (u32 i = tid; i < group; i += 256) ahead += b.group_rows[i];
  if (tid < first - group * 32) ahead += ((const uint4*)b.moves)[group * 32 + tid].x;
  ahead = warp_sum(ahead);
  if (lane == 0) parts[tid >> 5] = ahead;
  if (tid < 32) {
    uint4 move = make_uint4(0, 0, 0, 0);
    if (tid < count) {
      u32 bar = __float_as_uint(b.shown[4 * (first + tid) + 3]);
      move = ((const uint4*)b.moves)[first + tid];
      reached_bar[tid] = __float_as_uint(b.reached[4 * (first + tid) + 3]);
      next_bar[tid] = bar;
      // What the next step reads of the market.
      fetch_line(market.bars + bar);
      fetch_line(market.bars + min(bar + 1, c.last_bar));
    }
    moves[tid] = move;
    own_rows = move.x;
    u32 sum = own_rows;
    for (int k = 1; k < 32; k <<= 1) {
      u32 left = __shfl_up_sync(ALL_LANES, sum, k);
      if (lane >= k) sum += left;
    }
    starts[tid + 1] = sum;
    if (tid == 0) starts[0] = 0;
    for (u32 r = sum - own_rows; r < min(sum, TILE); r++) env_of[r] = tid;
  }
  __syncthreads();
  u32 before = 0, total = starts[count];
#pragma unroll
  for (int k = 0; k < 8; k++) before += parts[k];

  // A warp a state, four at a time so that their loads are in flight together. The states to act in next:
  u32 warp = tid >> 5;
  Words to_act[4];
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    u32 e = warp + 8 * j;
    if (e < count) to_act[j] = state_words(market, next_bar[e], b.shown + 4 * (u64)(first + e));
  }
  // and the rows. The k-th of environment e is the pending step in slot `head + k`, k bars after the first.
  for (u32 base = 0; base < total; base += TILE) {
    u32 tile = min(TILE, total - base);
    if (base) {
      __syncthreads();
      if (tid < 32)
        for (u32 r = max(starts[tid], base); r < min(starts[tid] + own_rows, base + TILE); r++) env_of[r - base] = tid;
      __syncthreads();
    }
#if COMPACT
    if (tid < tile) {  // a thread a row
      u32 e = env_of[tid], k = base + tid - starts[e];
      u64 pending = (u64)slot_after(moves[e].y, k, c.n) * c.n_envs + first + e;
      float4 from = ((const float4*)b.pending)[pending], to = ((const float4*)b.reached)[first + e];
      float reward = ((const float2*)b.returns)[(u64)k * c.n_envs + first + e].x;
      u32* row = (u32*)rows.states + 8 * (u64)(before + base + tid);
      store_compact(row, moves[e].z + k, reached_bar[e], from, to, __float_as_uint(from.w), moves[e].w, reward);
    }
#else
    for (u32 chunk = warp; chunk < tile; chunk += 32) {
      Words from[4], to[4];
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        u32 r = chunk + 8 * j;
        if (r >= tile) break;
        u32 e = env_of[r], k = base + r - starts[e];
        u64 pending = (u64)slot_after(moves[e].y, k, c.n) * c.n_envs + first + e;
        from[j] = state_words(market, moves[e].z + k, b.pending + 4 * pending);
        to[j] = state_words(market, reached_bar[e], b.reached + 4 * (u64)(first + e));
      }
      if (chunk + 8 * lane < tile && lane < 4) {
        u32 r = chunk + 8 * lane, e = env_of[r], k = base + r - starts[e], row = before + base + r;
        u64 pending = (u64)slot_after(moves[e].y, k, c.n) * c.n_envs + first + e;
        float2 value = ((const float2*)b.returns)[(u64)k * c.n_envs + first + e];
        rows.actions[row] = __float_as_uint(b.pending[4 * pending + 3]);
        rows.rewards[row] = value.x;
        rows.terminated[row] = moves[e].w ? 1.f : 0.f;
        rows.discounts[row] = value.y;
      }
#pragma unroll
      for (u32 j = 0; j < 4; j++) {
        u32 r = chunk + 8 * j, row = before + base + r;
        if (r >= tile) break;
        store_words(rows.states + (u64)row * OBSERVED, from[j]);
        store_words(rows.next_states + (u64)row * OBSERVED, to[j]);
      }
    }
#endif
  }
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    u32 e = warp + 8 * j;
    if (e < count) store_words(b.states + (u64)(first + e) * OBSERVED, to_act[j]);
  }

  if (tid != 0) return;
  if (blockIdx.x == gridDim.x - 1) *row_count = before + total;
  if (blockIdx.x != 0) return;
  Ledger* ledger = b.ledger;
  u32 bad[2] = {ledger->bad_states, ledger->bad_rewards};
  ledger->bad_states = ledger->bad_rewards = 0;
  end_steps(c, ledger, bad, 1, progress);
}
