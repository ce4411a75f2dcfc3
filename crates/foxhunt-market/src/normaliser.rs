//! Scales features with statistics of the training split alone.
//!
//! The statistics are fitted once, saved with the model and never fitted again on other bars (case F33).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::MarketError;
use crate::features::{FEATURES, N_MARKET_FEATURES, RawFeatures};

/// Normalised features stay within plus and minus this many standard deviations.
pub const NORMALISED_BOUND: f64 = 10.0;

/// Mean and standard deviation of each market feature over the bars it was fitted on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normaliser {
    /// Feature names in table order: a normaliser made for another table is refused.
    pub names: Vec<String>,
    /// Mean a feature.
    pub mean: Vec<f64>,
    /// Population standard deviation a feature; 0 for a feature that does not vary.
    pub std: Vec<f64>,
}

impl Normaliser {
    /// Fits on the rows of `range`.
    ///
    /// # Errors
    /// [`MarketError::InvalidArgument`] when `range` is empty, begins before every look-back is full or ends
    /// after the last bar.
    pub fn fit(raw: &RawFeatures, range: Range<usize>) -> Result<Self, MarketError> {
        check_range(&range, raw.first_bar, raw.n_bars())?;
        let mut fitted = Self::with_names();
        for feature in 0..N_MARKET_FEATURES {
            let values = range.clone().map(|bar| raw.row(bar)[feature]);
            fitted.push(values);
        }
        Ok(fitted)
    }

    pub(crate) fn with_names() -> Self {
        let names = FEATURES.iter().map(|f| f.name.to_string()).collect();
        Self { names, mean: Vec::new(), std: Vec::new() }
    }

    /// Adds the statistics of the next feature.
    pub(crate) fn push(&mut self, values: impl Iterator<Item = f64> + Clone) {
        let (mean, std) = mean_and_population_std(values);
        self.mean.push(mean);
        self.std.push(std);
    }

    /// Checks that this is a normaliser of the feature table as it is now, with usable numbers.
    ///
    /// # Errors
    /// [`MarketError::InvalidArgument`].
    pub fn check(&self) -> Result<(), MarketError> {
        let refuse =
            |value: String, rule| Err(MarketError::InvalidArgument { what: "normaliser", value, rule });
        if !self.names.iter().map(String::as_str).eq(FEATURES.iter().map(|f| f.name)) {
            return refuse(self.names.join(", "), "made for the features of this version");
        }
        if self.mean.len() != N_MARKET_FEATURES || self.std.len() != N_MARKET_FEATURES {
            return refuse(format!("{} means, {} stds", self.mean.len(), self.std.len()), "48 of each");
        }
        for ((name, mean), std) in self.names.iter().zip(&self.mean).zip(&self.std) {
            if !mean.is_finite() || !std.is_finite() || *std < 0.0 {
                return refuse(format!("{name}: {mean}, {std}"), "finite, with std at least 0");
            }
        }
        Ok(())
    }

    /// The normalised value of `feature`: `(value - mean) / std` in f64, clipped to [`NORMALISED_BOUND`], as f32.
    /// A feature with std 0 gives 0.
    #[must_use]
    pub fn apply(&self, feature: usize, value: f64) -> f32 {
        let std = self.std[feature];
        if std > 0.0 {
            ((value - self.mean[feature]) / std).clamp(-NORMALISED_BOUND, NORMALISED_BOUND) as f32
        } else {
            0.0
        }
    }
}

pub(crate) fn check_range(range: &Range<usize>, first_bar: usize, n_bars: usize) -> Result<(), MarketError> {
    if range.start < range.end && range.start >= first_bar && range.end <= n_bars {
        return Ok(());
    }
    Err(MarketError::InvalidArgument {
        what: "training bars",
        value: format!("{range:?} of bars {first_bar}..{n_bars}"),
        rule: "not empty and within the usable bars",
    })
}

/// Two passes, so that a constant is recognised: its std is exactly 0, and so is a std that is rounding noise of
/// the mean.
fn mean_and_population_std(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let std = (values.map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    (mean, if std <= 1e-12 * mean.abs() { 0.0 } else { std })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case F33: training data [1, 2, 3] and test value 100: mean 2, population std 0.8164966, z 120.025, which
    /// is then clipped.
    #[test]
    fn fitted_on_the_training_rows_alone() {
        let mut values = vec![0.0; 4 * N_MARKET_FEATURES];
        for (bar, value) in [1.0, 2.0, 3.0, 100.0].into_iter().enumerate() {
            values[bar * N_MARKET_FEATURES] = value;
            values[bar * N_MARKET_FEATURES + 1] = 0.1;
        }
        let raw = RawFeatures { values, first_bar: 0 };
        let n = Normaliser::fit(&raw, 0..3).unwrap();
        assert_eq!(n.mean[0], 2.0);
        assert!((n.std[0] - 0.816_496_6).abs() < 1e-7);
        assert!(((100.0 - n.mean[0]) / n.std[0] - 120.025).abs() < 1e-3);
        assert_eq!((n.apply(0, 100.0), n.apply(0, -100.0), n.apply(0, 2.0)), (10.0, -10.0, 0.0));
        // A constant gives 0, at its value and away from it.
        assert_eq!((n.std[1], n.apply(1, 0.1), n.apply(1, 5.0)), (0.0, 0.0, 0.0));

        let mut other = raw.clone();
        other.values[3 * N_MARKET_FEATURES] = -5.0;
        assert_eq!(Normaliser::fit(&other, 0..3).unwrap(), n, "test rows do not matter");
        assert!(Normaliser::fit(&raw, 3..3).is_err());
        assert!(Normaliser::fit(&raw, 1..5).is_err());
        assert!(Normaliser::fit(&RawFeatures { first_bar: 1, ..raw }, 0..3).is_err());
    }

    #[test]
    fn survives_serialisation_and_refuses_another_table() {
        let raw = RawFeatures { values: (0..480).map(|v| f64::from(v).sqrt()).collect(), first_bar: 0 };
        let n = Normaliser::fit(&raw, 0..10).unwrap();
        n.check().unwrap();
        let back: Normaliser = serde_json::from_str(&serde_json::to_string(&n).unwrap()).unwrap();
        assert_eq!(back, n);
        let mut foreign = n.clone();
        foreign.names[3] = "other".into();
        assert!(foreign.check().is_err());
        let mut broken = n.clone();
        broken.std[0] = f64::NAN;
        assert!(broken.check().is_err());
        let mut short = n;
        short.mean.pop();
        assert!(short.check().is_err());
    }
}
