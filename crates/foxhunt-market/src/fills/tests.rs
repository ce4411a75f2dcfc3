//! Every row of the fill table and both sides of every boundary.

use proptest::prelude::*;

use super::*;
use OrderType::{Ioc, LimitMaker, Market};
use Urgency::{Aggressive, Normal, Patient};

const FEES: FeeRates = FeeRates { taker: 0.001, maker: -0.0005 };

/// Binary fractions throughout, so that every expected price below is exact.
fn bar() -> BarContext {
    BarContext {
        close: 100.0,
        next_open: 101.0,
        next_high: 103.0,
        next_low: 99.0,
        next_volume: 1000.0,
        half_spread: 0.5,
        impact: 0.25,
        tick_size: 0.125,
    }
}

fn order(quantity: f64, order_type: OrderType, urgency: Urgency) -> Order {
    Order { quantity, order_type, urgency }
}

fn go(quantity: f64, order_type: OrderType, urgency: Urgency, bar: BarContext) -> Option<Fill> {
    fill(&order(quantity, order_type, urgency), &bar, &FEES)
}

#[test]
fn market_orders_pay_spread_and_impact_on_both_sides() {
    for (urgency, factor) in [(Patient, 0.5), (Normal, 1.0), (Aggressive, 2.0)] {
        for side in [1.0, -1.0] {
            let f = go(side * 8.0, Market, urgency, bar()).unwrap();
            assert_eq!(f.price, 101.0 + side * (0.5 + 0.25 * factor));
            assert_eq!(f.quantity, side * 8.0);
            assert_eq!(f.mid, 101.0);
            assert_eq!(f.fee, 8.0 * f.price * 0.001);
            assert_eq!((f.spread_cost, f.impact_cost), (4.0, 8.0 * 0.25 * factor));
            assert!(!f.maker && f.complete);
        }
    }
}

/// A market order is never limited by volume.
#[test]
fn market_orders_ignore_volume() {
    let f = go(8.0, Market, Normal, BarContext { next_volume: 0.0, ..bar() }).unwrap();
    assert_eq!(f.quantity, 8.0);
}

#[test]
fn resting_limit_needs_a_trade_through_by_one_tick() {
    for (urgency, distance) in [(Patient, 1.0), (Normal, 0.5), (Aggressive, 0.25)] {
        let limit = 100.0 - distance;
        for (low, filled) in [
            (limit, false),
            (limit - 0.124, false),
            (limit - 0.125, true),
            (limit - 0.126, true),
            (limit + 0.1, false),
        ] {
            let f = go(8.0, LimitMaker, urgency, BarContext { next_low: low, ..bar() });
            assert_eq!(f.is_some(), filled, "buy, {urgency:?}, low {low}");
            if let Some(f) = f {
                assert_eq!((f.price, f.mid, f.maker, f.complete), (limit, limit, true, true));
                assert_eq!((f.spread_cost, f.impact_cost), (0.0, 0.0));
                assert_eq!(f.fee, 8.0 * limit * -0.0005);
            }
        }
        let limit = 100.0 + distance;
        for (high, filled) in [(limit, false), (limit + 0.124, false), (limit + 0.125, true)] {
            let b = BarContext { next_open: 99.5, next_high: high, ..bar() };
            let f = go(-8.0, LimitMaker, urgency, b);
            assert_eq!(f.is_some(), filled, "sell, {urgency:?}, high {high}");
            if let Some(f) = f {
                assert_eq!((f.price, f.quantity, f.maker), (limit, -8.0, true));
            }
        }
    }
}

