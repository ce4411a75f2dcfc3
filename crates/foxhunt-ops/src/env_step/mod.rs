//! One environment advancing one bar: target exposure in, order, fill, money, reward and ends out.
//!
//! **Time.** A state at bar t is seen at the close of t. Its action is filled in bar t + 1 by the rules of
//! [`foxhunt_market::fills`], the position is marked at the close of t + 1, and the state moves there.
//!
//! **Target.** `units = fraction * max_leverage * equity(t) / close(t)`. The *level* is the target the position
//! was last fully brought to. A target equal to the level is a hold: no order, no cost, whatever the order type
//! and urgency, also when the market has moved the exposure away from its fraction. A partial fill leaves no level
//! ([`NO_LEVEL`]), so that any target is an order again. A cancelled order leaves everything as it was.
//!
//! **Reward.** `reward_scale * ln(max(equity(t+1), floor) / equity(t))` with `floor` = 1 % of the start equity, so
//! that a loss beyond all equity has a finite reward. Equity is net of every cost.
//!
//! **Ends.** Equity at or below `ruin_fraction` of the start is *terminated*: nothing follows. Reaching the
//! episode's last bar is *truncated*: learning bootstraps. Both at once is terminated. The state after the last
//! step is complete and can be observed; the caller does so, then replaces it by [`reset`] (case B06). A reset
//! makes a whole new state, so no value survives it.
//!
//! All money is f64 in straight-line order without fused multiply-adds, because the CUDA twin must give the same
//! bits, and the reward's logarithm is [`ln_portable`](crate::power::ln_portable). Nothing here chooses actions or
//! stores transitions.

mod cpu;
pub mod cuda;

use std::ops::Range;

use foxhunt_core::Settings;
use foxhunt_cuda::shared_struct;
use foxhunt_market::{FeeRates, Fill, Market, MarketError};

pub use cpu::{observe, portfolio_inputs, reset, step};

/// Level of a position that was not brought to any target, after a partial fill.
pub const NO_LEVEL: u32 = 5;
/// Level of no position.
pub const FLAT_LEVEL: u32 = 2;
/// The reward's equity floor as a share of the start equity; no `ruin_fraction` is below it.
pub const EQUITY_FLOOR: f64 = 0.01;
/// Bars at which the third portfolio input is one half.
pub const HALF_BARS_IN_POSITION: f64 = 16.0;
/// Bound of the first two portfolio inputs.
pub const PORTFOLIO_BOUND: f64 = 10.0;

shared_struct! {
    /// Costs, sizes and ends, the same for every environment.
    #[derive(PartialEq)]
    pub struct EnvParams {
        /// Equity an episode starts with, account currency.
        pub start_equity: f64,
        /// Value of the maximum position over equity.
        pub max_leverage: f64,
        /// Equity at or below which an episode is terminated, account currency.
        pub ruin_equity: f64,
        /// Least equity a reward is computed from, account currency.
        pub equity_floor: f64,
        /// Reward a unit of log return.
        pub reward_scale: f64,
        /// Factor on the market's half spread; 1 but in cost studies.
        pub half_spread_scale: f64,
        /// Impact of a market order of normal urgency, share of the price.
        pub impact_rate: f64,
        /// Fee of a taking fill, share of traded value.
        pub taker_fee: f64,
        /// Fee of a making fill, share of traded value.
        pub maker_fee: f64,
        /// Bars an episode lasts before it is truncated.
        pub episode_bars: u32,
        /// 1 when IoC fills are limited by the bar's volume, else 0.
        pub limit_to_volume: u32,
    }
}

