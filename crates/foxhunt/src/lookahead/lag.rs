//! Decisions against the bar after them, and against the bar after that.
//!
//! What an honest policy knows fades over bars; what was read off the next bar is gone when it comes a bar late. An edge
//! is called impossible when the correlation of target exposure with the next bar's return is above 0.3 (a Sharpe
//! ratio of more than 20 a year on hourly bars), six standard errors from zero, and at least twice that of the bar
//! after. A weaker leak than that is for the comparison of futures to find.

use foxhunt_core::FactoredAction;
use foxhunt_market::BarSeries;

use super::compare::Findings;
use super::way::{Walker, Way};
use super::{Check, LagFigures, Leak, Stage};
use crate::MLError;
use crate::trainer::StopSignal;

/// Decisions looked at, at the most.
const DECISIONS: usize = 5_000;
const IMPOSSIBLE: f64 = 0.3;
const STANDARD_ERRORS: f64 = 6.0;

pub(super) fn check(
    way: &mut Way<'_>,
    bars: &BarSeries,
    stop: &dyn StopSignal,
    findings: &mut Findings,
) -> Result<Option<LagFigures>, MLError> {
    let seen = way.see(bars.clone())?;
    let first = seen.market.first_bar.max(bars.len().saturating_sub(DECISIONS));
    let walk = way.walk(&seen, first..bars.len(), Walker::Network, stop)?;
    // The last decision has no second bar after it.
    let n = walk.backtest.actions.len().saturating_sub(1);
    let exposure: Vec<f64> = walk.backtest.actions[..n]
        .iter()
        .map(|action| Ok(FactoredAction::from_index(u32::from(*action))?.exposure.fraction()))
        .collect::<Result<_, MLError>>()?;
    let earned = |late: usize| -> Vec<f64> {
        (first..first + n).map(|bar| bar + 1 + late).map(|b| (bars.close[b] / bars.open[b]).ln()).collect()
    };
    findings.looked(Stage::Decisions, Check::Lag, n as u64);
    let both = correlation(&exposure, &earned(0)).zip(correlation(&exposure, &earned(1)));
    let Some((at_once, one_late)) = both else { return Ok(None) };
    let impossible = at_once > IMPOSSIBLE
        && at_once * (n as f64).sqrt() > STANDARD_ERRORS
        && one_late.abs() < 0.5 * at_once;
    if impossible {
        findings.found(Leak {
            stage: Stage::Decisions,
            check: Check::Lag,
            what: "correlation of exposure with the next bar's return".to_owned(),
            bar: None,
            cut: None,
            seen: format!("{at_once:.3}, and {one_late:.3} a bar late"),
        });
    }
    Ok(Some(LagFigures { decisions: n as u64, at_once, one_late }))
}

/// Pearson's; none where one of the two does not vary.
pub(super) fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len() as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x - mean_a, y - mean_b);
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    let value = ab / (aa * bb).sqrt();
    value.is_finite().then_some(value)
}
