// One environment on the device. Twins: foxhunt-ops/src/env_step/cpu.rs and foxhunt-market (fills.rs, portfolio.rs).
//
// Money is f64, the same operations in the same order; programs are compiled with --fmad=false, so `a * b + c` is two
// roundings here as it is there, and f64 division is IEEE. Comparisons with NaN are false on both sides.
// Needs common.cuh, philox.cuh, power.cuh and the shared structs EnvParams, EnvState, Bar, Market.
#pragma once

#define NO_LEVEL 5u
#define FLAT_LEVEL 2u
#define SAME_PRICE 1e-6
#define HALF_BARS_IN_POSITION 16.0
#define PORTFOLIO_BOUND 10.0
#define PURPOSE_ENV_RESET 3u
#define F64_INFINITY __longlong_as_double(0x7ff0000000000000ll)

constexpr u32 MARKET_FEATURES = 48, PORTFOLIO_INPUTS = 3, OBSERVED = MARKET_FEATURES + PORTFOLIO_INPUTS;

// Half of a line at a time: nothing ever changes a bar.
__device__ __forceinline__ Bar load_bar(const Market& market, u32 i) {
  Bar bar;
  const double2* from = (const double2*)(market.bars + i);
  double2* to = (double2*)&bar;
#pragma unroll
  for (int k = 0; k < 4; k++) to[k] = __ldg(from + k);
  return bar;
}

// a / b. Nothing divided takes several times as long as other divisions, and is common.
__device__ __forceinline__ double quotient(double a, double b) {
  double size = fabs(b);
  return a == 0.0 && size > 0.0 && size < F64_INFINITY ? a * b : a / b;
}

struct Fill {
  double quantity, price, fee;
  bool done, complete;
};

struct Outcome {
  float reward;
  bool terminated, truncated, hold, filled;
};

// What an order of `quantity` becomes in bar `next`, decided at the close of bar `now`.
__device__ __forceinline__ Fill fill_order(double quantity, u32 order_type, u32 urgency, const Bar& now, const Bar& next,
                                           const EnvParams& params, double tick_size) {
  double side = quantity > 0.0 ? 1.0 : -1.0, wanted = fabs(quantity), same = tick_size * SAME_PRICE;
  double half_spread = now.half_spread * params.half_spread_scale;
  double price, filled = wanted;
  bool maker = false;
  if (order_type == 0) {  // Market: impact 0.5, 1, 2
    double impact = now.close * params.impact_rate * (urgency == 0 ? 0.5 : urgency == 1 ? 1.0 : 2.0);
    price = next.open + side * (half_spread + impact);
  } else if (order_type == 1) {  // LimitMaker: 2, 1, 0.5 half spreads from the close
    double limit = now.close - side * (half_spread * (urgency == 0 ? 2.0 : urgency == 1 ? 1.0 : 0.5));
    double extreme = side > 0.0 ? next.low : next.high;
    bool crossed_at_open = side * (limit - next.open) > same;
    bool through = side * (limit - extreme) >= tick_size - same;
    price = crossed_at_open ? next.open : limit;
    maker = !crossed_at_open;
    if (maker && !through) filled = 0.0;
  } else {  // IoC: within 1, 2, 4 half spreads, up to 10, 25, 50 % of the volume
    price = next.open + side * half_spread;
    double bound = now.close + side * (half_spread * (urgency == 0 ? 1.0 : urgency == 1 ? 2.0 : 4.0));
    bool within = side * (price - bound) <= same;
    double volume = params.limit_to_volume ? next.volume : F64_INFINITY;
    double available = volume * (urgency == 0 ? 0.10 : urgency == 1 ? 0.25 : 0.50);
    double share = available < wanted ? available : wanted;
    filled = within ? share : 0.0;
  }
  Fill fill;
  fill.done = wanted > 0.0 && wanted < F64_INFINITY && filled > 0.0 && filled < F64_INFINITY && price > 0.0 && price < F64_INFINITY;
  fill.quantity = side * filled;
  fill.price = price;
  fill.fee = filled * price * (maker ? params.maker_fee : params.taker_fee);
  fill.complete = filled == wanted;
  return fill;
}

