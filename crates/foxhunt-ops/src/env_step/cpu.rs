//! The CPU twin: the reference arithmetic of one environment.

use foxhunt_core::philox::below;
use foxhunt_core::{FactoredAction, Philox, Purpose};
use foxhunt_market::{Market, N_MARKET_FEATURES, Order, Portfolio, STATE_DIM, fill};

use crate::power::ln_portable;

use super::{EnvParams, EnvState, EnvWindow, HALF_BARS_IN_POSITION, NO_LEVEL, PORTFOLIO_BOUND, StepOutcome};

/// The state of environment `env_idx` at the start of its episode number `episode`.
///
/// An episode is `episode_bars` steps, or the whole window if that is shorter. Its first bar is uniform over all
/// that leave room for it: word 0 of the Philox block (EnvReset, stream `env_idx`, step `episode`), scaled by
/// multiply-shift. The episode after it is `state.episode + 1`.
#[must_use]
pub fn reset(params: &EnvParams, philox: &Philox, env_idx: u32, episode: u32, window: EnvWindow) -> EnvState {
    let (first, last) = (window.first_bar(), window.last_bar());
    let steps = params.episode_bars.min(last - first);
    let n_starts = last - first - steps + 1;
    let word = philox.block(Purpose::EnvReset, env_idx, u64::from(episode), 0)[0];
    let start = first + below(word, n_starts);
    EnvState::begin(params, start, start + steps, episode)
}

/// Writes the state an agent sees, f32 `[51]`, all finite: the 48 normalised market features of the bar, then
///
/// - exposure: `position * close / (equity * max_leverage)`, clipped to +-10;
/// - unrealised return: `100 * position * (close - entry_price) / equity`, per cent of equity, clipped to +-10;
/// - bars in position n: `n / (n + 16)`, in [0, 1).
///
/// Equity counts as at least the floor here, so that the state after ruin can be seen too. All in f64, rounded to
/// f32 at the end.
///
/// # Panics
/// When `out` is not 51 long.
pub fn observe(market: &Market, params: &EnvParams, state: &EnvState, out: &mut [f32]) {
    assert_eq!(out.len(), STATE_DIM, "a state is {STATE_DIM} values");
    let bar = state.bar as usize;
    out[..N_MARKET_FEATURES].copy_from_slice(market.feature_row(bar));
    out[N_MARKET_FEATURES..].copy_from_slice(&portfolio_inputs(params, state, market.bars.close[bar]));
}

/// The last three values of [`observe`], with the position marked at `close`.
#[must_use]
pub fn portfolio_inputs(
    params: &EnvParams,
    state: &EnvState,
    close: f64,
) -> [f32; STATE_DIM - N_MARKET_FEATURES] {
    let equity = if state.equity > params.equity_floor { state.equity } else { params.equity_floor };
    let exposure = state.position * close / (equity * params.max_leverage);
    let unrealised = 100.0 * (state.position * (close - state.entry_price)) / equity;
    let bars = f64::from(state.bars_in_position);
    [bounded(exposure) as f32, bounded(unrealised) as f32, (bars / (bars + HALF_BARS_IN_POSITION)) as f32]
}

fn bounded(value: f64) -> f64 {
    value.clamp(-PORTFOLIO_BOUND, PORTFOLIO_BOUND)
}

/// Takes `action` at the state's bar and moves the state to the next bar.
///
/// A state at its last bar, or one already ruined, stays as it is: the caller has missed a reset, and gets a
/// reward of 0 and the end again.
pub fn step(
    market: &Market,
    params: &EnvParams,
    state: &mut EnvState,
    action: FactoredAction,
) -> StepOutcome {
    let ruined = state.equity <= params.ruin_equity;
    if ruined || state.bar >= state.end_bar {
        return StepOutcome { reward: 0.0, terminated: ruined, truncated: !ruined, hold: true, fill: None };
    }
    let bar = state.bar as usize;
    let target_level = action.exposure.index();
    let before = state.equity;

    let target = action.exposure.fraction() * params.max_leverage * before / market.bars.close[bar];
    let quantity = target - state.position;
    // After a partial fill the position can by chance be what the target asks for: then it has its level.
    let hold = target_level == state.level || quantity == 0.0;
    let mut fill_done = None;
    if hold {
        state.level = target_level;
    } else {
        let order = Order { quantity, order_type: action.order_type, urgency: action.urgency };
        let limited = params.limit_to_volume != 0;
        let context = market.bar_context(bar, params.half_spread_scale, params.impact_rate, limited);
        fill_done = fill(&order, &context, &params.fees());
    }

    if let Some(done) = fill_done {
        let mut account = Portfolio {
            cash: state.cash,
            position: state.position,
            entry_price: state.entry_price,
            ..Portfolio::default()
        };
        account.trade(done.quantity, done.price, done.fee);
        if (account.position > 0.0) != (state.position > 0.0)
            || (account.position < 0.0) != (state.position < 0.0)
        {
            state.bars_in_position = 0;
        }
        state.cash = account.cash;
        state.position = account.position;
        state.entry_price = account.entry_price;
        state.level = if done.complete { target_level } else { NO_LEVEL };
    }

    state.bar += 1;
    state.equity = state.cash + state.position * market.bars.close[bar + 1];
    state.bars_in_position = if state.position == 0.0 { 0 } else { state.bars_in_position + 1 };

    let after = if state.equity > params.equity_floor { state.equity } else { params.equity_floor };
    let reward = params.reward_scale * ln_portable(after / before);
    let terminated = state.equity <= params.ruin_equity;
    StepOutcome {
        reward: reward as f32,
        terminated,
        truncated: !terminated && state.bar == state.end_bar,
        hold,
        fill: fill_done,
    }
}
