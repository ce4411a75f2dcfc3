//! Seeded markets with a known truth, for tests and demonstrations.
//!
//! Bars are hourly from 2020-01-06 00:00 UTC without weekends, each opening at the close before it, with highs
//! and lows no wider than open and close, no volume and no spread: a market order fills at the close it was
//! decided at, plus costs. Randomness is Philox with [`Purpose::Synthetic`]. Real markets are not imitated.

use foxhunt_core::{Philox, Purpose};

use crate::{BarArrays, BarSeries, MarketError};

const HOUR_NS: i64 = 3_600_000_000_000;
/// 2020-01-06 00:00 UTC, a Monday.
const FIRST_TIME: i64 = 1_578_268_800_000_000_000;
/// Hours from the first bar to the end of i64 nanoseconds, in the year 2262.
const MAX_BARS: usize = ((i64::MAX - FIRST_TIME) / HOUR_NS) as usize;

/// A price that is a martingale: no policy has an expected profit before costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomWalk {
    /// Bars, from 2 to about 2.1 million.
    pub n_bars: usize,
    /// Seed.
    pub seed: u64,
    /// Standard deviation of log returns a bar, > 0.
    pub volatility: f64,
    /// First open, > 0.
    pub start_price: f64,
}

impl RandomWalk {
    /// The bars: log returns are normal with standard deviation `volatility` and mean `-volatility^2 / 2`, so
    /// that the expected simple return is 0.
    ///
    /// # Errors
    /// Any [`MarketError`] of [`BarSeries::from_arrays`] when a parameter is out of range.
    pub fn bars(&self) -> Result<BarSeries, MarketError> {
        let mut normals = Normals::new(self.seed);
        let drift = -0.5 * self.volatility * self.volatility;
        let mut log_price = self.start_price.ln();
        series("random walk", self.n_bars, log_price, |_| {
            log_price += drift + self.volatility * normals.next();
            log_price
        })
    }
}

/// A log price that falls back to its mean: deviation `x(t+1) = phi x(t) + volatility * normal`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanReverting {
    /// Bars, from 2 to about 2.1 million.
    pub n_bars: usize,
    /// Seed.
    pub seed: u64,
    /// Share of the deviation kept a bar, in [0, 1).
    pub phi: f64,
    /// Standard deviation of the noise a bar, > 0.
    pub volatility: f64,
    /// Price at deviation 0, > 0.
    pub mean_price: f64,
}

impl MeanReverting {
    /// The bars. The first deviation is drawn from the stationary law.
    ///
    /// # Errors
    /// Any [`MarketError`] of [`BarSeries::from_arrays`] when a parameter is out of range.
    pub fn bars(&self) -> Result<BarSeries, MarketError> {
        let mut normals = Normals::new(self.seed);
        let base = self.mean_price.ln();
        let mut x = self.stationary_std() * normals.next();
        series("mean reverting", self.n_bars, base + x, |_| {
            x = self.phi * x + self.volatility * normals.next();
            base + x
        })
    }

    /// Standard deviation of the deviation over time, `volatility / sqrt(1 - phi^2)`.
    #[must_use]
    pub fn stationary_std(&self) -> f64 {
        self.volatility / (1.0 - self.phi * self.phi).sqrt()
    }

    /// The deviation of a price, `ln(price / mean_price)`.
    #[must_use]
    pub fn deviation(&self, price: f64) -> f64 {
        (price / self.mean_price).ln()
    }
}

struct Normals(foxhunt_core::PhiloxStream);

impl Normals {
    fn new(seed: u64) -> Self {
        Self(Philox::new(seed).stream(Purpose::Synthetic, 0, 0))
    }

    fn next(&mut self) -> f64 {
        self.0.next_normal()
    }
}

/// Bars whose closes are the exponentials of `next` and whose opens are the closes before.
fn series(
    name: &str,
    n_bars: usize,
    log_start: f64,
    mut next: impl FnMut(usize) -> f64,
) -> Result<BarSeries, MarketError> {
    if n_bars > MAX_BARS {
        let rule = "at most 2,123,639: times end in the year 2262";
        return Err(MarketError::InvalidArgument { what: "n_bars", value: n_bars.to_string(), rule });
    }
    let mut arrays = BarArrays::default();
    let mut open = log_start.exp();
    for t in 0..n_bars {
        let close = next(t).exp();
        arrays.time.push(FIRST_TIME + t as i64 * HOUR_NS);
        arrays.open.push(open);
        arrays.high.push(open.max(close));
        arrays.low.push(open.min(close));
        arrays.close.push(close);
        open = close;
    }
    BarSeries::from_arrays(Some(name.to_string()), arrays)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reverting(seed: u64) -> MeanReverting {
        MeanReverting { n_bars: 20_000, seed, phi: 0.9, volatility: 0.01, mean_price: 100.0 }
    }

    #[test]
    fn bars_open_at_the_close_before_and_are_seeded() {
        let bars = reverting(1).bars().unwrap();
        assert_eq!(bars.len(), 20_000);
        assert_eq!(bars.open[1..], bars.close[..19_999]);
        assert_eq!(bars, reverting(1).bars().unwrap());
        assert_ne!(bars.close, reverting(2).bars().unwrap().close);
        assert_eq!((bars.volume, bars.spread, bars.bar_ns), (None, None, HOUR_NS));
        assert_eq!(crate::bars::time_text(bars.time[0]), "2020-01-06T00:00:00Z");
    }

    /// Regression of x(t+1) on x(t) gives phi, within four standard errors sqrt((1 - phi^2) / n).
    #[test]
    fn deviations_fall_back_at_phi() {
        let market = reverting(3);
        let bars = market.bars().unwrap();
        let x: Vec<f64> = bars.close.iter().map(|c| market.deviation(*c)).collect();
        let (mut xy, mut xx) = (0.0, 0.0);
        for pair in x.windows(2) {
            xy += pair[0] * pair[1];
            xx += pair[0] * pair[0];
        }
        let error = (0.19_f64 / 20_000.0).sqrt();
        assert!((xy / xx - 0.9).abs() < 4.0 * error, "phi {}", xy / xx);
        let std = (xx / 19_999.0).sqrt();
        assert!((std / market.stationary_std() - 1.0).abs() < 0.1, "std {std}");
    }

    /// The mean simple return is 0 within four standard errors, and returns are not correlated.
    #[test]
    fn random_walk_has_no_drift() {
        let walk = RandomWalk { n_bars: 100_000, seed: 5, volatility: 0.01, start_price: 50.0 };
        let bars = walk.bars().unwrap();
        let r = crate::ratios::simple_returns(&bars.close).unwrap();
        let n = r.len() as f64;
        assert!((r.iter().sum::<f64>() / n).abs() < 4.0 * 0.01 / n.sqrt());
        let lagged: f64 = r.windows(2).map(|p| p[0] * p[1]).sum::<f64>() / 1e-4 / n;
        assert!(lagged.abs() < 4.0 / n.sqrt(), "autocorrelation {lagged}");
    }

    #[test]
    fn bad_parameters_are_typed_errors() {
        assert!(RandomWalk { n_bars: 9, seed: 1, volatility: f64::NAN, start_price: 1.0 }.bars().is_err());
        assert!(RandomWalk { n_bars: 9, seed: 1, volatility: 0.1, start_price: -1.0 }.bars().is_err());
        assert!(MeanReverting { phi: 1.5, ..reverting(1) }.bars().is_err());
        assert_eq!(MAX_BARS, 2_123_639);
        assert!(MeanReverting { n_bars: MAX_BARS + 1, ..reverting(1) }.bars().is_err());
    }
}
