//! The bundled EUR/USD sample, from file to ratio and to a prepared market.
#![allow(clippy::unwrap_used, reason = "a test that meets one has failed")]

use std::path::Path;

use foxhunt_core::Settings;
use foxhunt_market::ratios::{annual_growth, sharpe, simple_returns, total_return};
use foxhunt_market::{Market, Normalise, Split, load};

fn sample() -> foxhunt_market::BarSeries {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/eurusd_1h_2017_ask.csv");
    load(&path, &Settings::default().data).unwrap().bars
}

/// Long all the time without costs: a Sharpe ratio of 1.860, annualised with the 6,280.6 returns a year observed
/// (weekends and holidays are in the times, not in a constant).
#[test]
fn sharpe_of_holding_the_sample() {
    let bars = sample();
    let per_year = bars.bars_per_year(0..bars.len());
    assert!((per_year.unwrap() - 6280.6).abs() < 0.1, "{per_year:?}");
    let ratio = sharpe(&simple_returns(&bars.close).unwrap(), per_year, 0.0).unwrap();
    assert_eq!(format!("{ratio:.3}"), "1.860");
    // What a constant would make of it: days of the stock exchange, hours of a year with its weekends.
    for (constant, wrong) in [(252.0, 0.372_490), (8_760.0, 2.196_170)] {
        let ratio = sharpe(&simple_returns(&bars.close).unwrap(), Some(constant), 0.0).unwrap();
        assert!((ratio - wrong).abs() < 1e-6, "{ratio} for {wrong}");
    }
    // The same by the last close over the first, and by the day count.
    let growth = bars.close[bars.len() - 1] / bars.close[0] - 1.0;
    assert!((total_return(&bars.close).unwrap() - growth).abs() < 1e-15);
    let years = (bars.time[bars.len() - 1] - bars.time[0]) as f64 / (365.25 * 86_400e9);
    let annual = (1.0 + growth).powf(1.0 / years) - 1.0;
    assert!((annual_growth(&bars.close, per_year).unwrap() - annual).abs() < 1e-12);
}

#[test]
fn sample_becomes_a_market() {
    let settings = Settings::default();
    let bars = sample();
    let first = foxhunt_market::features::first_bar(&settings.execution);
    let split = Split::new(bars.len(), first, &settings.split).unwrap();
    let market = Market::prepare(bars, &settings.execution, Normalise::FitOn(split.train.clone())).unwrap();
    assert!(market.features.iter().all(|v| v.is_finite() && v.abs() <= 10.0));
    // Every feature but the two that need a spread varies in training.
    let constant: Vec<&str> = market
        .normaliser
        .names
        .iter()
        .zip(&market.normaliser.std)
        .filter(|(_, std)| **std == 0.0)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(constant, ["spread", "spread_z_64"]);
}
