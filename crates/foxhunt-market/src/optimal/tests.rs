//! The policy against simpler ones, with real fills and real money.

use foxhunt_core::{OrderType, Urgency};

use super::*;
use crate::{BarContext, FeeRates, Order, Portfolio, fill};

fn market() -> MeanReverting {
    MeanReverting { n_bars: 100_000, seed: 11, phi: 0.9, volatility: 0.01, mean_price: 100.0 }
}

fn costs(scale: f64) -> ExecutionSettings {
    ExecutionSettings {
        half_spread_bps: 5.0 * scale,
        impact_bps: 2.0 * scale,
        taker_fee_bps: 5.0 * scale,
        ..ExecutionSettings::default()
    }
}

/// Log equity gained over a path with market orders of normal urgency, and the number of trades.
fn run(
    market: &MeanReverting,
    x: &ExecutionSettings,
    mut policy: impl FnMut(f64, Exposure) -> Exposure,
) -> (f64, usize) {
    let bars = market.bars().unwrap();
    let fees = FeeRates { taker: x.taker_fee_bps * 1e-4, maker: 0.0 };
    let mut account = Portfolio::new(1.0);
    let mut level = Exposure::Flat;
    let mut trades = 0;
    for t in 0..bars.len() - 1 {
        let close = bars.close[t];
        let target = policy(market.deviation(close), level);
        if target != level {
            let quantity = target.fraction() * account.equity(close) / close - account.position;
            let order = Order { quantity, order_type: OrderType::Market, urgency: Urgency::Normal };
            let context = BarContext {
                close,
                next_open: bars.open[t + 1],
                next_high: bars.high[t + 1],
                next_low: bars.low[t + 1],
                next_volume: f64::INFINITY,
                half_spread: close * x.half_spread_bps * 1e-4,
                impact: close * x.impact_bps * 1e-4,
                tick_size: bars.tick_size,
            };
            let done = fill(&order, &context, &fees).unwrap();
            account.trade(done.quantity, done.price, done.fee);
            level = target;
            trades += 1;
        }
    }
    (account.equity(bars.close[bars.len() - 1]).ln(), trades)
}

#[test]
fn beats_simpler_policies_after_costs() {
    let (m, x) = (market(), costs(1.0));
    let optimal = OptimalPolicy::solve(&m, &x, 1.0);
    let (best, trades) = run(&m, &x, |d, level| optimal.act(d, level));
    assert!(trades > 1000, "{trades} trades");
    assert_eq!(run(&m, &x, |_, _| Exposure::Flat), (0.0, 0));
    let (hold, _) = run(&m, &x, |_, _| Exposure::Long);
    assert!(best > 10.0 * hold.abs(), "{best} against buy and hold {hold}");

    let std = m.stationary_std();
    let mut others = vec![];
    for threshold in [0.0, 0.5, 1.0, 1.5] {
        let bound = threshold * std;
        // In at the threshold, out when back at the mean; and in at the threshold, held to the other side.
        others.push(run(&m, &x, |d, level| {
            if d < -bound {
                Exposure::Long
            } else if d > bound {
                Exposure::Short
            } else if d * level.fraction() > 0.0 {
                Exposure::Flat
            } else {
                level
            }
        }));
        others.push(run(&m, &x, |d, level| {
            if d < -bound {
                Exposure::Long
            } else if d > bound {
                Exposure::Short
            } else {
                level
            }
        }));
    }
    let rival = others.iter().map(|(growth, _)| *growth).fold(f64::NEG_INFINITY, f64::max);
    println!(
        "optimal {best:.3} in {trades} trades, best threshold policy {rival:.3}, buy and hold {hold:.3}"
    );
    assert!(best > rival, "{best} against {others:?}");
}

/// What the model promises is what the path pays, up to its second-order terms and chance.
#[test]
fn predicted_growth_is_earned() {
    let (m, x) = (market(), costs(1.0));
    let optimal = OptimalPolicy::solve(&m, &x, 1.0);
    let (earned, _) = run(&m, &x, |d, level| optimal.act(d, level));
    let promised = optimal.growth_per_bar() * (m.n_bars - 1) as f64;
    println!("earned {earned:.3}, promised {promised:.3}");
    // Four standard errors of a sum of 100,000 log returns of 0.01, and 0.5 * 0.01^2 a bar of second order.
    let slack = 4.0 * 0.01 * (m.n_bars as f64).sqrt() + 0.5e-4 * m.n_bars as f64;
    assert!((earned - promised).abs() < slack, "{earned} against {promised} +- {slack}");
}

#[test]
fn without_costs_it_is_the_sign_rule() {
    let m = market();
    let optimal = OptimalPolicy::solve(&m, &costs(0.0), 1.0);
    for level in Exposure::ALL {
        for x in [1e-9, 1e-4, 0.003, 0.01, 0.05, 0.5] {
            assert_eq!(optimal.act(x, level), Exposure::Short, "{x} {level:?}");
            assert_eq!(optimal.act(-x, level), Exposure::Long, "{x} {level:?}");
        }
    }
    // E|x| (1 - phi) a bar: the mean of |x| is std sqrt(2 / pi).
    let want = m.stationary_std() * (2.0 / std::f64::consts::PI).sqrt() * 0.1;
    assert!((optimal.growth_per_bar() / want - 1.0).abs() < 1e-3, "{}", optimal.growth_per_bar());
}

#[test]
fn with_huge_costs_it_never_trades() {
    let m = market();
    let optimal = OptimalPolicy::solve(&m, &costs(200.0), 1.0);
    for level in Exposure::ALL {
        for step in -60..=60 {
            let x = f64::from(step) * 0.1 * m.stationary_std();
            assert_eq!(optimal.act(x, level), level, "{x}");
        }
    }
    assert_eq!(run(&m, &costs(200.0), |d, level| optimal.act(d, level)), (0.0, 0));
    assert!(optimal.growth_per_bar().abs() < 1e-9);
}

/// The more a trade costs, the less is traded, and the thresholds are symmetric.
#[test]
fn dearer_trades_are_fewer() {
    let m = market();
    let mut last = usize::MAX;
    for scale in [0.0, 0.5, 1.0, 2.0, 4.0] {
        let x = costs(scale);
        let optimal = OptimalPolicy::solve(&m, &x, 1.0);
        let (_, trades) = run(&m, &x, |d, level| optimal.act(d, level));
        assert!(trades < last, "{trades} trades at cost scale {scale}");
        last = trades;
        let mirrored = |e: Exposure| Exposure::ALL[4 - e.index() as usize];
        for step in 0..200 {
            let d = (f64::from(step) + 0.37) * 0.02 * m.stationary_std();
            for level in Exposure::ALL {
                assert_eq!(optimal.act(d, level), mirrored(optimal.act(-d, mirrored(level))));
            }
        }
    }
}
