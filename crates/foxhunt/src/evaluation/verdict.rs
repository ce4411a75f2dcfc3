//! Whether a result on held-out bars is more than luck: the ratio with its error, its length, and the number of tries.
//!
//! One net equity series is judged, bar by bar. How many configurations were tried is what the run ledger knows
//! ([`crate::ledger`]). Nothing here looks at bars or chooses what is judged.

use foxhunt_market::bars::YEAR_NS;
use foxhunt_market::ratios::{self, Undefined};
use serde::{Deserialize, Serialize};

use super::Measure;
use crate::ledger::Tried;
use crate::statistics::{SharpeEstimate, daily_series, expected_best_ratio};

/// Confidence of intervals, of the minimum track record and of a verdict.
pub const CONFIDENCE: f64 = 0.95;

/// The verdict on one equity series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was judged, in words.
    pub what: String,
    /// Returns of the series.
    pub n_returns: usize,
    /// Years from its first bar to its last.
    pub years: Measure,
    /// Sharpe ratio, a year.
    pub sharpe: Measure,
    /// Lower end of its 95 % interval; see [`SharpeEstimate::interval`].
    pub sharpe_low: Measure,
    /// Upper end.
    pub sharpe_high: Measure,
    /// Sharpe ratio of daily returns, a year of the days observed.
    pub sharpe_daily: Measure,
    /// Chance that the true ratio is above zero.
    pub psr: Measure,
    /// Chance that the true ratio is above the best of as many worthless ones as were tried.
    pub dsr: Measure,
    /// That best, a year.
    pub luck: Measure,
    /// Configurations tried on these bars, as the ledger knows them.
    pub trials: u64,
    /// Variance of their ratios a bar, as recorded.
    pub trials_variance: Measure,
    /// Years needed to say with 95 % that the ratio is above zero, returns going on as they did.
    pub min_track_record_years: Measure,
    /// Lines of the ledger that could not be read.
    pub unreadable_ledger_lines: u64,
}

impl Verdict {
    /// The verdict on `equity`, one value a bar, with the bars' times in ns UTC and a yearly risk-free rate.
    #[must_use]
    pub fn of(what: &str, equity: &[f64], time: &[i64], risk_free: f64, tried: &Tried) -> Self {
        let years = years(time);
        let per_year = years.map(|years| (time.len() - 1) as f64 / years);
        let estimate = estimate(equity, time, risk_free);
        let a_year = Measure::of_option(per_year, "fewer than 2 bars");
        let from =
            |f: &dyn Fn(&SharpeEstimate) -> f64| Measure::from(estimate.as_ref().map(f).map_err(|e| *e));
        let yearly = |f: &dyn Fn(&SharpeEstimate) -> f64| from(f).zip(&a_year, |ratio, n| ratio * n.sqrt());
        let trials = &tried.trials;
        let track = match &estimate {
            Ok(estimate) => estimate.min_track_record(0.0, CONFIDENCE),
            Err(undefined) => Measure::undefined(undefined.to_string()),
        };
        Self {
            what: what.to_owned(),
            n_returns: equity.len().saturating_sub(1),
            years: Measure::of_option(years, "fewer than 2 bars"),
            sharpe: yearly(&|e| e.ratio),
            sharpe_low: yearly(&|e| e.interval(CONFIDENCE).low),
            sharpe_high: yearly(&|e| e.interval(CONFIDENCE).high),
            sharpe_daily: daily_sharpe(equity, time, risk_free),
            psr: from(&|e| e.probabilistic(0.0)),
            dsr: from(&|e| e.deflated(trials)),
            luck: yearly(&|e| expected_best_ratio(trials.count, trials.variance_for(e.n_returns))),
            trials: trials.count,
            trials_variance: Measure::of_option(trials.variance, "fewer than 2 ratios recorded"),
            min_track_record_years: track.zip(&a_year, |returns, n| returns / n),
            unreadable_ledger_lines: tried.unreadable_lines,
        }
    }

    /// Whether the deflated ratio passes its confidence: more than luck, as far as the ledger knows.
    #[must_use]
    pub fn beyond_luck(&self) -> bool {
        self.dsr.value().is_some_and(|dsr| dsr >= CONFIDENCE)
    }
}

/// The ratio a bar of an equity series with what its sampling law needs.
///
/// # Errors
/// [`Undefined`] as in [`SharpeEstimate::of`], for equity that was not positive, and without bars a year where a
/// risk-free rate is given.
pub fn estimate(equity: &[f64], time: &[i64], risk_free: f64) -> Result<SharpeEstimate, Undefined> {
    let returns = ratios::simple_returns(equity)?;
    let rate = match years(time) {
        _ if risk_free == 0.0 => 0.0,
        Some(years) => ratios::rate_per_bar(risk_free, (time.len() - 1) as f64 / years),
        None => return Err(Undefined::NoBarsPerYear),
    };
    SharpeEstimate::of(&returns, rate)
}

/// Sharpe ratio of the last equity of each UTC day, a year of the days observed.
#[must_use]
pub fn daily_sharpe(equity: &[f64], time: &[i64], risk_free: f64) -> Measure {
    let daily = daily_series(time, equity);
    let ratio = ratios::simple_returns(&daily.equity)
        .and_then(|returns| ratios::sharpe(&returns, daily.days_per_year, risk_free));
    ratio.into()
}

