// What one lane does in a vector step for an environment, and a warp for the Q-values of a group: the parts that kernels of one step (collect.cu) and of
// many (rollout.cu, account.cu) have in common. Twin: foxhunt-ops/src/collect/cpu.rs.
// Needs common.cuh, philox.cuh, power.cuh, env_step.cuh, n_step.cuh, q_monitor.cuh, select_actions.cuh and the collector's structs.
#pragma once

#define KIND_REWARD 4u
#define KIND_STATE 5u

__device__ __forceinline__ float epsilon_at(const CollectParams& c, u64 count) {
  if (count >= c.epsilon_steps) return __double2float_rn(c.epsilon_end);
  double share = (double)count / (double)c.epsilon_steps;
  return __double2float_rn(c.epsilon_start + (c.epsilon_end - c.epsilon_start) * share);
}

__device__ __forceinline__ u32 non_finite(const float v[3]) { return !is_finite(v[0]) + !is_finite(v[1]) + !is_finite(v[2]); }

__device__ __forceinline__ float4 shown(const float v[3], u32 word) { return make_float4(v[0], v[1], v[2], __uint_as_float(word)); }

__device__ __forceinline__ void fetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

__device__ __forceinline__ NStepRing ring_of(const CollectParams& c, const CollectBuffers& b) {
  return {(float4*)b.pending, b.rewards, c.n, c.n_envs, c.gamma};
}

// ------------------------------------------------------------------------------------------------ an environment

// An environment, and what its next step needs of the rest of memory, asked for long before it is known what is chosen.
struct OneEnv {
  EnvState s;
  float4 seen;  // portfolio inputs of the state it acts in
  Bar now, next;
  float recent[RECENT];
  __device__ __forceinline__ void load(const CollectBuffers& b, u32 env) { s = b.envs[env], seen = ((const float4*)b.shown)[env]; }
  __device__ __forceinline__ void load_bars(const Market& market, const CollectParams& c, const NStepRing& ring, u32 env, uint2 place) {
    now = load_bar(market, s.bar);
    next = load_bar(market, min(s.bar + 1, c.last_bar));
    load_recent(ring, env, place.x, place.y, recent);
    const float* features = market.features + (u64)min(s.bar + 1, c.last_bar) * MARKET_FEATURES;
    fetch_line(features);
    fetch_line(features + 32);
  }
  __device__ __forceinline__ void store(const CollectBuffers& b, u32 env) const {
    b.envs[env] = s;
    ((float4*)b.shown)[env] = seen;
  }
};

// Where rows lead that leave in a step, oldest first: the bar of the first, whether nothing follows, the state that all of them end in, and that of the
// newest, {portfolio inputs, choice}.
struct Way {
  u32 first_bar;
  bool terminal;
  float4 reached, acted;
};

// What a step comes to; the defaults are those of a lane without an environment.
struct Acted {
  Way way;
  u32 action = 0, bad_states = 0, bad_rewards = 0;
  float reward = 0.f;
  double end_equity = 0.0;  // of an episode that ended
  bool fell_back = false, held = false, filled = false, good_reward = false, refused = false, ended = false, ruined = false;

  __device__ __forceinline__ double counted_reward() const { return good_reward ? (double)reward : 0.0; }
  __device__ __forceinline__ double log_return(const EnvParams& params) const { return ended ? ln_portable(end_equity / params.start_equity) : 0.0; }
  // All lanes of a warp, `live` where there is an environment: what is counted of each.
  __device__ __forceinline__ void count(u32* tally, bool live) const {
    u32 order = action % 9;
    if (live) atomicAdd(&tally[COUNT_ACTIONS + action], 1u);
    if (live && !held) atomicAdd(&tally[COUNT_ORDERS + order], 1u);
    if (filled) atomicAdd(&tally[COUNT_FILLS + order], 1u);
    u32 holds = __popc(__ballot_sync(ALL_LANES, held)), rewards = __popc(__ballot_sync(ALL_LANES, good_reward));
    u32 fallbacks = __popc(__ballot_sync(ALL_LANES, fell_back)), episodes = __popc(__ballot_sync(ALL_LANES, ended));
    u32 ruins = __popc(__ballot_sync(ALL_LANES, ruined));
    if (threadIdx.x % 32 != 0) return;
    atomicAdd(&tally[COUNT_HOLDS], holds);
    atomicAdd(&tally[COUNT_REWARDS], rewards);
    atomicAdd(&tally[COUNT_FALLBACKS], fallbacks);
    atomicAdd(&tally[COUNT_EPISODES], episodes);
    atomicAdd(&tally[COUNT_RUINED], ruins);
  }
};