// Books a trade: the part of Portfolio::trade that an environment keeps.
__device__ __forceinline__ void trade(EnvState& s, const Fill& fill) {
  double was = s.position, quantity = fill.quantity, is = was + quantity;
  if (was == 0.0 || (was > 0.0) == (quantity > 0.0)) {
    double units = fabs(was) + fabs(quantity);
    double value = s.entry_price * fabs(was) + fill.price * fabs(quantity);
    s.entry_price = units > 0.0 ? value / units : 0.0;
  } else if (is == 0.0) {
    s.entry_price = 0.0;
  } else if ((is > 0.0) != (was > 0.0)) {
    s.entry_price = fill.price;
  }
  s.position = is;
  s.cash = s.cash - quantity * fill.price - fill.fee;
}

// Takes a factored action at the state's bar `now` and moves the state to the bar after it, `next`. A state that missed
// its reset stays where it is, and `next` is not looked at.
__device__ __forceinline__ Outcome env_step(const Market& market, const EnvParams& params, EnvState& s, const Bar& now, const Bar& next,
                                            u32 action) {
  bool ruined = s.equity <= params.ruin_equity;
  if (ruined || s.bar >= s.end_bar) return {0.f, ruined, !ruined, true, false};
  u32 exposure = action / 9, order = action - exposure * 9, order_type = order / 3, urgency = order - order_type * 3;
  double before = s.equity, next_close = next.close;
  double fraction = -1.0 + 0.5 * (double)exposure;
  double target = quotient(fraction * params.max_leverage * before, now.close);
  double quantity = target - s.position;
  bool hold = exposure == s.level || quantity == 0.0, filled = false;
  if (hold) {
    s.level = exposure;
  } else {
    Fill fill = fill_order(quantity, order_type, urgency, now, next, params, market.tick_size);
    filled = fill.done;
    if (filled) {
      double was = s.position;
      trade(s, fill);
      if ((s.position > 0.0) != (was > 0.0) || (s.position < 0.0) != (was < 0.0)) s.bars_in_position = 0;
      s.level = fill.complete ? exposure : NO_LEVEL;
    }
  }
  s.bar += 1;
  s.equity = s.cash + s.position * next_close;
  s.bars_in_position = s.position == 0.0 ? 0 : s.bars_in_position + 1;
  double after = s.equity > params.equity_floor ? s.equity : params.equity_floor;
  double reward = params.reward_scale * ln_portable(after / before);
  bool terminated = s.equity <= params.ruin_equity;
  return {__double2float_rn(reward), terminated, !terminated && s.bar == s.end_bar, hold, filled};
}

__device__ __forceinline__ double bounded(double x) {
  return x < -PORTFOLIO_BOUND ? -PORTFOLIO_BOUND : x > PORTFOLIO_BOUND ? PORTFOLIO_BOUND : x;
}

// The last three values of an observation.
__device__ __forceinline__ void portfolio_inputs(const EnvParams& params, const EnvState& s, double close, float out[3]) {
  double equity = s.equity > params.equity_floor ? s.equity : params.equity_floor;
  double bars = (double)s.bars_in_position;
  out[0] = __double2float_rn(bounded(quotient(s.position * close, equity * params.max_leverage)));
  out[1] = __double2float_rn(bounded(quotient(100.0 * (s.position * (close - s.entry_price)), equity)));
  out[2] = __double2float_rn(quotient(bars, bars + HALF_BARS_IN_POSITION));
}

// The state of environment `env` at the start of episode number `episode`, in the bars first .. last.
__device__ __forceinline__ EnvState env_reset(const EnvParams& params, u64 seed, u32 env, u32 episode, u32 first, u32 last) {
  u32 steps = min(params.episode_bars, last - first), starts = last - first - steps + 1;
  u32 word = (u32)(philox_u64(seed, PURPOSE_ENV_RESET, env, episode) >> 32);
  EnvState s;
  s.cash = s.equity = params.start_equity;
  s.position = s.entry_price = 0.0;
  s.bar = s.start_bar = first + __umulhi(word, starts);
  s.end_bar = s.bar + steps;
  s.bars_in_position = 0;
  s.level = FLAT_LEVEL;
  s.episode = episode;
  return s;
}
