//! What one backtest leaves behind: the equity series, the fills, the orders and the costs.
//!
//! Plain data. Running a policy is `backtest`'s business, and judging the result is `metrics`'.

use std::ops::Range;

use foxhunt_core::action::{N_ORDER_TYPES, N_URGENCIES};
use foxhunt_core::{FactoredAction, OrderType, Urgency};
use foxhunt_ops::env_step::EQUITY_FLOOR;
use serde::{Deserialize, Serialize};

/// The record of one policy over one window of bars.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backtest {
    /// Bars of the market that were walked, start included, end excluded; at least two.
    pub window: Range<usize>,
    /// Net equity in account currency, one f64 a bar of the window, marked at closes. The first is the start
    /// equity, before any order can have filled; the last is after an open position was closed with costs. After
    /// ruin the series stays where it ended.
    pub equity: Vec<f64>,
    /// Signed units held at the close of each bar, one f64 a bar of the window. The last one is the position
    /// that was then closed.
    pub position: Vec<f64>,
    /// Factored action index of each decision, in bar order: one at each bar but the last, fewer after ruin.
    pub actions: Vec<u8>,
    /// Decisions that asked for the exposure already held. They cost nothing.
    pub holds: u64,
    /// Decisions that fell back, because the policy had only NaN to choose from; see [`super::Decision`].
    #[serde(default)]
    pub fallbacks: u64,
    /// Orders by order type and urgency, and what became of them. The final close is not among them.
    pub orders: OrderCounts,
    /// Fills in time order, the final close included.
    pub fills: Vec<FillRecord>,
    /// Sums over `fills`.
    pub costs: Costs,
    /// Whether equity fell to the ruin level, which ends the trading.
    pub terminated: bool,
}

impl Backtest {
    /// Equity at the first bar, before any order.
    #[must_use]
    pub fn start_equity(&self) -> f64 {
        self.equity.first().copied().unwrap_or_default()
    }

    /// Equity at the end, after an open position was closed.
    #[must_use]
    pub fn final_equity(&self) -> f64 {
        self.equity.last().copied().unwrap_or_default()
    }

    /// `ln(final / start)` of net equity, always finite: equity counts as at least [`EQUITY_FLOOR`] of the
    /// start, as in the reward.
    #[must_use]
    pub fn net_log_return(&self) -> f64 {
        let start = self.start_equity();
        if start > 0.0 { (self.final_equity() / start).max(EQUITY_FLOOR).ln() } else { 0.0 }
    }

    /// Traded value over the equity it was decided on, summed over all fills, the final close included. Going
    /// from flat to fully long and back at leverage 1 is a turnover of 2.
    #[must_use]
    pub fn turnover(&self) -> f64 {
        // Not `sum`, whose empty sum is -0.0.
        self.fills.iter().fold(0.0, |sum, fill| sum + fill.turnover)
    }
}

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The action.
    pub action: FactoredAction,
    /// Whether it stands in for a choice that could not be made, because there was no Q-value to choose by.
    pub fell_back: bool,
}

impl From<FactoredAction> for Decision {
    fn from(action: FactoredAction) -> Self {
        Self { action, fell_back: false }
    }
}

/// One fill.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FillRecord {
    /// Bar in which it filled. The decision was at the close of the bar before, except for the final close.
    pub bar: usize,
    /// Factored action that sent the order.
    pub action: u8,
    /// Signed units: positive bought, negative sold.
    pub units: f64,
    /// Price paid or received, half spread and impact included, price units.
    pub price: f64,
    /// Fee, account currency; negative is a rebate.
    pub fee: f64,
    /// Part of the price that is half spread, times units, account currency, >= 0.
    pub spread: f64,
    /// Part of the price that is impact, times units, account currency, >= 0.
    pub impact: f64,
    /// `|units * price|` over the equity the order was decided on; 0 when that equity was not positive.
    pub turnover: f64,
    /// Whether the maker fee was charged.
    pub maker: bool,
    /// Whether this is the close of an open position at the end of the window or at ruin.
    pub closing: bool,
}

/// Money lost to trading, account currency. Equity is already net of all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Fees, rebates counted negative.
    pub fee: f64,
    /// Half spreads crossed.
    pub spread: f64,
    /// Impact of market orders.
    pub impact: f64,
}

impl Costs {
    /// Everything together.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.fee + self.spread + self.impact
    }
}

/// Nine counts each, index `order_type * 3 + urgency`. `sent = filled + partial + cancelled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderCounts {
    /// Orders sent.
    pub sent: [u64; N_ORDER_TYPES * N_URGENCIES],
    /// Orders filled whole.
    pub filled: [u64; N_ORDER_TYPES * N_URGENCIES],
    /// Orders filled in part, the rest cancelled.
    pub partial: [u64; N_ORDER_TYPES * N_URGENCIES],
    /// Orders cancelled whole.
    pub cancelled: [u64; N_ORDER_TYPES * N_URGENCIES],
}

impl OrderCounts {
    /// The place of an order type and urgency in the arrays.
    #[must_use]
    pub const fn slot(order_type: OrderType, urgency: Urgency) -> usize {
        (order_type.index() * 3 + urgency.index()) as usize
    }

    /// The place of an action's order in the arrays.
    #[must_use]
    pub const fn slot_of(action: FactoredAction) -> usize {
        Self::slot(action.order_type, action.urgency)
    }

    /// All orders sent.
    #[must_use]
    pub fn total_sent(&self) -> u64 {
        self.sent.iter().sum()
    }
}