#[test]
fn limit_crossed_at_the_open_takes_that_open() {
    // Normal urgency: the buy limit is 99.5, the sell limit 100.5.
    let crossed = go(8.0, LimitMaker, Normal, BarContext { next_open: 99.25, ..bar() }).unwrap();
    assert_eq!((crossed.price, crossed.mid, crossed.maker), (99.25, 99.25, false));
    assert_eq!(crossed.fee, 8.0 * 99.25 * 0.001);
    let crossed = go(-8.0, LimitMaker, Normal, BarContext { next_open: 100.75, ..bar() }).unwrap();
    assert_eq!((crossed.price, crossed.maker), (100.75, false));

    // Touching at the open is not crossing: the order rests and needs its tick.
    let touch = BarContext { next_open: 99.5, next_low: 99.4375, ..bar() };
    assert_eq!(go(8.0, LimitMaker, Normal, touch), None);
    let rests = go(8.0, LimitMaker, Normal, BarContext { next_low: 99.0, ..touch }).unwrap();
    assert_eq!((rests.price, rests.maker), (99.5, true));
    let touch = BarContext { next_open: 100.5, next_high: 100.5625, ..bar() };
    assert_eq!(go(-8.0, LimitMaker, Normal, touch), None);
}

#[test]
fn immediate_orders_stay_within_their_bound() {
    for (urgency, bound, share) in [(Patient, 0.5, 0.10), (Normal, 1.0, 0.25), (Aggressive, 2.0, 0.50)] {
        // The price is the open plus 0.5, so the open may be up to bound - 0.5 above the close.
        for (gap, within) in [(bound - 0.5, true), (bound - 0.5 + 0.0625, false), (-5.0, true)] {
            let buy = go(8.0, Ioc, urgency, BarContext { next_open: 100.0 + gap, ..bar() });
            assert_eq!(buy.is_some(), within, "buy {urgency:?} gap {gap}");
            let sell = go(-8.0, Ioc, urgency, BarContext { next_open: 100.0 - gap, ..bar() });
            assert_eq!(sell.is_some(), within, "sell {urgency:?} gap {gap}");
            if let (Some(buy), Some(sell)) = (buy, sell) {
                assert_eq!(buy.price, 100.0 + gap + 0.5);
                assert_eq!(sell.price, 100.0 - gap - 0.5);
                assert_eq!(buy.fee, 8.0 * buy.price * 0.001);
                assert_eq!((buy.spread_cost, buy.impact_cost, buy.maker), (4.0, 0.0, false));
            }
        }
        let open_at_close = BarContext { next_open: 100.0, ..bar() };
        for (wanted, got, complete) in
            [(1000.0 * share, 1000.0 * share, true), (1000.0 * share + 1.0, 1000.0 * share, false)]
        {
            for side in [1.0, -1.0] {
                let f = go(side * wanted, Ioc, urgency, open_at_close).unwrap();
                assert_eq!((f.quantity, f.complete), (side * got, complete));
            }
        }
        let unknown = BarContext { next_volume: f64::INFINITY, ..open_at_close };
        assert_eq!(go(1e9, Ioc, urgency, unknown).unwrap().quantity, 1e9);
        // Case F30: a bar without volume fills no order that needs volume.
        assert_eq!(go(8.0, Ioc, urgency, BarContext { next_volume: 0.0, ..open_at_close }), None);
    }
}

/// On a decimal grid, where no price is exact in f64, every boundary falls on its right side at every price.
#[test]
fn boundaries_hold_on_a_decimal_grid() {
    let at = |points: i64| points as f64 * 1e-5;
    for close in (90_000..130_000).step_by(7) {
        // Half spread of one point, normal urgency: a buy limit one point below the close.
        let b = BarContext {
            close: at(close),
            next_open: at(close),
            next_high: at(close + 9),
            next_low: at(close - 1),
            next_volume: f64::INFINITY,
            half_spread: at(1),
            impact: 0.0,
            tick_size: 1e-5,
        };
        assert_eq!(go(1.0, LimitMaker, Normal, b), None, "touched at {close}");
        let through = go(1.0, LimitMaker, Normal, BarContext { next_low: at(close - 2), ..b });
        assert!(through.unwrap().maker, "through at {close}");
        let touch = BarContext { next_open: at(close - 1), ..b };
        assert_eq!(go(1.0, LimitMaker, Normal, touch), None, "opened at the limit {close}");
        let crossed = go(1.0, LimitMaker, Normal, BarContext { next_open: at(close - 2), ..touch });
        assert!(!crossed.unwrap().maker, "opened below the limit {close}");
        let sell = BarContext { next_high: at(close + 1), ..b };
        assert_eq!(go(-1.0, LimitMaker, Normal, sell), None, "touched at {close}");
        let through = go(-1.0, LimitMaker, Normal, BarContext { next_high: at(close + 2), ..sell });
        assert!(through.unwrap().maker, "through at {close}");
        // The bound of an immediate order is two half spreads from the close: its open may be one point away.
        for side in [1_i64, -1] {
            let gap = |points| BarContext { next_open: at(close + side * points), ..b };
            assert!(go(side as f64, Ioc, Normal, gap(1)).is_some(), "on the bound at {close}");
            assert_eq!(go(side as f64, Ioc, Normal, gap(2)), None, "past the bound at {close}");
        }
    }
}