fn years(time: &[i64]) -> Option<f64> {
    let (first, last) = (time.first()?, time.last()?);
    let years = (i128::from(*last) - i128::from(*first)) as f64 / YEAR_NS;
    (years > 0.0).then_some(years)
}

#[cfg(test)]
mod tests {
    use foxhunt_core::{Philox, Purpose};

    use super::*;
    use crate::statistics::Trials;

    const HOUR: i64 = 3_600_000_000_000;

    fn tried(count: u64, variance: Option<f64>) -> Tried {
        Tried { trials: Trials { count, variance }, unreadable_lines: 0 }
    }

    /// A year of hours on a random walk without drift, seed by seed.
    fn walk(seed: u32, drift: f64) -> Vec<f64> {
        let mut draws = Philox::new(77).stream(Purpose::Bootstrap, seed, 0);
        let mut equity = vec![100.0];
        for _ in 0..2_000 {
            equity.push(equity[equity.len() - 1] * (1.0 + drift + 0.002 * draws.next_normal()));
        }
        equity
    }

    fn times() -> Vec<i64> {
        (0..2_001).map(|bar| bar * HOUR).collect()
    }

    /// A thousand strategies without an edge: the best looks sure alone, and is chance once the tries are counted; a
    /// strategy with an edge stays sure beside the same thousand.
    #[test]
    fn the_best_of_a_thousand_worthless_strategies_is_chance() {
        let (times, n) = (times(), 1_000);
        let ratio = |equity: &[f64]| estimate(equity, &times, 0.0).unwrap().ratio;
        let ratios: Vec<f64> = (0..n).map(|seed| ratio(&walk(seed, 0.0))).collect();
        let best = (0..n).max_by(|a, b| ratios[*a as usize].total_cmp(&ratios[*b as usize])).unwrap();
        let mean = ratios.iter().sum::<f64>() / f64::from(n);
        let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / f64::from(n - 1);
        let all = tried(u64::from(n), Some(variance));

        let alone = Verdict::of("best", &walk(best, 0.0), &times, 0.0, &tried(1, None));
        assert!(alone.psr.value().unwrap() > 0.99 && alone.beyond_luck(), "{alone:?}");
        for all in [all, tried(u64::from(n), None)] {
            let counted = Verdict::of("best", &walk(best, 0.0), &times, 0.0, &all);
            assert!(!counted.beyond_luck() && counted.dsr.value().unwrap() < 0.9, "{counted:?}");
            // What luck gives is near what it gave.
            let luck = counted.luck.value().unwrap() / counted.sharpe.value().unwrap();
            assert!((0.8..1.2).contains(&luck), "{luck}");
        }
        let edge = Verdict::of("edge", &walk(5, 0.0004), &times, 0.0, &all);
        assert!(edge.beyond_luck(), "{edge:?}");
    }

    /// Interval, daily ratio and lengths in their units.
    #[test]
    fn figures_are_a_year() {
        let times = times();
        let v = Verdict::of("x", &walk(3, 0.0002), &times, 0.0, &tried(1, None));
        let years = 2_000.0 / (365.25 * 24.0);
        assert!((v.years.value().unwrap() - years).abs() < 1e-12);
        let bar = estimate(&walk(3, 0.0002), &times, 0.0).unwrap();
        let root = (2_000.0 / years).sqrt();
        assert!((v.sharpe.value().unwrap() - bar.ratio * root).abs() < 1e-9);
        let width = v.sharpe_high.value().unwrap() - v.sharpe_low.value().unwrap();
        assert!((width - 2.0 * 1.959_963_984_540_054 * bar.standard_error() * root).abs() < 1e-9);
        // Independent returns: days tell about what hours tell.
        let (daily, hourly) = (v.sharpe_daily.value().unwrap(), v.sharpe.value().unwrap());
        assert!((daily - hourly).abs() < 2.0, "{daily} {hourly}");
        let need = bar.min_track_record(0.0, 0.95).value().unwrap() / (365.25 * 24.0);
        assert!((v.min_track_record_years.value().unwrap() - need).abs() < 1e-9);
        assert_eq!((v.luck.value(), v.dsr.value()), (Some(0.0), v.psr.value()));
        let with_rate = Verdict::of("x", &walk(3, 0.0002), &times, 0.05, &tried(1, None));
        assert!(with_rate.sharpe.value() < v.sharpe.value());
    }

    /// Cases F20, F26 and F30: what has no ratio has reasons everywhere.
    #[test]
    fn nothing_to_judge_is_said_with_reasons() {
        for equity in [vec![100.0; 2_001], vec![100.0], vec![], vec![100.0, -5.0, 3.0, 2.0, 1.0]] {
            let v = Verdict::of("x", &equity, &times()[..equity.len()], 0.0, &tried(3, None));
            for measure in
                [&v.sharpe, &v.sharpe_low, &v.sharpe_daily, &v.psr, &v.dsr, &v.min_track_record_years]
            {
                assert!(measure.value().is_none() && !measure.reason().unwrap().is_empty(), "{v:?}");
            }
            assert!(!v.beyond_luck());
        }
    }
}
