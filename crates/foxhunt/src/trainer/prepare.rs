//! From bars to what a run trains and is judged on.

use std::sync::Arc;

use foxhunt_core::Settings;
use foxhunt_market::features::first_bar;
use foxhunt_market::{BarSeries, Market, Normalise, Normaliser, Split};
use foxhunt_ops::env_step::EnvParams;

use crate::MLError;
use crate::evaluation::{Evaluation, evaluate_windows};
use crate::policy::Policy;

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
        let market = Market::prepare(bars, &settings.execution, normalise)?;
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

/// Judges `policy` on all three windows.
pub(super) fn evaluate(
    settings: &Settings,
    prepared: &Prepared,
    policy: &mut Policy,
) -> Result<Evaluation, MLError> {
    let Prepared { market, split, .. } = prepared;
    let windows = [
        ("train", split.train.clone()),
        ("validation", split.validation.clone()),
        ("test", split.test.clone()),
    ];
    evaluate_windows(
        market,
        &windows,
        &EnvParams::new(settings),
        &settings.evaluation,
        settings.run.seed,
        &mut |state, bar| policy.act(market, state, bar),
    )
}
