//! Walks a policy over a window of bars with the environment's own fills and money.
//!
//! There is no episode limit and no reset: one account from the first bar to the last, or to ruin. An open position
//! is closed at the end with costs, as a market order of normal urgency that meets the last close instead of the
//! next open. That is a valuation, so it is done even where the last bar was made to fill a gap. Choosing actions is
//! the policy's business, judging them that of [`super::Metrics`].

use std::ops::Range;

use foxhunt_core::{Exposure, FactoredAction, OrderType, Urgency};
use foxhunt_market::{Fill, Market, Order, Portfolio, STATE_DIM, fill};
use foxhunt_ops::env_step::{EnvParams, EnvState, EnvWindow, observe, step};

use super::{Backtest, Costs, Decision, FillRecord, OrderCounts};
use crate::MLError;
use crate::trainer::StopSignal;

/// A policy: the state, f32 `[STATE_DIM]`, and the bar it is seen at, to a decision. It sees nothing later than
/// the close of that bar unless it looks by itself.
pub type PolicyFn<'a> = dyn FnMut(&[f32], usize) -> Result<Decision, MLError> + 'a;

/// The order that closes what is open at the end.
const CLOSING: FactoredAction =
    FactoredAction { exposure: Exposure::Flat, order_type: OrderType::Market, urgency: Urgency::Normal };

/// Runs `policy` over `window` of `market`. The episode length of `params` is not used.
///
/// # Errors
/// [`MLError::Market`] for a window outside the market's usable bars or shorter than two, [`MLError::Interrupted`]
/// when `stop` asks for it, and any error of the policy.
pub fn backtest(
    market: &Market,
    window: Range<usize>,
    params: &EnvParams,
    stop: &dyn StopSignal,
    policy: &mut PolicyFn<'_>,
) -> Result<Backtest, MLError> {
    let mut seen = vec![0.0_f32; STATE_DIM];
    run(market, window, params, stop, &mut |state, bar| {
        observe(market, params, state, &mut seen);
        policy(&seen, bar)
    })
}

/// As [`backtest`], for policies that do not need the observed state.
pub(super) fn run(
    market: &Market,
    window: Range<usize>,
    params: &EnvParams,
    stop: &dyn StopSignal,
    decide: &mut dyn FnMut(&EnvState, usize) -> Result<Decision, MLError>,
) -> Result<Backtest, MLError> {
    let bounds = EnvWindow::new(market, window.clone())?;
    let mut state = EnvState::begin(params, bounds.first_bar(), bounds.last_bar(), 0);
    let n_bars = window.len();
    let mut record = Backtest {
        window,
        equity: Vec::with_capacity(n_bars),
        position: Vec::with_capacity(n_bars),
        actions: Vec::with_capacity(n_bars - 1),
        holds: 0,
        fallbacks: 0,
        orders: OrderCounts::default(),
        fills: Vec::new(),
        costs: Costs::default(),
        terminated: false,
    };
    record.equity.push(state.equity);
    record.position.push(state.position);
    while state.bar < state.end_bar && !record.terminated {
        if stop.stop_requested() {
            return Err(MLError::Interrupted);
        }
        let decided_on = state.equity;
        let Decision { action, fell_back } = decide(&state, state.bar as usize)?;
        record.fallbacks += u64::from(fell_back);
        let outcome = step(market, params, &mut state, action);
        record.actions.push(action.index() as u8);
        if outcome.hold {
            record.holds += 1;
        } else {
            record.count(action, outcome.fill.as_ref());
        }
        if let Some(done) = &outcome.fill {
            record.book(state.bar as usize, action, done, decided_on, false);
        }
        record.equity.push(state.equity);
        record.position.push(state.position);
        record.terminated = outcome.terminated;
    }
    let last_equity = record.close(market, params, &state);
    // After ruin the account stands still, flat.
    if let Some(last) = record.equity.last_mut() {
        *last = last_equity;
    }
    record.equity.resize(n_bars, last_equity);
    record.position.resize(n_bars, 0.0);
    Ok(record)
}

impl Backtest {
    fn count(&mut self, action: FactoredAction, fill: Option<&Fill>) {
        let slot = OrderCounts::slot_of(action);
        self.orders.sent[slot] += 1;
        match fill {
            Some(done) if done.complete => self.orders.filled[slot] += 1,
            Some(_) => self.orders.partial[slot] += 1,
            None => self.orders.cancelled[slot] += 1,
        }
    }

    fn book(&mut self, bar: usize, action: FactoredAction, done: &Fill, equity: f64, closing: bool) {
        let value = (done.quantity * done.price).abs();
        self.fills.push(FillRecord {
            bar,
            action: action.index() as u8,
            units: done.quantity,
            price: done.price,
            fee: done.fee,
            spread: done.spread_cost,
            impact: done.impact_cost,
            turnover: if equity > 0.0 { value / equity } else { 0.0 },
            maker: done.maker,
            closing,
        });
        self.costs.fee += done.fee;
        self.costs.spread += done.spread_cost;
        self.costs.impact += done.impact_cost;
    }

    /// Closes the position of `state` at its bar and returns the equity after it. A position whose closing price
    /// would not be positive, with a half spread above the price, stays marked.
    fn close(&mut self, market: &Market, params: &EnvParams, state: &EnvState) -> f64 {
        let bar = state.bar as usize;
        let close = market.bars.close[bar];
        let order =
            Order { quantity: -state.position, order_type: CLOSING.order_type, urgency: CLOSING.urgency };
        let context = foxhunt_market::BarContext {
            close,
            next_open: close,
            next_high: close,
            next_low: close,
            next_volume: f64::INFINITY,
            half_spread: market.half_spread[bar] * params.half_spread_scale,
            impact: close * params.impact_rate,
            tick_size: market.tick_size,
        };
        let Some(done) = fill(&order, &context, &params.fees()) else { return state.equity };
        let mut account = Portfolio {
            entry_price: state.entry_price,
            position: state.position,
            ..Portfolio::new(state.cash)
        };
        account.trade(done.quantity, done.price, done.fee);
        self.book(bar, CLOSING, &done, state.equity, true);
        account.cash
    }
}
