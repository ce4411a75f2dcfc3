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

#define KIND_REWARD 4u
#define KIND_STATE 5u

// ------------------------------------------------------------------------------------------------ device code

__device__ __forceinline__ float epsilon_at(const CollectParams& c, u64 count) {
  if (count >= c.epsilon_steps) return __double2float_rn(c.epsilon_end);
  double share = (double)count / (double)c.epsilon_steps;
  return __double2float_rn(c.epsilon_start + (c.epsilon_end - c.epsilon_start) * share);
}

__device__ __forceinline__ u32 non_finite(const float v[3]) { return !is_finite(v[0]) + !is_finite(v[1]) + !is_finite(v[2]); }

__device__ __forceinline__ float4 shown(const float v[3], u32 word) { return make_float4(v[0], v[1], v[2], __uint_as_float(word)); }

__device__ __forceinline__ void fetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

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
  EnvState s;
  float4 now_shown;
  uint2 place;
  if (acts && live) {
    s = b.envs[env];
    now_shown = ((const float4*)b.shown)[env];
    place = ((const uint2*)b.places)[env];
  }
#pragma unroll
  for (u32 j = 0; j < SHARE; j++) share[j] = j * 64 + in_pair < words ? q[(u64)first * OUTPUTS + j * 64 + in_pair] : 0.f;
  NStepRing ring = {(float4*)b.pending, b.rewards, (float2*)b.returns, c.n, c.n_envs, c.gamma};
  Bar now, next;
  float recent[RECENT];
  if (acts && live) {
    now = load_bar(market, s.bar);
    next = load_bar(market, min(s.bar + 1, c.last_bar));
    load_recent(ring, env, place.x, place.y, recent);
    const float* features = market.features + (u64)min(s.bar + 1, c.last_bar) * MARKET_FEATURES;
    fetch_line(features);
    fetch_line(features + 32);
  }
