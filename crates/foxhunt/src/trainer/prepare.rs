//! From bars to what a run trains and is judged on.

use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_core::settings::ExecutionSettings;
use foxhunt_market::features::first_bar;
use foxhunt_market::{BarSeries, Market, Normalise, Normaliser, Split};
use foxhunt_ops::env_step::EnvParams;

use super::{EvaluationReport, StopSignal};
use crate::MLError;
use crate::evaluation::{Evaluation, decisions, evaluate_windows};
use crate::policy::Policy;

/// What the window that is looked at once, at the end, is called.
pub(super) const TEST: &str = "test";

/// A market and how it is divided.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Bars and normalised features.
    pub market: Arc<Market>,
    /// Training, validation and test windows.
    pub split: Split,
    /// Hash of the bars.
    pub data_hash: String,
}

impl Prepared {
    /// Divides `bars` and fits the normaliser on the training window alone (case F33).
    ///
    /// # Errors
    /// [`MLError::Market`] when there are too few bars.
    pub fn fit(bars: BarSeries, settings: &Settings) -> Result<Self, MLError> {
        Self::prepare(bars, settings, None)
    }

    /// Divides `bars` and scales features with a normaliser that was fitted before.
    ///
    /// # Errors
    /// [`MLError::Market`] when there are too few bars, or the normaliser was made for other features.
    pub fn with_normaliser(
        bars: BarSeries,
        settings: &Settings,
        normaliser: Normaliser,
    ) -> Result<Self, MLError> {
        Self::prepare(bars, settings, Some(normaliser))
    }

    fn prepare(
        bars: BarSeries,
        settings: &Settings,
        normaliser: Option<Normaliser>,
    ) -> Result<Self, MLError> {
        let data_hash = bars.data_hash();
        let split = Split::new(bars.len(), first_bar(&settings.execution), &settings.split)?;
        let normalise = match normaliser {
            Some(normaliser) => Normalise::With(normaliser),
            None => Normalise::FitOn(split.train.clone()),
        };
        // Read off what training sees, as the normaliser is: later bars must not decide which orders fill.
        let tick_size = settings.execution.tick_size.unwrap_or_else(|| bars.tick_size_of(0..split.train.end));
        let execution = ExecutionSettings { tick_size: Some(tick_size), ..settings.execution.clone() };
        let market = Market::prepare(bars, &execution, normalise)?;
        Ok(Self { market: Arc::new(market), split, data_hash })
    }
}

/// Vector steps before the first epoch: what `training.warmup_env_steps` asks for, and at least what fills one
/// batch. A row leaves the n-step accumulator `n_step - 1` steps after it began.
#[must_use]
pub fn warm_up_steps(settings: &Settings) -> u64 {
    let n_envs = settings.env.n_envs as u64;
    let asked = settings.training.warmup_env_steps.div_ceil(n_envs);
    let batch = (settings.learner.batch as u64).div_ceil(n_envs) + settings.learner.n_step as u64 - 1;
    asked.max(batch)
}

/// Judges `policy` on all three windows; `told` hears of every decision.
pub(super) fn evaluate(
    settings: &Settings,
    prepared: &Prepared,
    policy: &mut Policy,
    stop: &dyn StopSignal,
    told: &mut dyn FnMut(&EvaluationReport),
) -> Result<Evaluation, MLError> {
    let Prepared { market, split, .. } = prepared;
    let windows = [
        ("train", split.train.clone()),
        ("validation", split.validation.clone()),
        (TEST, split.test.clone()),
    ];
    let of = decisions(windows.iter().map(|(_, bars)| bars));
    let mut report = EvaluationReport { decisions: 0, of };
    evaluate_windows(
        market,
        &windows,
        &EnvParams::new(settings),
        &settings.evaluation,
        settings.run.seed,
        stop,
        &mut |state, bar| {
            let decision = policy.act(market, state, bar);
            report.decisions += 1;
            told(&report);
            decision
        },
    )
}

#[cfg(test)]
mod tests {
    use foxhunt_market::BarArrays;

    use super::*;

    /// Quarters up to bar `fine`, then cents.
    fn bars(fine: usize) -> BarSeries {
        let step = |t: usize| if t < fine { 0.25 } else { 0.01 };
        let close: Vec<f64> = (0..1000).map(|t| 100.0 + (t * 7 % 11) as f64 * step(t)).collect();
        let arrays = BarArrays {
            time: (0..1000).map(|t| t * 3_600_000_000_000).collect(),
            open: close.clone(),
            high: close.iter().map(|c| c + 1.0).collect(),
            low: close.iter().map(|c| c - 1.0).collect(),
            close,
            ..BarArrays::default()
        };
        BarSeries::from_arrays(None, arrays).unwrap()
    }

    /// Bars behind the training window move nothing that fills are decided by, fresh or resumed.
    #[test]
    fn tick_size_comes_from_the_bars_trained_on() {
        let mut settings = Settings::default();
        let end = Prepared::fit(bars(1000), &settings).unwrap().split.train.end;
        assert_eq!(bars(end).tick_size, 0.01, "the whole file has the finer grid");
        let fresh = Prepared::fit(bars(end), &settings).unwrap();
        assert_eq!(fresh.market.tick_size, 0.25);
        let normaliser = fresh.market.normaliser.clone();
        let resumed = Prepared::with_normaliser(bars(end), &settings, normaliser).unwrap();
        assert_eq!(resumed.market.tick_size, 0.25);
        assert_eq!(Prepared::fit(bars(end - 1), &settings).unwrap().market.tick_size, 0.01);
        settings.execution.tick_size = Some(0.5);
        assert_eq!(Prepared::fit(bars(end), &settings).unwrap().market.tick_size, 0.5);
    }
}
