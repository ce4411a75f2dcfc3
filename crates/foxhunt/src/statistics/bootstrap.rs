//! Scores of several seeds on several folds: the interquartile mean and its bootstrap interval.
//!
//! As in Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice" (2021), and its library
//! rliable: all scores are pooled, a quarter is cut off each end, and the interval comes from resampling seeds with
//! replacement within each fold, percentiles taken as they fall.

use foxhunt_core::philox::below;
use foxhunt_core::{Philox, Purpose};
use serde::{Deserialize, Serialize};

/// A range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The mean of what is left after cutting `floor(n / 4)` values off each end (`scipy.stats.trim_mean(x, 0.25)`). None of
/// no values.
#[must_use]
pub fn interquartile_mean(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 4;
    let kept = &sorted[cut..sorted.len() - cut];
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// The `share`-quantile of ascending values, linear between neighbours (NumPy's default). None of no values.
#[must_use]
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

/// The percentile interval of `confidence` of a statistic of `scores`, resampled within each stratum: `scores[fold]`
/// holds one score a seed. `statistic` sees one pooled sample. Resample i draws the words of (seed, bootstrap, i), so
/// the interval is the same on every machine.
///
/// None without scores, or where the statistic is not defined.
pub fn stratified_interval(
    scores: &[Vec<f64>],
    statistic: impl Fn(&[f64]) -> Option<f64>,
    confidence: f64,
    resamples: u32,
    seed: u64,
) -> Option<Interval> {
    let philox = Philox::new(seed);
    let mut pooled = Vec::with_capacity(scores.iter().map(Vec::len).sum());
    let mut drawn = Vec::with_capacity(resamples as usize);
    for resample in 0..resamples {
        let mut words = philox.stream(Purpose::Bootstrap, resample, 0);
        pooled.clear();
        for stratum in scores {
            let n = u32::try_from(stratum.len()).unwrap_or(u32::MAX);
            pooled.extend((0..n).map(|_| stratum[below(words.next_u32(), n) as usize]));
        }
        drawn.push(statistic(&pooled)?);
    }
    drawn.sort_by(f64::total_cmp);
    let tail = 0.5 - 0.5 * confidence;
    Some(Interval { low: percentile(&drawn, tail)?, high: percentile(&drawn, 1.0 - tail)? })
}
