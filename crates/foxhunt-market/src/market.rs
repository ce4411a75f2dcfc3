//! A market ready for environments: bars, normalised features, router inputs and half spreads, all immutable.
//!
//! Preparing is the only place where a file becomes numbers an agent sees. It does not load, split or trade.

use std::ops::Range;

use foxhunt_core::settings::ExecutionSettings;
use foxhunt_core::{Exposure, FactoredAction, OrderRouter};

use crate::features::{N_MARKET_FEATURES, RouterInputs, first_bar, for_column_groups, router_inputs};
use crate::fills::BarContext;
use crate::normaliser::{Normaliser, check_range};
use crate::split::MIN_WINDOW_BARS;
use crate::{BarSeries, MarketError};

/// Where the normaliser of a market comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Normalise {
    /// Fit it on these bars: the training window.
    FitOn(Range<usize>),
    /// Use this one, saved with a model.
    With(Normaliser),
}

/// Everything an environment reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Market {
    /// The bars.
    pub bars: BarSeries,
    /// f32 `[n_bars, 48]`, row-major, normalised, all finite and within +-10.
    pub features: Vec<f32>,
    /// The statistics `features` were normalised with.
    pub normaliser: Normaliser,
    /// f64 `[n_bars]`, price units: half the file's spread, else `half_spread_bps` of the close.
    pub half_spread: Vec<f64>,
    /// f32 `[n_bars]`, price units; see [`RouterInputs`].
    pub spread: Vec<f32>,
    /// f32 `[n_bars]`, price units.
    pub median_spread: Vec<f32>,
    /// f32 `[n_bars]`, log return a bar.
    pub volatility: Vec<f32>,
    /// f32 `[n_bars]`, log return a bar.
    pub median_volatility: Vec<f32>,
    /// First bar at which every look-back is full: no window begins before it.
    pub first_bar: usize,
    /// Smallest price step, price units: the setting, else the file's.
    pub tick_size: f64,
}

impl Market {
    /// Computes everything from checked bars.
    ///
    /// # Errors
    /// [`MarketError::TooFewRows`] when fewer than two bars have full look-backs, and
    /// [`MarketError::InvalidArgument`] for a normaliser or training window that does not fit.
    pub fn prepare(
        bars: BarSeries,
        execution: &ExecutionSettings,
        normalise: Normalise,
    ) -> Result<Self, MarketError> {
        let n_bars = bars.len();
        let first_bar = first_bar(execution);
        let need = first_bar.saturating_add(MIN_WINDOW_BARS);
        if n_bars < need {
            return Err(MarketError::TooFewRows { need, have: n_bars });
        }
        let (mut normaliser, fit_on) = match normalise {
            Normalise::FitOn(range) => {
                check_range(&range, first_bar, n_bars)?;
                (Normaliser::with_names(), Some(range))
            }
            Normalise::With(normaliser) => {
                normaliser.check()?;
                (normaliser, None)
            }
        };

        let mut features = vec![0.0_f32; n_bars * N_MARKET_FEATURES];
        for_column_groups(&bars, |first, columns| {
            if let Some(range) = &fit_on {
                for column in columns {
                    normaliser.push(column[range.clone()].iter().copied());
                }
            }
            for (bar, row) in features.chunks_exact_mut(N_MARKET_FEATURES).enumerate() {
                for (i, column) in columns.iter().enumerate() {
                    row[first + i] = normaliser.apply(first + i, column[bar]);
                }
            }
        });

        let RouterInputs { spread, median_spread, volatility, median_volatility } =
            router_inputs(&bars, execution);
        let half_spread = match &bars.spread {
            Some(spread) => spread.iter().map(|s| 0.5 * s).collect(),
            None => bars.close.iter().map(|c| execution.half_spread_bps * 1e-4 * c).collect(),
        };
        let tick_size = execution.tick_size.unwrap_or(bars.tick_size);
        let highest = bars.high.iter().copied().fold(0.0, f64::max);
        if execution.tick_size.is_some_and(|given| given > highest) {
            return Err(MarketError::TickSize { tick_size, highest });
        }
        Ok(Self {
            bars,
            features,
            normaliser,
            half_spread,
            spread,
            median_spread,
            volatility,
            median_volatility,
            first_bar,
            tick_size,
        })
    }

    /// Number of bars.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bars.len()
    }

    /// Whether there is no bar; never so for a prepared market.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    /// The normalised features of `bar`, f32 `[48]`.
    #[must_use]
    pub fn feature_row(&self, bar: usize) -> &[f32] {
        &self.features[bar * N_MARKET_FEATURES..(bar + 1) * N_MARKET_FEATURES]
    }

    /// Completes an exposure with what the router chooses at `bar`.
    #[must_use]
    pub fn route(&self, bar: usize, exposure: Exposure) -> FactoredAction {
        OrderRouter::route(
            exposure,
            self.spread[bar],
            self.median_spread[bar],
            self.volatility[bar],
            self.median_volatility[bar],
        )
    }

    /// Open, high and low that an order meets in `bar`: NaN, which fills nothing, in a bar that was made to fill a gap.
    #[must_use]
    pub fn fill_prices(&self, bar: usize) -> [f64; 3] {
        let b = &self.bars;
        if b.is_made(bar) { [f64::NAN; 3] } else { [b.open[bar], b.high[bar], b.low[bar]] }
    }

    /// What an order decided at the close of `bar` meets in the bar after it. `impact_rate` is a share of the
    /// close, `half_spread_scale` multiplies the half spread. Volume is infinite when the file has none or when
    /// it does not limit fills. A bar made to fill a gap has no prices to meet (NaN), so nothing fills in it.
    #[must_use]
    pub fn bar_context(
        &self,
        bar: usize,
        half_spread_scale: f64,
        impact_rate: f64,
        limit_to_volume: bool,
    ) -> BarContext {
        let b = &self.bars;
        let next_volume = match &b.volume {
            Some(volume) if limit_to_volume => volume[bar + 1],
            _ => f64::INFINITY,
        };
        let [next_open, next_high, next_low] = self.fill_prices(bar + 1);
        BarContext {
            close: b.close[bar],
            next_open,
            next_high,
            next_low,
            next_volume,
            half_spread: self.half_spread[bar] * half_spread_scale,
            impact: b.close[bar] * impact_rate,
            tick_size: self.tick_size,
        }
    }
}

#[cfg(test)]
mod tests;
