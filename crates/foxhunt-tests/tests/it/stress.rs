//! Numbers at their ends: prices of 1e-9 and 1e9, volumes of 0 and 1e18, accounts that keep being ruined. A run trains,
//! refuses nothing and tells numbers.

use foxhunt::trainer::{MetricsLine, TrainOutcome};
use foxhunt::{BarSeries, Settings, Trainer};
use foxhunt_core::action::N_URGENCIES;
use foxhunt_core::record::EpochStats;
use foxhunt_core::{Head, OrderType};
use foxhunt_market::BarArrays;

use crate::support::{arrays, metrics, tiny};

/// The volume of each bar.
type Volume = fn(usize) -> f64;

/// Bars of about 100 in cents, with each price `unit` a cent and the volumes that `volume` gives.
fn scaled(unit: f64, volume: Volume) -> BarSeries {
    let mut scaled: BarArrays = arrays(900, 3);
    for column in [&mut scaled.open, &mut scaled.high, &mut scaled.low, &mut scaled.close] {
        column.iter_mut().for_each(|price| *price = (*price * 100.0).round() * unit);
    }
    scaled.volume = Some((0..scaled.time.len()).map(volume).collect());
    BarSeries::from_arrays(None, scaled).unwrap()
}

fn epochs(outcome: &TrainOutcome) -> Vec<EpochStats> {
    let lines = metrics(&outcome.run).into_iter();
    lines
        .filter_map(|line| if let MetricsLine::Epoch(report) = line { Some(report.stats) } else { None })
        .collect()
}

/// Trains to the end; what it learned from and what it ended with are numbers.
fn sound(settings: &Settings, bars: BarSeries, context: &str) -> TrainOutcome {
    let outcome = Trainer::new(settings, bars).unwrap().run().unwrap();
    for stats in epochs(&outcome) {
        assert!(stats.faults.is_empty() && stats.faults_lost == 0, "{context}: {:?}", stats.faults);
        assert_eq!((stats.skipped_updates, stats.fallback_decisions), (0, 0), "{context}");
        let numbers = [stats.loss, stats.grad_norm, stats.td_error, stats.q_min, stats.q_max, stats.reward];
        assert!(numbers.iter().all(|n| n.is_some_and(f64::is_finite)), "{context}: {numbers:?}");
    }
    let evaluation = outcome.evaluation.as_ref().unwrap();
    for window in &evaluation.windows {
        let backtest = &window.agent.backtest;
        assert!(backtest.equity.iter().all(|equity| equity.is_finite()), "{context}");
        let paid = [backtest.costs.fee, backtest.costs.spread, backtest.costs.impact];
        assert!(paid.iter().all(|paid| paid.is_finite()), "{context}: {paid:?}");
    }
    outcome
}

#[test]
fn prices_and_volumes_at_their_ends_train() {
    let volumes: [(&str, Volume); 4] = [
        ("no volume", |_| 0.0),
        ("1e18", |_| 1e18),
        ("0 and 1e18 in turn", |t| if t % 2 == 0 { 0.0 } else { 1e18 }),
        ("1e-18", |_| 1e-18),
    ];
    for (unit, price) in [(1e-13, "1e-9"), (1e5, "1e9"), (1e-2, "100")] {
        for (volume, of) in volumes {
            let dir = tempfile::tempdir().unwrap();
            let context = format!("prices of {price}, volume {volume}");
            let bars = scaled(unit, of);
            assert!((bars.close[0] / (1e4 * unit) - 1.0).abs() < 0.2, "{}", bars.close[0]);
            let outcome = sound(&tiny(dir.path()), bars, &context);
            let fills: u64 = epochs(&outcome).iter().flat_map(|stats| stats.fills.clone()).sum();
            assert!(fills > 0, "{context}: nothing was ever filled");
        }
    }
}

/// Without volume no IoC order fills where fills are limited by it, and every other kind still does.
#[test]
fn a_market_without_volume_fills_no_ioc_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = tiny(dir.path());
    // So that IoC orders are among the actions.
    settings.network.head = Head::Factored;
    let ioc_fills = |settings: &Settings| -> u64 {
        let outcome = sound(settings, scaled(1e-2, |_| 0.0), "no volume");
        let ioc = OrderType::Ioc.index() as usize * N_URGENCIES;
        epochs(&outcome).iter().flat_map(|stats| stats.fills[ioc..ioc + N_URGENCIES].to_vec()).sum()
    };
    assert_eq!(ioc_fills(&settings), 0);
    settings.execution.limit_to_volume = false;
    assert!(ioc_fills(&settings) > 0);
}

/// The smallest and the largest account that settings allow, at the highest leverage: many are ruined, none is a NaN.
#[test]
fn accounts_near_ruin_stay_numbers() {
    for start_equity in [1e-6, 1e18] {
        for unit in [1e-13, 1e5] {
            let dir = tempfile::tempdir().unwrap();
            let mut settings = tiny(dir.path());
            settings.env.start_equity = start_equity;
            settings.env.max_leverage = 100.0;
            settings.env.ruin_fraction = 0.01;
            let context = format!("{start_equity} to start with, a cent is {unit}");
            let outcome = sound(&settings, scaled(unit, |_| 1e18), &context);
            let ruined: u64 = epochs(&outcome).iter().map(|stats| stats.ruined_episodes).sum();
            assert!(ruined > 0, "{context}: a hundredfold position outlived moves of a percent");
        }
    }
}
