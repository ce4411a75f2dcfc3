//! Features against definitions, an independent library, the future and extreme bars.

use std::fs;
use std::path::{Path, PathBuf};

use foxhunt_core::settings::ExecutionSettings;
use proptest::prelude::*;

use super::*;
use crate::{BarArrays, BarSeries};

/// Bars made from four streams of random numbers: moves, shapes, volumes and spreads.
fn bars(n_bars: usize, seed: u64, price: f64, volatility: f64) -> BarSeries {
    use foxhunt_core::{Philox, Purpose};
    let mut random = Philox::new(seed).stream(Purpose::Synthetic, 9, 0);
    let mut arrays = BarArrays { volume: Some(vec![]), spread: Some(vec![]), ..BarArrays::default() };
    let mut last = price.ln();
    for t in 0..n_bars {
        let open = last + 0.3 * volatility * random.next_normal();
        let close = open + volatility * random.next_normal();
        let price = |log: f64| log.exp().clamp(f64::MIN_POSITIVE, f64::MAX);
        let (open, close_price) = (price(open), price(close));
        arrays.time.push(1_500_000_000_000_000_000 + t as i64 * 900_000_000_000);
        arrays.high.push(
            price(open.max(close_price).ln() + volatility * random.next_f64()).max(open).max(close_price),
        );
        arrays.low.push(
            price(open.min(close_price).ln() - volatility * random.next_f64()).min(open).min(close_price),
        );
        arrays.open.push(open);
        arrays.close.push(close_price);
        let volume = random.next_f64();
        arrays.volume.as_mut().unwrap().push(if volume < 0.1 { 0.0 } else { 1e6 * volume });
        arrays.spread.as_mut().unwrap().push(1e-3 * random.next_f64() * close_price);
        last = close;
    }
    BarSeries::from_arrays(None, arrays).unwrap()
}

fn index(name: &str) -> usize {
    FEATURES.iter().position(|f| f.name == name).unwrap()
}

#[test]
fn names_are_unique_and_look_backs_stated() {
    let mut names: Vec<&str> = FEATURES.iter().map(|f| f.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 48);
    assert_eq!((STATE_DIM, LONGEST_LOOK_BACK), (51, 256));
    assert_eq!(first_bar(&ExecutionSettings::default()), 287);
}

/// The document is the table: `FOXHUNT_BLESS=1` writes it anew.
#[test]
fn features_md_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/features.md");
    if std::env::var_os("FOXHUNT_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, features_markdown()).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == features_markdown(), "docs/features.md is out of date: run with FOXHUNT_BLESS=1");
}

/// Everything a decision at bar t sees, as bits.
fn seen(bars: &BarSeries, t: usize) -> Vec<u64> {
    let x = ExecutionSettings { volatility_window: 8, median_window: 20, ..ExecutionSettings::default() };
    let raw = raw_features(bars, &x);
    let r = router_inputs(bars, &x);
    let router = [r.spread[t], r.median_spread[t], r.volatility[t], r.median_volatility[t]];
    let mut bits: Vec<u64> = raw.row(t).iter().map(|v| v.to_bits()).collect();
    bits.extend(router.map(|v| u64::from(v.to_bits())));
    bits
}