impl EnvParams {
    /// The parameters `settings` describes. The tick size is part of the [`Market`].
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let (env, execution) = (&settings.env, &settings.execution);
        Self {
            start_equity: env.start_equity,
            max_leverage: env.max_leverage,
            ruin_equity: env.ruin_fraction * env.start_equity,
            equity_floor: EQUITY_FLOOR * env.start_equity,
            reward_scale: env.reward_scale,
            half_spread_scale: 1.0,
            impact_rate: execution.impact_bps * 1e-4,
            taker_fee: execution.taker_fee_bps * 1e-4,
            maker_fee: execution.maker_fee_bps * 1e-4,
            // Settings allow up to 2^31 - 1.
            episode_bars: u32::try_from(env.episode_bars).unwrap_or(u32::MAX),
            limit_to_volume: u32::from(execution.limit_to_volume),
        }
    }

    /// The same with spread, impact and fees multiplied by `scale` (rebates too).
    #[must_use]
    pub fn with_cost_scale(self, scale: f64) -> Self {
        Self {
            half_spread_scale: self.half_spread_scale * scale,
            impact_rate: self.impact_rate * scale,
            taker_fee: self.taker_fee * scale,
            maker_fee: self.maker_fee * scale,
            ..self
        }
    }

    /// The two fee rates.
    #[must_use]
    pub fn fees(&self) -> FeeRates {
        FeeRates { taker: self.taker_fee, maker: self.maker_fee }
    }
}

shared_struct! {
    /// One environment: plain old data, copied to checkpoints and to the GPU as it is.
    #[derive(Default, PartialEq)]
    pub struct EnvState {
        /// Account currency.
        pub cash: f64,
        /// Units held, negative when short.
        pub position: f64,
        /// Average price the position was opened at; 0 without a position.
        pub entry_price: f64,
        /// Net equity marked at the close of `bar`, account currency.
        pub equity: f64,
        /// The bar the state is at.
        pub bar: u32,
        /// The last bar of the episode: arriving there is truncation.
        pub end_bar: u32,
        /// Bars the position has been held with its present sign; 0 without a position.
        pub bars_in_position: u32,
        /// Exposure index the position was last fully brought to, or [`NO_LEVEL`].
        pub level: u32,
        /// Number of this episode, from 0.
        pub episode: u32,
        /// The bar the episode started at.
        pub start_bar: u32,
    }
}

impl EnvState {
    /// A fresh episode from `start_bar` to `end_bar`: all cash, no position.
    #[must_use]
    pub fn begin(params: &EnvParams, start_bar: u32, end_bar: u32, episode: u32) -> Self {
        Self {
            cash: params.start_equity,
            equity: params.start_equity,
            bar: start_bar,
            end_bar,
            level: FLAT_LEVEL,
            episode,
            start_bar,
            ..Self::default()
        }
    }
}

/// A window of bars that environments may use, checked once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvWindow {
    start: u32,
    end: u32,
}

impl EnvWindow {
    /// Checks that `range` lies inside the usable bars of `market` and holds at least two.
    ///
    /// # Errors
    /// [`MarketError::InvalidArgument`].
    pub fn new(market: &Market, range: Range<usize>) -> Result<Self, MarketError> {
        let usable = market.first_bar..market.len();
        let ends = (u32::try_from(range.start), u32::try_from(range.end));
        match ends {
            (Ok(start), Ok(end))
                if range.start >= usable.start && range.end <= usable.end && range.len() >= 2 =>
            {
                Ok(Self { start, end })
            }
            _ => Err(MarketError::InvalidArgument {
                what: "window of bars",
                value: format!("{range:?}"),
                rule: "at least two bars, all with full look-backs, inside the market",
            }),
        }
    }

    /// First bar.
    #[must_use]
    pub fn first_bar(&self) -> u32 {
        self.start
    }

    /// Last bar: decisions end before it.
    #[must_use]
    pub fn last_bar(&self) -> u32 {
        self.end - 1
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Scaled log return of equity.
    pub reward: f32,
    /// Ruin: no value follows.
    pub terminated: bool,
    /// Episode or data ended: learning bootstraps.
    pub truncated: bool,
    /// The target was the level already, so no order was sent.
    pub hold: bool,
    /// The fill; `None` for a hold and for an order that was cancelled.
    pub fill: Option<Fill>,
}

#[cfg(test)]
mod tests;
