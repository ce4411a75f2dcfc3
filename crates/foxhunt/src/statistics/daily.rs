//! Equity by days: what a strategy with many bars a day looks like to those who count days.

use foxhunt_market::bars::YEAR_NS;

const DAY_NS: i64 = 86_400_000_000_000;

/// Equity at the end of each day.
#[derive(Clone, Debug, PartialEq)]
pub struct DailySeries {
    /// The start equity, then the last of each UTC day, account currency.
    pub equity: Vec<f64>,
    /// Daily returns over the years they span, as observed; None for fewer than one.
    pub days_per_year: Option<f64>,
}

/// Keeps the last equity of each UTC day (a bar belongs to the day of its open) behind the start equity. A first day
/// of one bar is the start itself. `time` in ns UTC, rising, as long as `equity`.
#[must_use]
pub fn daily_series(time: &[i64], equity: &[f64]) -> DailySeries {
    let n = time.len().min(equity.len());
    let day = |bar: usize| time[bar].div_euclid(DAY_NS);
    let ends = (1..n).filter(|&bar| bar + 1 == n || day(bar + 1) != day(bar));
    let equity: Vec<f64> = equity[..n.min(1)].iter().copied().chain(ends.map(|bar| equity[bar])).collect();
    let returns = equity.len().saturating_sub(1);
    let days_per_year = (returns > 0).then(|| {
        let span = i128::from(time[n - 1]) - i128::from(time[0]);
        returns as f64 / (span as f64 / YEAR_NS)
    });
    DailySeries { equity, days_per_year }
}
