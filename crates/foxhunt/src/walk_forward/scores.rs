//! Interquartile means and intervals over folds and seeds.

use serde::{Deserialize, Serialize};

use super::FoldResult;
use crate::evaluation::{CONFIDENCE, Measure, Metrics};
use crate::statistics::{interquartile_mean, stratified_interval};

/// Resamples of a bootstrap interval.
const RESAMPLES: u32 = 2_000;

/// One figure of the test windows over folds and seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Key of the figure in the report.
    pub key: String,
    /// Runs that have the figure.
    pub n: usize,
    /// Interquartile mean over all of them.
    pub iqm: Measure,
    /// Lower end of its 95 % bootstrap interval, seeds resampled within each fold.
    pub low: Measure,
    /// Upper end.
    pub high: Measure,
    /// Mean.
    pub mean: Measure,
    /// Smallest.
    pub min: Measure,
    /// Largest.
    pub max: Measure,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Net return, Sharpe ratio, drawdown and turnover of a fold.
    pub figures: Vec<Score>,
    /// Runs whose test window ended with a profit after costs.
    pub profitable: usize,
    /// Runs in all.
    pub runs: usize,
}

type Get = fn(&Metrics) -> Measure;

const FIGURES: [(&str, Get); 4] = [
    ("net_return", |m| m.net_return.clone()),
    ("sharpe", |m| m.sharpe.clone()),
    ("max_drawdown", |m| m.max_drawdown.clone()),
    ("turnover", |m| Measure::of(m.turnover)),
];

impl Scores {
    /// From results with folds first and `seeds` results a fold.
    #[must_use]
    pub fn of(results: &[FoldResult], seeds: usize, seed: u64) -> Self {
        let figures = FIGURES.into_iter().map(|(key, get)| score(key, get, results, seeds, seed)).collect();
        let profitable = results.iter().filter(|r| r.test.final_equity > r.test.start_equity).count();
        Self { figures, profitable, runs: results.len() }
    }
}

fn score(key: &str, get: Get, results: &[FoldResult], seeds: usize, seed: u64) -> Score {
    let measures: Vec<Measure> = results.iter().map(|result| get(&result.test)).collect();
    let folds: Vec<Vec<f64>> =
        measures.chunks(seeds.max(1)).map(|fold| fold.iter().filter_map(Measure::value).collect()).collect();
    let all = folds.concat();
    let why = measures.iter().find_map(Measure::reason).unwrap_or("no runs");
    let interval = if seeds < 2 {
        Err("one seed has no spread")
    } else {
        stratified_interval(&folds, interquartile_mean, CONFIDENCE, RESAMPLES, seed).ok_or(why)
    };
    let end = |get: fn(crate::statistics::Interval) -> f64| match interval {
        Ok(interval) => Measure::of(get(interval)),
        Err(reason) => Measure::undefined(reason),
    };
    let extreme = |pick: fn(f64, f64) -> f64| Measure::of_option(all.iter().copied().reduce(pick), why);
    Score {
        key: key.to_owned(),
        n: all.len(),
        iqm: Measure::of_option(interquartile_mean(&all), why),
        low: end(|i| i.low),
        high: end(|i| i.high),
        mean: Measure::of_option((!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64), why),
        min: extreme(f64::min),
        max: extreme(f64::max),
    }
}
