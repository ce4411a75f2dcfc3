//! Against NumPy and SciPy, against sampling, and at the ends of the ranges.

use foxhunt_core::{Philox, Purpose};
use foxhunt_market::ratios::{Undefined, simple_returns};
use serde_json::Value;

use super::*;

fn golden() -> Value {
    serde_json::from_str(include_str!("../../tests/golden/statistics.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// NumPy 2.4 and SciPy 1.17 (tests/golden/statistics.py).
#[test]
fn sharpe_statistics_are_those_of_scipy() {
    let golden = golden();
    let confidence = golden["confidence"].as_f64().unwrap();
    for case in golden["sharpe"].as_array().unwrap() {
        let name = &case["name"];
        let got = SharpeEstimate::of(&numbers(&case["returns"]), case["rate"].as_f64().unwrap()).unwrap();
        let trials = Trials { count: case["trials"].as_u64().unwrap(), variance: case["variance"].as_f64() };
        let best = expected_best_ratio(trials.count, trials.variance_for(got.n_returns));
        let Interval { low, high } = got.interval(confidence);
        for (key, value) in [
            ("ratio", got.ratio),
            ("skewness", got.skewness),
            ("kurtosis", got.kurtosis),
            ("standard_error", got.standard_error()),
            ("low", low),
            ("high", high),
            ("psr_zero", got.probabilistic(0.0)),
            ("psr_tenth", got.probabilistic(0.1)),
            ("expected_best", best),
            ("dsr", got.deflated(&trials)),
        ] {
            let want = case[key].as_f64().unwrap();
            assert!((value - want).abs() <= 1e-10 * want.abs().max(1e-3), "{name} {key}: {value} for {want}");
        }
        let track = got.min_track_record(0.0, confidence);
        match case["min_track_record"].as_f64() {
            Some(want) => {
                assert!((track.value().unwrap() / want - 1.0).abs() < 1e-9, "{name}: {track:?} for {want}");
            }
            None => assert_eq!(track.reason(), Some("the ratio is not above the benchmark")),
        }
    }
}

/// At exactly the minimum length the probabilistic ratio is the confidence it was made for.
#[test]
fn minimum_length_and_probabilistic_ratio_agree() {
    let estimate = SharpeEstimate { ratio: 0.05, n_returns: 100, skewness: -0.4, kurtosis: 6.0 };
    let need = estimate.min_track_record(0.01, 0.95).value().unwrap();
    let at = SharpeEstimate { n_returns: need.ceil() as usize, ..estimate };
    let before = SharpeEstimate { n_returns: need.floor() as usize, ..estimate };
    assert!(at.probabilistic(0.01) >= 0.95 && before.probabilistic(0.01) < 0.95);
}

/// The interval of normal returns holds the truth as often as it says: 2,000 samples of 100, expected 95 %, three
/// standard errors of a share either way.
#[test]
fn the_interval_covers_the_truth() {
    let truth = 0.15;
    let covered = (0..2_000_u32)
        .filter(|&sample| {
            let mut draws = Philox::new(5).stream(Purpose::Bootstrap, sample, 0);
            let returns: Vec<f64> = (0..100).map(|_| truth + draws.next_normal()).collect();
            let Interval { low, high } = SharpeEstimate::of(&returns, 0.0).unwrap().interval(0.95);
            low <= truth && truth <= high
        })
        .count();
    assert!((1_900_f64 - covered as f64).abs() < 3.0 * (2_000.0 * 0.95 * 0.05_f64).sqrt(), "{covered}");
}

/// More trials deflate more; one deflates nothing; an unknown variance is that of worthless ratios.
#[test]
fn trials_deflate() {
    let estimate = SharpeEstimate { ratio: 0.1, n_returns: 500, skewness: 0.0, kurtosis: 3.0 };
    let deflated = |count| estimate.deflated(&Trials { count, variance: None });
    assert_eq!(deflated(1), estimate.probabilistic(0.0));
    assert_eq!(deflated(0), deflated(1));
    let falling = [1, 2, 10, 100, 10_000, u64::MAX].map(deflated);
    assert!(falling.windows(2).all(|pair| pair[1] < pair[0]), "{falling:?}");
    let same = Trials { count: 10, variance: Some(1.0 / 499.0) };
    assert_eq!(estimate.deflated(&same), deflated(10));
    assert_eq!(estimate.deflated(&Trials { count: 10, variance: Some(f64::NAN) }), deflated(10));
}

/// The expected best of N standard normals against N of them drawn 4,000 times; the formula is an approximation that
/// its authors put within a few per cent.
#[test]
fn expected_best_is_near_sampling() {
    for count in [10_u64, 100] {
        let mut sum = 0.0;
        for sample in 0..4_000 {
            let mut draws = Philox::new(8).stream(Purpose::Bootstrap, sample, count);
            sum += (0..count).map(|_| draws.next_normal()).fold(f64::NEG_INFINITY, f64::max);
        }
        let (got, want) = (expected_best_ratio(count, 1.0), sum / 4_000.0);
        assert!((got / want - 1.0).abs() < 0.04, "{count}: {got} for {want}");
    }
    assert_eq!((expected_best_ratio(0, 1.0), expected_best_ratio(1, 1.0)), (0.0, 0.0));
}

/// Cases F20 and F30: what has no law says why, and tiny returns keep their moments.
#[test]
fn too_few_and_constant_returns_are_reasons() {
    let of = |returns: &[f64]| SharpeEstimate::of(returns, 0.0);
    assert_eq!(of(&[0.1, 0.2]), Err(Undefined::TooFewReturns { have: 2, need: 3 }));
    assert_eq!(of(&[0.0; 50]), Err(Undefined::ZeroVariance));
    let returns = [0.01, -0.02, 0.03, 0.015];
    let tiny: Vec<f64> = returns.iter().map(|r| r * 1e-9).collect();
    let (large, small) = (of(&returns).unwrap(), of(&tiny).unwrap());
    assert!((large.kurtosis - small.kurtosis).abs() < 1e-9 && (large.ratio - small.ratio).abs() < 1e-9);
}

/// SciPy's trim_mean, NumPy's percentile, and an interval drawn by NumPy: 20,000 draws each, so the ends agree to a few
/// hundredths of the interval.
#[test]
fn scores_over_seeds_are_those_of_scipy() {
    for case in golden()["iqm"].as_array().unwrap() {
        let scores: Vec<Vec<f64>> = case["scores"].as_array().unwrap().iter().map(numbers).collect();
        let mut all = scores.concat();
        let want = |key: &str| case[key].as_f64().unwrap();
        assert!((interquartile_mean(&all).unwrap() - want("iqm")).abs() < 1e-12);
        all.sort_by(f64::total_cmp);
        assert!((percentile(&all, 0.1).unwrap() - want("p10")).abs() < 1e-12);
        assert!((percentile(&all, 0.75).unwrap() - want("p75")).abs() < 1e-12);
        let got = stratified_interval(&scores, interquartile_mean, 0.95, 20_000, 1).unwrap();
        let width = want("high") - want("low");
        assert!((got.low - want("low")).abs() < 0.05 * width, "{got:?} for {case}");
        assert!((got.high - want("high")).abs() < 0.05 * width, "{got:?} for {case}");
    }
    assert_eq!(interquartile_mean(&[]), None);
    assert_eq!(interquartile_mean(&[1.0, 2.0, 30.0]), Some(11.0), "nothing is cut off three");
    assert_eq!(stratified_interval(&[], interquartile_mean, 0.95, 10, 1), None);
    let one = stratified_interval(&[vec![2.0]], interquartile_mean, 0.95, 10, 1).unwrap();
    assert_eq!((one.low, one.high), (2.0, 2.0));
}

/// Hourly bars from 22:00: the day they begin in, two whole days, and part of a third.
#[test]
fn days_end_at_midnight_utc() {
    const HOUR: i64 = 3_600_000_000_000;
    let time: Vec<i64> = (22..22 + 54).map(|hour| hour * HOUR).collect();
    let equity: Vec<f64> = (0..54).map(|bar| 100.0 + f64::from(bar)).collect();
    let daily = daily_series(&time, &equity);
    // Starts at 100; days end at bars 1, 25, 49 and the last, 53.
    assert_eq!(daily.equity, [100.0, 101.0, 125.0, 149.0, 153.0]);
    let years = 53.0 / (365.25 * 24.0);
    assert!((daily.days_per_year.unwrap() - 4.0 / years).abs() < 1e-9);
    assert_eq!(simple_returns(&daily.equity).unwrap().len(), 4);
}

/// Daily bars are their own days, and what is shorter than a return has none.
#[test]
fn daily_bars_stay_as_they_are() {
    const DAY: i64 = 86_400_000_000_000;
    let time = [0, DAY, 2 * DAY, 5 * DAY];
    let daily = daily_series(&time, &[10.0, 11.0, 12.0, 13.0]);
    assert_eq!(daily.equity, [10.0, 11.0, 12.0, 13.0]);
    assert!((daily.days_per_year.unwrap() - 3.0 / (5.0 / 365.25)).abs() < 1e-9);
    for n in [0, 1] {
        let short = daily_series(&time[..n], &[10.0, 11.0][..n]);
        assert_eq!((short.equity.len(), short.days_per_year), (n, None));
    }
}
