//! Ratios against values worked out elsewhere; each case of the list by name.

use super::*;

const YEAR: Option<f64> = Some(252.0);

/// Case F03: the ratio of a falling equity is that of its returns, not of its levels.
#[test]
fn sharpe_is_of_returns() {
    let returns = simple_returns(&[1000.0, 900.0, 800.0, 700.0]).unwrap();
    let got = sharpe(&returns, Some(1.0), 0.0).unwrap();
    assert!((got - -8.944_577_378_550_326).abs() < 1e-9, "{got}");
}

/// Case F17: bars without a trade count.
#[test]
fn flat_bars_count() {
    let got = sharpe(&[0.01, 0.0, 0.02, 0.0], YEAR, 0.0).unwrap();
    assert!((got - 12.435_287).abs() < 1e-6, "{got}");
}

/// Case F20: no or one observation is a reason, not NaN.
#[test]
fn too_few_returns_are_a_reason() {
    for returns in [&[][..], &[0.01]] {
        let want = Err(Undefined::TooFewReturns { have: returns.len(), need: 2 });
        assert_eq!(sharpe(returns, YEAR, 0.0), want);
        assert_eq!(sortino(returns, YEAR, 0.0), want);
        assert_eq!(volatility(returns, YEAR), want);
    }
    for equity in [&[][..], &[100.0]] {
        let none = Err(Undefined::TooFewReturns { have: 0, need: 1 });
        assert_eq!(total_return(equity), none);
        assert_eq!(calmar(equity, YEAR), none);
        assert_eq!(max_drawdown(equity).depth, 0.0);
    }
    assert_eq!(sharpe(&[], YEAR, 0.0).unwrap_err().to_string(), "0 returns, needs 2");
}

/// Case F21: a yearly rate is taken apart by compounding.
#[test]
fn risk_free_rate_is_a_rate_a_bar() {
    assert!((rate_per_bar(0.01, 252.0) - 3.948_621_9e-5).abs() < 1e-12);
    let with = sharpe(&[0.01, 0.0, 0.02, 0.0], YEAR, 0.01).unwrap();
    let want = (0.0075 - 3.948_621_9e-5) / 0.009_574_271_077_563_38 * 252_f64.sqrt();
    assert!((with - want).abs() < 1e-6, "{with} against {want}");
}

/// Case F23: the first period counts, from the start capital.
#[test]
fn first_period_counts() {
    let returns = simple_returns(&[100.0, 99.0, 99.99]).unwrap();
    assert!((returns[0] + 0.01).abs() < 1e-15 && (returns[1] - 0.01).abs() < 1e-15);
    assert!(mean(&returns).unwrap().abs() < 1e-15);
}

/// Case F24: the start equity is the first peak.
#[test]
fn drawdown_starts_at_the_start_equity() {
    let depth = |equity: &[f64]| max_drawdown(equity).depth;
    assert!((depth(&[1.0, 0.9, 0.75]) - 0.25).abs() < 1e-15);
    assert!((depth(&[100.0, 80.0, 90.0]) - 0.20).abs() < 1e-15);
    assert!((depth(&[1.0, 0.5, 0.55]) - 0.50).abs() < 1e-15);
}

/// Case F26: equity below zero is a drawdown of 200 %, and ratios of returns are not defined.
#[test]
fn negative_equity() {
    let equity = [100.0, -20.0, -50.0, -100.0];
    assert_eq!(max_drawdown(&equity).depth, 2.0);
    assert_eq!(simple_returns(&equity), Err(Undefined::NonPositiveEquity { bar: 1 }));
    assert_eq!(total_return(&equity), Ok(-2.0));
    for ratio in [annual_growth(&equity, YEAR), calmar(&equity, YEAR)] {
        assert!(matches!(ratio, Err(Undefined::NonPositiveEquity { .. })), "{ratio:?}");
    }
}

/// Case F27: no fall, or one point, is a drawdown of 0.
#[test]
fn no_drawdown_is_zero() {
    assert_eq!(max_drawdown(&[100.0, 101.0, 102.0]), Drawdown::default());
    assert_eq!(max_drawdown(&[100.0]), Drawdown::default());
    assert_eq!(max_drawdown(&[]), Drawdown::default());
    assert_eq!(calmar(&[100.0, 101.0], YEAR), Err(Undefined::NoDrawdown));
}

/// Case F30: returns that do not vary have no ratio.
#[test]
fn no_variance_is_a_reason() {
    let flat = simple_returns(&[51.06; 5]).unwrap();
    assert_eq!(sharpe(&flat, YEAR, 0.0), Err(Undefined::ZeroVariance));
    assert_eq!(sortino(&flat, YEAR, 0.0), Err(Undefined::NoDownside));
    assert_eq!((volatility(&flat, YEAR), total_return(&[51.06; 5])), (Ok(0.0), Ok(0.0)));
    // Equal growth, where rounding makes returns differ in their last bits.
    let growth: Vec<f64> = (0..100).map(|t| 1.01_f64.powi(t)).collect();
    assert_eq!(sharpe(&simple_returns(&growth).unwrap(), YEAR, 0.0), Err(Undefined::ZeroVariance));
}

#[test]
fn drawdown_places_and_duration() {
    //             0    1    2   3    4    5   6   7
    let equity = [100.0, 110.0, 99.0, 105.0, 110.0, 90.0, 95.0, 100.0];
    let d = max_drawdown(&equity);
    assert!((d.depth - 20.0 / 110.0).abs() < 1e-15);
    assert_eq!((d.peak, d.trough, d.longest_bars), (4, 5, 3));
    assert_eq!(max_drawdown(&[1.0, 2.0, 2.0, 2.0]).longest_bars, 0);
}

#[test]
fn annual_figures() {
    // Two years of two bars each, 21 % in all: 10 % a year.
    let equity = [100.0, 90.0, 110.0, 100.0, 121.0];
    assert!((annual_growth(&equity, Some(2.0)).unwrap() - 0.1).abs() < 1e-15);
    assert!((calmar(&equity, Some(2.0)).unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(annual_growth(&equity, None), Err(Undefined::NoBarsPerYear));
    // Downside deviation of [-0.1, 0.2] against 0 is 0.1 / sqrt(2).
    let got = sortino(&[-0.1, 0.2], Some(1.0), 0.0).unwrap();
    assert!((got - 0.05 / (0.1 / 2_f64.sqrt())).abs() < 1e-12, "{got}");
}

/// Case F18: bars a year come from the bars' times alone, so the machine's speed cannot matter.
#[test]
fn annualisation_uses_bar_times() {
    use crate::{BarArrays, BarSeries};
    let n = 100;
    let prices: Vec<f64> = (0..n).map(|t| 100.0 + f64::from(t % 7)).collect();
    let series = || {
        let arrays = BarArrays {
            time: (0..i64::from(n)).map(|t| t * 86_400_000_000_000).collect(),
            open: prices.clone(),
            high: prices.clone(),
            low: prices.clone(),
            close: prices.clone(),
            ..BarArrays::default()
        };
        BarSeries::from_arrays(None, arrays).unwrap()
    };
    let run = || {
        let bars = series();
        let returns = simple_returns(&bars.close).unwrap();
        sharpe(&returns, bars.bars_per_year(0..bars.len()), 0.0).unwrap()
    };
    let first = run();
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(first, run());
    assert!((series().bars_per_year(0..100).unwrap() - 365.25).abs() < 1e-9);
}