/// Case F29: no fill at a price that is not a price, and no fill of nothing.
#[test]
fn nothing_is_filled_without_a_price_or_a_quantity() {
    for kind in OrderType::ALL {
        for open in [f64::NAN, f64::INFINITY] {
            let b = BarContext { next_open: open, next_high: open, next_low: open, ..bar() };
            assert_eq!(go(8.0, kind, Normal, b), None, "{kind:?} at {open}");
        }
        for quantity in [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(go(quantity, kind, Normal, bar()), None, "{kind:?} of {quantity}");
        }
    }
    // A sale whose costs exceed the price would pay to sell.
    assert_eq!(go(-8.0, Market, Normal, BarContext { half_spread: 200.0, ..bar() }), None);
}

/// Case F15: no fixed point anywhere, so a large order costs what it should.
#[test]
fn fees_of_large_orders_do_not_overflow() {
    let b = BarContext { next_open: 100_000.0, half_spread: 0.0, impact: 0.0, ..bar() };
    let fees = FeeRates { taker: 0.0005, maker: 0.0005 };
    let buy = fill(&order(5.0, Market, Normal), &b, &fees).unwrap();
    let sell = fill(&order(-5.0, Market, Normal), &b, &fees).unwrap();
    assert_eq!(buy.fee + sell.fee, 500.0);
}

proptest! {
    /// What a fill costs is exactly its fee plus its distance from the frictionless fill.
    #[test]
    fn the_cost_split_is_the_whole_cost(
        close in 1.0..1e6f64, gap in -0.01..0.01f64, up in 0.0..0.01f64, down in 0.0..0.01f64,
        spread in 0.0..0.01f64, impact in 0.0..0.01f64, quantity in -1e4..1e4f64,
        kind in 0u32..3, urgency in 0u32..3, volume in 0.0..1e5f64,
    ) {
        let next_open = close * (1.0 + gap);
        let b = BarContext {
            close, next_open,
            next_high: next_open * (1.0 + up), next_low: next_open * (1.0 - down),
            next_volume: volume, half_spread: spread * close, impact: impact * close, tick_size: 1e-4,
        };
        let o = order(quantity, OrderType::from_index(kind).unwrap(), Urgency::from_index(urgency).unwrap());
        if let Some(f) = fill(&o, &b, &FEES) {
            let paid = f.quantity * f.price + f.fee;
            let frictionless = f.quantity * f.mid;
            let split = f.fee + f.spread_cost + f.impact_cost;
            prop_assert!((paid - frictionless - split).abs() <= 1e-12 * frictionless.abs());
            prop_assert!(f.spread_cost >= 0.0 && f.impact_cost >= 0.0);
            prop_assert_eq!(f.quantity.signum(), o.quantity.signum());
            prop_assert!(f.quantity.abs() <= o.quantity.abs());
            prop_assert_eq!(f.complete, f.quantity == o.quantity);
            let furthest = b.half_spread + 2.0 * b.impact;
            prop_assert!((f.price - f.mid).abs() <= furthest * (1.0 + 1e-9) + 1e-12 * f.mid);
        } else {
            prop_assert!(o.order_type != Market || quantity == 0.0);
        }
    }
}
