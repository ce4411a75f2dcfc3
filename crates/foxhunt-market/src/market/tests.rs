//! A prepared market against its parts, against the future, and against misuse.

use super::*;
use crate::features::{LONGEST_LOOK_BACK, raw_features};
use crate::synthetic::RandomWalk;

fn execution() -> ExecutionSettings {
    ExecutionSettings { volatility_window: 8, median_window: 20, ..ExecutionSettings::default() }
}

fn bars(n_bars: usize) -> BarSeries {
    let mut bars = RandomWalk { n_bars, seed: 3, volatility: 0.01, start_price: 100.0 }.bars().unwrap();
    bars.spread = Some(bars.close.iter().enumerate().map(|(t, c)| 1e-4 * c * (1 + t % 7) as f64).collect());
    bars.volume = Some((0..n_bars).map(|t| 100.0 + (t % 11) as f64).collect());
    bars
}

#[test]
fn equals_raw_features_and_a_fitted_normaliser() {
    let market = Market::prepare(bars(800), &execution(), Normalise::FitOn(256..600)).unwrap();
    let raw = raw_features(&market.bars, &execution());
    let normaliser = Normaliser::fit(&raw, 256..600).unwrap();
    assert_eq!(market.normaliser, normaliser);
    assert_eq!((market.first_bar, market.len()), (256, 800));
    for bar in 0..800 {
        for (i, value) in raw.row(bar).iter().enumerate() {
            assert_eq!(market.feature_row(bar)[i], normaliser.apply(i, *value));
        }
        assert_eq!(market.half_spread[bar], 0.5 * market.bars.spread.as_ref().unwrap()[bar]);
    }
    assert!(market.features.iter().all(|v| v.is_finite() && v.abs() <= 10.0));
    // On the training rows every feature that varies has mean 0 and variance 1, but for clipping.
    for i in 0..N_MARKET_FEATURES {
        let column: Vec<f64> = (256..600).map(|t| f64::from(market.feature_row(t)[i])).collect();
        let mean = column.iter().sum::<f64>() / 344.0;
        let var = column.iter().map(|v| v * v).sum::<f64>() / 344.0;
        assert!(mean.abs() < 0.05, "feature {i}: mean {mean}");
        assert!(normaliser.std[i] == 0.0 || (var - 1.0).abs() < 0.1, "feature {i}: variance {var}");
    }
}

/// Everything a decision at t sees is the same to the bit when every later bar is another. (Case F33: so are the
/// statistics, when no training bar changed.)
#[test]
fn a_decision_sees_nothing_of_later_bars() {
    let base = Market::prepare(bars(800), &execution(), Normalise::FitOn(256..500)).unwrap();
    for t in [500, 650, 798] {
        let mut other = bars(800);
        for bar in t + 1..800 {
            for prices in [&mut other.open, &mut other.high, &mut other.low, &mut other.close] {
                prices[bar] *= 3.0;
            }
            other.volume.as_mut().unwrap()[bar] = 9.0;
            other.spread.as_mut().unwrap()[bar] = 1.0;
        }
        let other = Market::prepare(other, &execution(), Normalise::FitOn(256..500)).unwrap();
        assert_eq!(base.normaliser, other.normaliser);
        let bits = |m: &Market| {
            let row: Vec<u32> =
                m.features[..(t + 1) * N_MARKET_FEATURES].iter().map(|v| v.to_bits()).collect();
            let router = [&m.spread, &m.median_spread, &m.volatility, &m.median_volatility]
                .map(|v| v[..=t].iter().map(|x| x.to_bits()).collect::<Vec<u32>>());
            let half: Vec<u64> = m.half_spread[..=t].iter().map(|v| v.to_bits()).collect();
            (row, router, half)
        };
        assert_eq!(bits(&base), bits(&other));
        assert_ne!(base.feature_row(t + 1), other.feature_row(t + 1));
    }
}

#[test]
fn a_saved_normaliser_gives_the_same_features() {
    let base = Market::prepare(bars(800), &execution(), Normalise::FitOn(256..600)).unwrap();
    let again = Market::prepare(bars(800), &execution(), Normalise::With(base.normaliser.clone())).unwrap();
    assert_eq!(base, again);
}

#[test]
fn what_does_not_fit_is_refused() {
    let need = LONGEST_LOOK_BACK + 2;
    let refused = |n, fit| Market::prepare(bars(n), &execution(), Normalise::FitOn(fit)).unwrap_err();
    assert!(matches!(refused(need - 1, 0..1), MarketError::TooFewRows { need: 258, have: 257 }));
    assert!(Market::prepare(bars(need), &execution(), Normalise::FitOn(256..258)).is_ok());
    for fit in [255..300, 300..300, 300..401] {
        assert!(matches!(refused(400, fit), MarketError::InvalidArgument { .. }));
    }
    let mut foreign =
        Market::prepare(bars(400), &execution(), Normalise::FitOn(256..400)).unwrap().normaliser;
    foreign.names.pop();
    assert!(Market::prepare(bars(400), &execution(), Normalise::With(foreign)).is_err());
}