/// Replaces every bar of `range` by an unrelated one.
fn disturb(bars: &mut BarSeries, range: std::ops::Range<usize>) {
    for t in range {
        let factor = 1.5 + (t % 5) as f64;
        bars.open[t] *= factor;
        bars.close[t] *= factor * 0.9;
        bars.high[t] *= factor * 3.0;
        bars.low[t] *= 0.2;
        bars.volume.as_mut().unwrap()[t] += 1e7;
        bars.spread.as_mut().unwrap()[t] *= 4.0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// No bar after t, changed or cut off, changes one bit of what is seen at t.
    #[test]
    fn nothing_is_seen_of_the_future(seed in 0u64..1000, t in 0usize..599) {
        let whole = bars(600, seed, 100.0, 0.01);
        let at_t = seen(&whole, t);
        let mut disturbed = whole.clone();
        disturb(&mut disturbed, t + 1..600);
        prop_assert_eq!(&seen(&disturbed, t), &at_t);
        let mut cut = whole;
        for array in [&mut cut.open, &mut cut.high, &mut cut.low, &mut cut.close] {
            array.truncate(t + 1);
        }
        cut.time.truncate(t + 1);
        cut.volume.as_mut().unwrap().truncate(t + 1);
        cut.spread.as_mut().unwrap().truncate(t + 1);
        prop_assert_eq!(&seen(&cut, t), &at_t);
    }

    /// Bars before the stated look-back do not matter: not at all where the memory is finite, little where it
    /// fades. And the look-back is not overstated: its first bar matters, except where it only sets a start.
    #[test]
    fn look_backs_are_what_they_say(seed in 0u64..1000) {
        let t = 599;
        let whole = bars(600, seed, 100.0, 0.01);
        let x = ExecutionSettings::default();
        let base = raw_features(&whole, &x);
        for (i, feature) in FEATURES.iter().enumerate() {
            let mut disturbed = whole.clone();
            disturb(&mut disturbed, t - feature.look_back - 1..t - feature.look_back);
            let changed = raw_features(&disturbed, &x).row(t)[i];
            let (want, scale) = (base.row(t)[i], if feature.name == "rsi_14" { 1.0 } else { 0.05 });
            if feature.recursive {
                prop_assert!((changed - want).abs() < 0.3 * scale, "{}: {changed} against {want}", feature.name);
            } else {
                prop_assert_eq!(changed.to_bits(), want.to_bits(), "{}", feature.name);
            }
        }
    }
}

/// A feature at its first defined bar is not the zero it was before.
#[test]
fn features_begin_at_their_look_back() {
    let whole = bars(600, 3, 100.0, 0.01);
    let raw = raw_features(&whole, &ExecutionSettings::default());
    for (i, f) in FEATURES.iter().enumerate() {
        assert!(raw.row(f.look_back)[i] != 0.0, "{} is 0 at bar {}", f.name, f.look_back);
        if !f.recursive && f.look_back > 0 {
            assert_eq!(raw.row(f.look_back - 1)[i], 0.0, "{} before its look-back", f.name);
        }
    }
}

/// Case F30: flat bars without volume, five of them and many, give finite features; every one that measures a
/// move, a range or a volume is 0.
#[test]
fn flat_bars_without_volume_are_finite() {
    for n_bars in [5, 700] {
        let price = vec![51.06; n_bars];
        let arrays = BarArrays {
            time: (0..n_bars as i64).map(|t| t * 3_600_000_000_000).collect(),
            open: price.clone(),
            high: price.clone(),
            low: price.clone(),
            close: price.clone(),
            volume: Some(vec![0.0; n_bars]),
            spread: Some(vec![0.0; n_bars]),
        };
        let flat = BarSeries::from_arrays(None, arrays).unwrap();
        let raw = raw_features(&flat, &ExecutionSettings::default());
        for bar in 0..n_bars {
            assert_eq!(raw.row(bar)[..44], [0.0; 44], "bar {bar}");
            assert!(raw.row(bar).iter().all(|v| v.is_finite()));
        }
        let router = router_inputs(&flat, &ExecutionSettings::default());
        assert_eq!(router.median_volatility[n_bars - 1], 0.0);
    }
}

/// Bars at the edge of f64, jumps over the whole range, and flat stretches inside movement.
#[test]
fn extreme_bars_are_finite() {
    for (price, volatility) in [(1e-300, 5.0), (1e300, 2.0), (1e9, 1e-9), (1.0, 60.0)] {
        let mut extreme = bars(900, 4, price, volatility);
        for t in 300..500 {
            for array in [&mut extreme.open, &mut extreme.high, &mut extreme.low, &mut extreme.close] {
                array[t] = price;
            }
            extreme.volume.as_mut().unwrap()[t] = if t % 2 == 0 { 0.0 } else { f64::MAX };
        }
        let raw = raw_features(&extreme, &ExecutionSettings::default());
        assert!(raw.values.iter().all(|v| v.is_finite()), "price {price}");
        // Inside the flat stretch a short window is flat to the bit, whatever came before it.
        assert_eq!(raw.row(350)[index("z_32")], 0.0);
        assert_eq!(raw.row(350)[index("volatility_32")], 0.0);
    }
}

/// At a price of 1e9 moving by parts in 1e9 the z-score is still right: no cancellation.
#[test]
fn large_prices_keep_their_digits() {
    let whole = bars(600, 5, 1e9, 1e-7);
    let raw = raw_features(&whole, &ExecutionSettings::default());
    for t in [300, 450, 599] {
        let w: Vec<f64> = whole.close[t - 63..=t].iter().map(|c| (c - 1e9) / 1e9).collect();
        let mean = w.iter().sum::<f64>() / 64.0;
        let std = (w.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 64.0).sqrt();
        let got = raw.row(t)[index("z_64")];
        assert!((got - (w[63] - mean) / std).abs() < 1e-5, "{got} against {}", (w[63] - mean) / std);
    }
}

/// Without volume and spread the features that need them are 0, and the router sees no spread.
#[test]
fn missing_columns_give_zeros() {
    let mut plain = bars(400, 6, 100.0, 0.01);
    plain.volume = None;
    plain.spread = None;
    let raw = raw_features(&plain, &ExecutionSettings::default());
    for name in ["volume_z_32", "flow_32", "spread", "spread_z_64"] {
        assert!((0..400).all(|t| raw.row(t)[index(name)] == 0.0), "{name}");
    }
    let router = router_inputs(&plain, &ExecutionSettings::default());
    assert!(router.spread.iter().chain(&router.median_spread).all(|s| *s == 0.0));
}

/// Values of NumPy, pandas and TA-Lib on the EUR/USD sample; made by `tests/golden/features.py`.
#[test]
fn equal_to_an_independent_library() {
    #[derive(serde::Deserialize)]
    struct Golden {
        rows: Vec<usize>,
        bars: BarColumns,
        features: std::collections::BTreeMap<String, Vec<f64>>,
        router: std::collections::BTreeMap<String, Vec<f64>>,
    }
    #[derive(serde::Deserialize)]
    struct BarColumns {
        time: Vec<i64>,
        open: Vec<f64>,
        high: Vec<f64>,
        low: Vec<f64>,
        close: Vec<f64>,
        volume: Vec<f64>,
        spread: Vec<f64>,
    }
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/features.json");
    let golden: Golden = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let b = golden.bars;
    let arrays = BarArrays {
        time: b.time,
        open: b.open,
        high: b.high,
        low: b.low,
        close: b.close,
        volume: Some(b.volume),
        spread: Some(b.spread),
    };
    let sample = BarSeries::from_arrays(None, arrays).unwrap();
    let execution = ExecutionSettings::default();
    let raw = raw_features(&sample, &execution);
    assert_eq!(golden.features.len(), N_MARKET_FEATURES, "every feature is checked");
    for (name, values) in &golden.features {
        let i = index(name);
        for (row, want) in golden.rows.iter().zip(values) {
            let got = raw.row(*row)[i];
            // Recursive averages start differently in TA-Lib; at the rows chosen that has faded to below 1e-9.
            let tolerance = 1e-9 * (1.0 + want.abs());
            assert!((got - want).abs() <= tolerance, "{name} at bar {row}: {got}, not {want}");
        }
    }
    let r = router_inputs(&sample, &execution);
    for (name, got) in [
        ("spread", &r.spread),
        ("median_spread", &r.median_spread),
        ("volatility", &r.volatility),
        ("median_volatility", &r.median_volatility),
    ] {
        for (row, want) in golden.rows.iter().zip(&golden.router[name]) {
            let got = f64::from(got[*row]);
            // A few f32 roundings.
            assert!((got - want).abs() <= 3e-7 * want.abs(), "{name} at bar {row}: {got}, not {want}");
        }
    }
}