// One step of environment `env` by its Q-values `q`: decision, one bar forward, a new episode where one is due. The environment moves on; its windows do behind
// that (`settle`), and nothing of the next step but what they hold depends on them.
__device__ __forceinline__ Acted act(const Market& market, const EnvParams& params, const CollectParams& c, u32 env, OneEnv& of, u32 pending, bool random,
                                     u32 word, const float* q) {
  Acted did;
  EnvState& s = of.s;
  const Bar &now = of.now, &next = of.next;
  u32 chosen;
#if HEAD == 0
  chosen = select_action(q, nullptr, N_EXPOSURES, random, word, &did.fell_back);
  did.action = chosen * 9 + now.route;
#elif HEAD == 1
  chosen = did.action = select_action(q, nullptr, N_FACTORED, random, word, &did.fell_back);
#else
  chosen = did.action = select_branching(q, nullptr, random, word, &did.fell_back);
#endif

  // One bar forward, and what the transition leads to.
  u32 from_bar = s.bar;
  Outcome outcome = env_step(market, params, s, now, next, did.action);
  bool moved = s.bar != from_bar;
  did.ended = outcome.terminated || outcome.truncated;
  did.ruined = outcome.terminated;
  did.held = outcome.hold;
  did.filled = outcome.filled;
  did.reward = outcome.reward;
  did.end_equity = s.equity > params.equity_floor ? s.equity : params.equity_floor;
  float inputs[3], seen[3] = {of.seen.x, of.seen.y, of.seen.z};
  portfolio_inputs(params, s, moved ? next.close : now.close, inputs);
  u32 bad_now = now.bad_features + non_finite(seen);
  u32 bad_next = (moved ? next.bad_features : now.bad_features) + non_finite(inputs);
  did.good_reward = is_finite(outcome.reward);
  did.refused = !did.good_reward || bad_now || bad_next;
  did.bad_states = bad_now;
  if (!did.good_reward) did.bad_rewards = 1;
  else if (did.refused && (did.ended || bad_now == 0)) did.bad_states += bad_next;
  // A refused step ends windows before it at the state acted in.
  did.way = {from_bar - pending, did.ruined && !did.refused, did.refused ? shown(seen, from_bar) : shown(inputs, s.bar), shown(seen, chosen)};

  // A new episode, and what the environment shows next.
  if (did.ended || did.refused) {
    s = env_reset(params, c.seed, env, s.episode + 1, c.first_bar, c.last_bar);
    portfolio_inputs(params, s, load_bar(market, s.bar).close, inputs);
  }
  of.seen = shown(inputs, s.bar);
  return did;
}

// The windows of an environment behind a step; its place among pending steps moves on, and `leaves` is told of each row as `n_step_push` says.
template <typename Leaves>
__device__ __forceinline__ Pushed settle(const NStepRing& ring, u32 env, const Acted& did, const float recent[RECENT], uint2& place, Leaves&& leaves) {
  Pushed pushed = n_step_push(ring, env, place.x, place.y, recent, did.refused, did.ended, did.way.acted, did.reward, leaves);
  place = make_uint2(pushed.head, pushed.len);
  return pushed;
}

// ------------------------------------------------------------------------------------------------ Q-values of a group

// Of the 32 rows of a warp, the same in all lanes.
struct QSums {
  double top, sum;
  u32 low, high, finite, not_finite, rows, bad_rows;
  // Those of the last step are kept as they are.
  __device__ __forceinline__ void store_last(Group* to) const {
    to->q_sum = sum;
    to->q_low = low;
    to->q_high = high;
    to->q_finite = finite;
    to->q_non_finite = not_finite;
  }
  // One lane.
  __device__ __forceinline__ void count(const CollectParams& c, u32* tally) const {
    atomicAdd(&tally[COUNT_Q_ROWS], rows);
    atomicAdd(&tally[COUNT_Q_NON_FINITE_ROWS], bad_rows);
    bool beyond = finite && (from_order_key(high) > c.threshold || from_order_key(low) < -c.threshold);
    if (not_finite || beyond) atomicAdd(&tally[COUNT_DIVERGED], 1u);
  }
};

// All lanes of a warp, each with the Q-values of an environment unless it has none.
__device__ __forceinline__ QSums q_sums_of(const float* q, bool live) {
  double top = 0.0;
  RowRange range = {0.0, ALL_LANES, 0u, 0u, 0u};
  bool counts = false;
  if (live) {
    range = row_range(q, OUTPUTS);
#if HEAD == 2
    double mean_top = (((double)largest(q, 5) + (double)largest(q + 5, 3)) + (double)largest(q + 8, 3)) / 3.0;
#else
    double mean_top = (double)largest(q, OUTPUTS);
#endif
    counts = fabs(mean_top) < F64_INFINITY;
    if (counts) top = mean_top;
  }
  QSums of;
  of.top = warp_tree_sum(top);
  of.sum = warp_tree_sum(range.sum);
  of.low = warp_min(range.low), of.high = warp_max(range.high);
  of.finite = warp_sum(range.finite), of.not_finite = warp_sum(range.non_finite);
  of.rows = __popc(__ballot_sync(ALL_LANES, counts)), of.bad_rows = __popc(__ballot_sync(ALL_LANES, live && !counts));
  return of;
}

// ------------------------------------------------------------------------------------------------ the end

// One thread, behind all else of `steps` vector steps: their faults, {state values, rewards} that were not finite of each, and where the collector is now.
__device__ __forceinline__ void end_steps(const CollectParams& c, Ledger* ledger, const u32* bad, u32 steps, u64* progress) {
  u64 step = ledger->vector_step;
  for (u32 i = 0; i < 2 * steps; i++) {
    if (!bad[i]) continue;
    u32 at = ledger->fault_count;
    if (at < MAX_FAULTS) {
      ledger->faults[2 * at] = step + i / 2;
      ledger->faults[2 * at + 1] = (u64)bad[i] << 32 | (i % 2 == 0 ? KIND_STATE : KIND_REWARD);
      ledger->fault_count = at + 1;
    } else {
      ledger->faults_lost++;
    }
  }
  u64 env_steps = (step + steps) * c.n_envs;
  ledger->env_steps += (u64)steps * c.n_envs;
  ledger->vector_step = step + steps;
  ledger->epsilon = epsilon_at(c, env_steps);
  *progress = env_steps;
}
