//! The fill rules: what one order becomes in the bar after its decision.
//!
//! An order is decided at the close of bar t and sees bar t + 1 alone; nothing earlier than the open of t + 1 is
//! ever used. The arithmetic is straight-line f64 in a fixed order of operations without fused multiply-adds,
//! because the CUDA kernel repeats it operation by operation and must give the same bits. This module does not
//! decide, does not hold money ([`crate::Portfolio`] does) and never fails: what cannot be filled is cancelled.
//!
//! With side s = +1 for a buy and -1 for a sell, half spread h and impact i, both in price units:
//!
//! | order | price | quantity | fee |
//! |---|---|---|---|
//! | Market | open(t+1) + s (h + i {0.5, 1, 2}) | all | taker |
//! | LimitMaker | close(t) - s h {2, 1, 0.5} | all, if bar t+1 trades through it by at least one tick | maker |
//! | LimitMaker, limit better than open(t+1) | open(t+1) | all | taker |
//! | IoC | open(t+1) + s h, if within close(t) + s h {1, 2, 4} | up to {10, 25, 50} % of the volume of bar t+1 | taker |
//!
//! Nothing fills in a bar that was made to fill a gap: the market hands it over without prices (NaN).
//!
//! A limit is crossed at the open when the open is strictly better than the limit (below it for a buy). An open
//! that equals the limit only touches it. "Through by one tick" means limit - low >= tick for a buy and
//! high - limit >= tick for a sell. "Within" includes the bound. Decimal prices are not exact in f64, so each of
//! the three comparisons takes prices closer than [`SAME_PRICE`] ticks for equal.

use foxhunt_core::{OrderType, Urgency};
use serde::{Deserialize, Serialize};

/// Share of `impact` that a market order pays, by urgency.
pub const IMPACT_FACTOR: [f64; 3] = [0.5, 1.0, 2.0];
/// Distance of a resting limit from the close in half spreads, by urgency.
pub const LIMIT_FACTOR: [f64; 3] = [2.0, 1.0, 0.5];
/// Largest distance of an immediate order's price from the close in half spreads, by urgency.
pub const IOC_BOUND_FACTOR: [f64; 3] = [1.0, 2.0, 4.0];
/// Share of the bar's volume an immediate order may take, by urgency.
pub const IOC_VOLUME_SHARE: [f64; 3] = [0.10, 0.25, 0.50];

/// Prices closer than this many ticks are one price: far above the rounding of f64, far below any real step.
pub const SAME_PRICE: f64 = 1e-6;

/// An order: a signed quantity and how it reaches the market.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// Units to trade, positive to buy, negative to sell.
    pub quantity: f64,
    /// How it reaches the market.
    pub order_type: OrderType,
    /// How much is paid, or risked, for being filled.
    pub urgency: Urgency,
}

/// What an order meets: the close it was decided at and the bar after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BarContext {
    /// Close of the decision bar t, price units.
    pub close: f64,
    /// Open of bar t + 1, price units.
    pub next_open: f64,
    /// High of bar t + 1, price units.
    pub next_high: f64,
    /// Low of bar t + 1, price units.
    pub next_low: f64,
    /// Volume of bar t + 1 in units; infinity when it is unknown or does not limit fills.
    pub next_volume: f64,
    /// Half spread at bar t, price units.
    pub half_spread: f64,
    /// Impact of a market order of normal urgency, price units.
    pub impact: f64,
    /// Smallest price step, price units.
    pub tick_size: f64,
}

/// Fee rates as shares of traded value; negative is a rebate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeeRates {
    /// Of a fill that takes liquidity.
    pub taker: f64,
    /// Of a fill that makes liquidity.
    pub maker: f64,
}

/// One fill.
///
/// A frictionless fill of the same quantity happens at `mid`: the open of bar t + 1, or the limit itself for an
/// order that rested. `spread_cost + impact_cost = |quantity| * |price - mid|` up to rounding, and with `fee`
/// that is all a fill costs. A resting order neither pays nor earns the spread here; what it gains or loses
/// against the open is market movement, not cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Units traded, signed like the order's.
    pub quantity: f64,
    /// Price paid or received, price units.
    pub price: f64,
    /// Price of the frictionless fill, price units.
    pub mid: f64,
    /// Fee in account currency; negative is a rebate.
    pub fee: f64,
    /// Half spread paid, account currency.
    pub spread_cost: f64,
    /// Impact paid, account currency.
    pub impact_cost: f64,
    /// Whether the order rested and was taken by others.
    pub maker: bool,
    /// Whether the whole order was filled.
    pub complete: bool,
}

/// Fills `order` against `bar`, or `None` when all of it is cancelled.
///
/// Nothing is filled for a zero or non-finite quantity, nor at a price that is not finite and above zero (case
/// F29: a bar without a price fills nothing).
#[must_use]
pub fn fill(order: &Order, bar: &BarContext, fees: &FeeRates) -> Option<Fill> {
    let side = if order.quantity > 0.0 { 1.0 } else { -1.0 };
    let wanted = order.quantity.abs();
    let u = order.urgency as usize;
    let same = bar.tick_size * SAME_PRICE;

    let (price, mid, filled, half_spread, impact, maker) = match order.order_type {
        OrderType::Market => {
            let impact = bar.impact * IMPACT_FACTOR[u];
            let price = bar.next_open + side * (bar.half_spread + impact);
            (price, bar.next_open, wanted, bar.half_spread, impact, false)
        }
        OrderType::LimitMaker => {
            let limit = bar.close - side * (bar.half_spread * LIMIT_FACTOR[u]);
            let extreme = if side > 0.0 { bar.next_low } else { bar.next_high };
            let crossed_at_open = side * (limit - bar.next_open) > same;
            let through = side * (limit - extreme) >= bar.tick_size - same;
            if crossed_at_open {
                (bar.next_open, bar.next_open, wanted, 0.0, 0.0, false)
            } else {
                let filled = if through { wanted } else { 0.0 };
                (limit, limit, filled, 0.0, 0.0, true)
            }
        }
        OrderType::Ioc => {
            let price = bar.next_open + side * bar.half_spread;
            let bound = bar.close + side * (bar.half_spread * IOC_BOUND_FACTOR[u]);
            let within = side * (price - bound) <= same;
            let available = bar.next_volume * IOC_VOLUME_SHARE[u];
            let share = if available < wanted { available } else { wanted };
            let filled = if within { share } else { 0.0 };
            (price, bar.next_open, filled, bar.half_spread, 0.0, false)
        }
    };

    // Every comparison is false for NaN, so what is not a number fills nothing either.
    let is_number = |value: f64| value > 0.0 && value < f64::INFINITY;
    if !(is_number(wanted) && is_number(filled) && is_number(price)) {
        return None;
    }
    let rate = if maker { fees.maker } else { fees.taker };
    Some(Fill {
        quantity: side * filled,
        price,
        mid,
        fee: filled * price * rate,
        spread_cost: filled * half_spread,
        impact_cost: filled * impact,
        maker,
        complete: filled == wanted,
    })
}

#[cfg(test)]
mod tests;