/// Settings decide the half spread without a file's spread, the tick, and whether volume limits a fill.
#[test]
fn costs_come_from_file_or_settings() {
    let settings = ExecutionSettings { half_spread_bps: 3.0, tick_size: Some(0.5), ..execution() };
    let mut plain = bars(400);
    plain.spread = None;
    let market = Market::prepare(plain, &settings, Normalise::FitOn(256..400)).unwrap();
    assert_eq!(market.half_spread[7], 3.0 * 1e-4 * market.bars.close[7]);
    assert_eq!((market.spread[399], market.median_spread[399], market.tick_size), (0.0, 0.0, 0.5));
    assert_eq!(market.route(399, Exposure::Long).order_type, foxhunt_core::OrderType::Market);

    let market = Market::prepare(bars(400), &execution(), Normalise::FitOn(256..400)).unwrap();
    assert_eq!(market.tick_size, market.bars.tick_size);
    let context = market.bar_context(300, 2.0, 0.01, true);
    assert_eq!(context.close, market.bars.close[300]);
    assert_eq!(context.next_open, market.bars.open[301]);
    assert_eq!((context.next_high, context.next_low), (market.bars.high[301], market.bars.low[301]));
    assert_eq!(context.next_volume, market.bars.volume.as_ref().unwrap()[301]);
    assert_eq!(context.half_spread, market.half_spread[300] * 2.0);
    assert_eq!(context.impact, market.bars.close[300] * 0.01);
    assert_eq!(market.bar_context(300, 1.0, 0.0, false).next_volume, f64::INFINITY);
}

/// Nobody traded in a bar that was made to fill a gap: no order of any kind fills in it, whatever its quantity, and the
/// next real bar fills as before.
#[test]
fn nothing_fills_in_a_made_bar() {
    use foxhunt_core::{OrderType, Urgency};
    let mut bars = bars(300);
    let real = Market::prepare(bars.clone(), &execution(), Normalise::FitOn(256..290)).unwrap();
    let made = 280;
    bars.made = (0..300).map(|t| t == made).collect();
    let market = Market::prepare(bars, &execution(), Normalise::FitOn(256..290)).unwrap();
    assert_eq!(market.features, real.features, "it is seen like any other");
    let fees = crate::FeeRates { taker: 1e-4, maker: 0.0 };
    let mut fills_before = 0;
    for bar in [made - 2, made - 1, made] {
        for (order_type, urgency) in OrderType::ALL.into_iter().flat_map(|o| Urgency::ALL.map(|u| (o, u))) {
            for (limited, quantity) in [(false, 3.0), (true, 3.0), (false, -3.0), (true, -3.0)] {
                let order = crate::Order { quantity, order_type, urgency };
                let fill = |market: &Market| {
                    crate::fill(&order, &market.bar_context(bar, 1.0, 1e-5, limited), &fees)
                };
                if bar + 1 == made {
                    fills_before += u32::from(fill(&real).is_some());
                    assert_eq!(fill(&market), None, "{order:?}");
                } else {
                    assert_eq!(fill(&market), fill(&real), "{order:?}");
                }
            }
        }
    }
    assert!(fills_before > 12, "{fills_before}");
}

/// A price step as large as a price is a slip of the pen: nothing that rests could fill.
#[test]
fn a_tick_size_that_no_price_reaches_is_refused() {
    let highest = bars(800).high.into_iter().fold(0.0, f64::max);
    let prepare = |tick_size| {
        let execution = ExecutionSettings { tick_size: Some(tick_size), ..execution() };
        Market::prepare(bars(800), &execution, Normalise::FitOn(256..600))
    };
    assert_eq!(prepare(0.5 * highest).unwrap().tick_size, 0.5 * highest);
    for tick in [1.001 * highest, 1e300] {
        let error = prepare(tick).unwrap_err();
        assert!(matches!(error, MarketError::TickSize { tick_size, .. } if tick_size == tick), "{error}");
    }
}

/// Windows longer than any series are too few rows, also where their sum is no number.
#[test]
fn endless_windows_are_too_few_rows() {
    for (volatility_window, median_window) in [(usize::MAX, 2), (2, usize::MAX), (usize::MAX, usize::MAX)] {
        let execution = ExecutionSettings { volatility_window, median_window, ..execution() };
        match Market::prepare(bars(300), &execution, Normalise::FitOn(256..300)) {
            Err(MarketError::TooFewRows { need, have: 300 }) => assert_eq!(need, usize::MAX),
            other => panic!("{:?}", other.map(|market| market.first_bar)),
        }
    }
}
