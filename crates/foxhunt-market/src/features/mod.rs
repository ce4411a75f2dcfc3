//! The 48 market features and the inputs of the order router, for every bar of a series.
//!
//! All are causal: bar t's values come from bars up to t and have the same bits whatever follows. Features are
//! raw here; [`crate::Normaliser`] scales them. Portfolio inputs belong to the environment.

mod formula;
mod rolling;
mod table;

pub use table::{FEATURES, Feature, LONGEST_LOOK_BACK, N_MARKET_FEATURES, features_markdown};

use foxhunt_core::settings::ExecutionSettings;
use rayon::prelude::*;

use crate::BarSeries;
use formula::Inputs;
use rolling::rolling_median;

/// Width of the state an agent sees: the market features, then exposure, unrealised return, bars in position.
pub const STATE_DIM: usize = N_MARKET_FEATURES + 3;

/// Features before normalisation.
#[derive(Clone, Debug, PartialEq)]
pub struct RawFeatures {
    /// f64 `[n_bars, 48]`, row-major, all finite; 0 before a feature's look-back is full.
    pub values: Vec<f64>,
    /// First bar at which every look-back, the router's included, is full. It may lie beyond the last bar.
    pub first_bar: usize,
}

impl RawFeatures {
    /// Number of bars.
    #[must_use]
    pub fn n_bars(&self) -> usize {
        self.values.len() / N_MARKET_FEATURES
    }

    /// The 48 features of `bar`.
    #[must_use]
    pub fn row(&self, bar: usize) -> &[f64] {
        &self.values[bar * N_MARKET_FEATURES..(bar + 1) * N_MARKET_FEATURES]
    }
}

/// Computes all features of all bars. Takes 384 bytes a bar; [`crate::Market::prepare`] gives the same values
/// without holding them all in f64.
#[must_use]
pub fn raw_features(bars: &BarSeries, execution: &ExecutionSettings) -> RawFeatures {
    let mut values = vec![0.0; bars.len() * N_MARKET_FEATURES];
    for_column_groups(bars, |first, columns| {
        for (bar, row) in values.chunks_exact_mut(N_MARKET_FEATURES).enumerate() {
            for (slot, column) in row[first..].iter_mut().zip(columns) {
                *slot = column[bar];
            }
        }
    });
    RawFeatures { values, first_bar: first_bar(execution) }
}

/// First bar at which every look-back is full: of the features, and of the router's median volatility.
#[must_use]
pub fn first_bar(execution: &ExecutionSettings) -> usize {
    LONGEST_LOOK_BACK
        .max(execution.volatility_window.saturating_add(execution.median_window).saturating_sub(1))
}

/// Calls `with(first feature, columns)` for groups of features, each column f64 `[n_bars]`.
pub(crate) fn for_column_groups(bars: &BarSeries, mut with: impl FnMut(usize, &[Vec<f64>])) {
    const GROUP: usize = 8;
    let inputs = Inputs::new(bars);
    for (group, features) in FEATURES.chunks(GROUP).enumerate() {
        let columns: Vec<Vec<f64>> = features.par_iter().map(|f| inputs.column(f.formula)).collect();
        with(group * GROUP, &columns);
    }
}

/// What [`foxhunt_core::OrderRouter`] compares, each f32 `[n_bars]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterInputs {
    /// Ask - bid at the close, price units; 0 without spread in the file, so that the router says Market.
    pub spread: Vec<f32>,
    /// Median of `spread` over the last `median_window` bars.
    pub median_spread: Vec<f32>,
    /// Population standard deviation of the last `volatility_window` log returns.
    pub volatility: Vec<f32>,
    /// Median of `volatility` over the last `median_window` bars.
    pub median_volatility: Vec<f32>,
}

/// Computes the router's inputs. A median over fewer bars is taken where the series begins.
#[must_use]
pub fn router_inputs(bars: &BarSeries, execution: &ExecutionSettings) -> RouterInputs {
    let volatility: Vec<f32> =
        Inputs::new(bars).volatility(execution.volatility_window).iter().map(|&v| v as f32).collect();
    let (spread, median_spread) = match &bars.spread {
        None => (vec![0.0; bars.len()], vec![0.0; bars.len()]),
        Some(spread) => {
            let spread: Vec<f32> = spread.iter().map(|&s| s as f32).collect();
            let median = rolling_median(&spread, execution.median_window);
            (spread, median)
        }
    };
    let median_volatility = rolling_median(&volatility, execution.median_window);
    RouterInputs { spread, median_spread, volatility, median_volatility }
}

#[cfg(test)]
mod tests;