#pragma unroll
  for (u32 j = 0; j < SHARE; j++)
    if (j * 64 + in_pair < 32 * OUTPUTS) staged[pair][j * 64 + in_pair] = share[j];
  Group* sums = b.groups + group;
  __syncthreads();
  const float* row = staged[pair] + lane * OUTPUTS;

  if (!acts) {
    // Statistics of the Q-values.
    double was = own ? sums->max_q : 0.0, top = 0.0;
    RowRange range = {0.0, ALL_LANES, 0u, 0u, 0u};
    bool counts = false;
    if (live) {
      range = row_range(row, OUTPUTS);
#if HEAD == 2
      double mean_top = (((double)largest(row, 5) + (double)largest(row + 5, 3)) + (double)largest(row + 8, 3)) / 3.0;
#else
      double mean_top = (double)largest(row, OUTPUTS);
#endif
      counts = fabs(mean_top) < F64_INFINITY;
      if (counts) top = mean_top;
    }
    top = warp_tree_sum(top);
    double q_sum = warp_tree_sum(range.sum);
    u32 low = warp_min(range.low), high = warp_max(range.high);
    u32 finite = warp_sum(range.finite), not_finite = warp_sum(range.non_finite);
    u32 rows_counted = __popc(__ballot_sync(ALL_LANES, counts)), rows_not = __popc(__ballot_sync(ALL_LANES, live && !counts));
    if (own) {
      sums->max_q = was + top;
      sums->q_sum = q_sum;
      sums->q_low = low;
      sums->q_high = high;
      sums->q_finite = finite;
      sums->q_non_finite = not_finite;
      atomicAdd(&tally[COUNT_Q_ROWS], rows_counted);
      atomicAdd(&tally[COUNT_Q_NON_FINITE_ROWS], rows_not);
      bool beyond = finite && (from_order_key(high) > c.threshold || from_order_key(low) < -c.threshold);
      if (not_finite || beyond) atomicAdd(&tally[COUNT_DIVERGED], 1u);
    }
  } else {
    double was_reward = own ? sums->reward : 0.0, was_return = own ? sums->episode_log_return : 0.0;
    double reward_part = 0.0, return_part = 0.0;
    u32 rows_out = 0, bad_states = 0, bad_rewards = 0;
    bool fell_back = false, held = false, good_reward = false, ended = false, ruined = false;
    if (live) {
      // The decision.
      u32 word = 0, chosen, action;
      bool random = explore_coin(c.seed, env, step, epsilon, &word);
#if HEAD == 0
      chosen = select_action(row, nullptr, N_EXPOSURES, random, word, &fell_back);
      action = chosen * 9 + now.route;
#elif HEAD == 1
      chosen = action = select_action(row, nullptr, N_FACTORED, random, word, &fell_back);
#else
      chosen = action = select_branching(row, nullptr, random, word, &fell_back);
#endif

      // One bar forward, and what the transition leads to.
      u32 from_bar = s.bar;
      Outcome outcome = env_step(market, params, s, now, next, action);
      bool moved = s.bar != from_bar;
      ended = outcome.terminated || outcome.truncated;
      ruined = outcome.terminated;
      held = outcome.hold;
      float inputs[3], seen[3] = {now_shown.x, now_shown.y, now_shown.z};
      portfolio_inputs(params, s, moved ? next.close : now.close, inputs);
      u32 bad_now = now.bad_features + non_finite(seen);
      u32 bad_next = (moved ? next.bad_features : now.bad_features) + non_finite(inputs);
      good_reward = is_finite(outcome.reward);
      bool refused = !good_reward || bad_now || bad_next;
      bad_states = bad_now;
      if (!good_reward) bad_rewards = 1;
      else if (refused && (ended || bad_now == 0)) bad_states += bad_next;

      // Windows. A refused step ends those before it at the state acted in.
      Pushed pushed =
          n_step_push(ring, env, place.x, place.y, recent, refused, ended, shown(seen, chosen), outcome.reward);
      rows_out = pushed.rows;
      ((uint2*)b.places)[env] = make_uint2(pushed.head, pushed.len);
      ((uint4*)b.moves)[env] = make_uint4(rows_out, pushed.first_slot, from_bar - place.y, ruined && !refused);
      ((float4*)b.reached)[env] = refused ? shown(seen, from_bar) : shown(inputs, s.bar);

      u32 order = action % 9;
      atomicAdd(&tally[COUNT_ACTIONS + action], 1u);
      if (!held) atomicAdd(&tally[COUNT_ORDERS + order], 1u);
      if (outcome.filled) atomicAdd(&tally[COUNT_FILLS + order], 1u);
      if (good_reward) reward_part = (double)outcome.reward;
      if (ended) {
        double equity = s.equity > params.equity_floor ? s.equity : params.equity_floor;
        return_part = ln_portable(equity / params.start_equity);
      }

      // A new episode, and what the environment shows next.
      if (ended || refused) {
        s = env_reset(params, c.seed, env, s.episode + 1, c.first_bar, c.last_bar);
        portfolio_inputs(params, s, load_bar(market, s.bar).close, inputs);
      }
      b.envs[env] = s;
      ((float4*)b.shown)[env] = shown(inputs, s.bar);
    }
    reward_part = warp_tree_sum(reward_part);
    return_part = warp_tree_sum(return_part);
    u32 leaving = warp_sum(rows_out);
    bad_states = warp_sum(bad_states);
    bad_rewards = warp_sum(bad_rewards);
    u32 holds = __popc(__ballot_sync(ALL_LANES, held)), rewards = __popc(__ballot_sync(ALL_LANES, good_reward));
    u32 fallbacks = __popc(__ballot_sync(ALL_LANES, fell_back)), episodes = __popc(__ballot_sync(ALL_LANES, ended));
    u32 ruins = __popc(__ballot_sync(ALL_LANES, ruined));
    if (own) {
      sums->reward = was_reward + reward_part;
      sums->episode_log_return = was_return + return_part;
      b.group_rows[group] = leaving;
      atomicAdd(&tally[COUNT_HOLDS], holds);
      atomicAdd(&tally[COUNT_REWARDS], rewards);
      atomicAdd(&tally[COUNT_FALLBACKS], fallbacks);
      atomicAdd(&tally[COUNT_EPISODES], episodes);
      atomicAdd(&tally[COUNT_RUINED], ruins);
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
  u64 step = ledger->vector_step;
  u32 bad[2] = {ledger->bad_states, ledger->bad_rewards};
  for (int kind = 0; kind < 2; kind++) {
    if (!bad[kind]) continue;
    u32 at = ledger->fault_count;
    if (at < MAX_FAULTS) {
      ledger->faults[2 * at] = step;
      ledger->faults[2 * at + 1] = (u64)bad[kind] << 32 | (kind == 0 ? KIND_STATE : KIND_REWARD);
      ledger->fault_count = at + 1;
    } else {
      ledger->faults_lost++;
    }
  }
  ledger->bad_states = ledger->bad_rewards = 0;
  ledger->env_steps += c.n_envs;
  ledger->vector_step = step + 1;
  u64 env_steps = (step + 1) * c.n_envs;
  ledger->epsilon = epsilon_at(c, env_steps);
  *progress = env_steps;
}
