//! Performance ratios of one net equity series.
//!
//! A series has one value a bar, marked at closes and net of all costs; its first value is the start equity,
//! which is the first peak and the first base. Every bar counts, traded or not (case F17). Ratios are of simple
//! returns, never of levels (case F03), and are annualised with the bars a year observed in the bars' own times,
//! never with a clock (case F18). What is not defined is a reason, never NaN or infinity. The figures of a
//! backtest are put together from these in `foxhunt::evaluation`; statistics over many runs, and tests of significance,
//! are not made here.

use serde::{Deserialize, Serialize};

/// Why a ratio has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Undefined {
    /// Too few returns for the statistic.
    #[error("{have} returns, needs {need}")]
    TooFewReturns {
        /// Returns there are.
        have: usize,
        /// Returns needed.
        need: usize,
    },
    /// All returns are equal.
    #[error("returns do not vary")]
    ZeroVariance,
    /// No return is below the risk-free rate.
    #[error("no losing bar")]
    NoDownside,
    /// Equity never fell.
    #[error("no drawdown")]
    NoDrawdown,
    /// Equity reached zero or less; returns after that have no meaning (case F26).
    #[error("equity was not positive at bar {bar} of the series")]
    NonPositiveEquity {
        /// The first such place in the series.
        bar: usize,
    },
    /// The number of bars a year is not known.
    #[error("bars a year are not known")]
    NoBarsPerYear,
    /// A number too large for f64 came out.
    #[error("not finite")]
    NotFinite,
}

/// Simple returns `equity[t] / equity[t-1] - 1`, f64 `[n - 1]`.
///
/// # Errors
/// [`Undefined::NonPositiveEquity`] when a value is zero, negative or not a number.
pub fn simple_returns(equity: &[f64]) -> Result<Vec<f64>, Undefined> {
    match equity.iter().position(|e| e.is_nan() || *e <= 0.0) {
        Some(bar) => Err(Undefined::NonPositiveEquity { bar }),
        None => Ok(equity.windows(2).map(|pair| pair[1] / pair[0] - 1.0).collect()),
    }
}

/// `(1 + rate)^(1 / bars_per_year) - 1`: a yearly rate as a rate a bar (case F21).
#[must_use]
pub fn rate_per_bar(yearly_rate: f64, bars_per_year: f64) -> f64 {
    (yearly_rate.ln_1p() / bars_per_year).exp_m1()
}

fn yearly(bars_per_year: Option<f64>) -> Result<f64, Undefined> {
    bars_per_year.filter(|n| *n > 0.0 && n.is_finite()).ok_or(Undefined::NoBarsPerYear)
}

fn at_least(returns: &[f64], need: usize) -> Result<(), Undefined> {
    if returns.len() >= need { Ok(()) } else { Err(Undefined::TooFewReturns { have: returns.len(), need }) }
}

/// Arithmetic mean.
///
/// # Errors
/// [`Undefined::TooFewReturns`] below 1.
pub fn mean(returns: &[f64]) -> Result<f64, Undefined> {
    at_least(returns, 1)?;
    Ok(returns.iter().sum::<f64>() / returns.len() as f64)
}

/// Sample standard deviation (n - 1). What is left of equal returns after rounding counts as zero.
///
/// # Errors
/// [`Undefined::TooFewReturns`] below 2.
pub fn sample_std(returns: &[f64]) -> Result<f64, Undefined> {
    at_least(returns, 2)?;
    let mean = mean(returns)?;
    let squares: f64 = returns.iter().map(|r| (r - mean).powi(2)).sum();
    let std = (squares / (returns.len() as f64 - 1.0)).sqrt();
    let largest = returns.iter().fold(0.0_f64, |m, r| m.max(r.abs()));
    // A return is one quotient away from 1, so it carries an absolute rounding error of about 2e-16.
    Ok(if std <= 1e-12 * largest + 1e-15 { 0.0 } else { std })
}

/// Sample standard deviation of returns, times sqrt(bars a year).
///
/// # Errors
/// [`Undefined::TooFewReturns`] below 2, [`Undefined::NoBarsPerYear`].
pub fn volatility(returns: &[f64], bars_per_year: Option<f64>) -> Result<f64, Undefined> {
    Ok(sample_std(returns)? * yearly(bars_per_year)?.sqrt())
}

/// `mean(r - rf) / sample std(r) * sqrt(bars a year)` (Sharpe 1994), `rf` the risk-free rate a bar.
///
/// # Errors
/// [`Undefined::TooFewReturns`] below 2, [`Undefined::ZeroVariance`], [`Undefined::NoBarsPerYear`].
pub fn sharpe(returns: &[f64], bars_per_year: Option<f64>, yearly_risk_free: f64) -> Result<f64, Undefined> {
    let std = sample_std(returns)?;
    if std == 0.0 {
        return Err(Undefined::ZeroVariance);
    }
    let n = yearly(bars_per_year)?;
    Ok((mean(returns)? - rate_per_bar(yearly_risk_free, n)) / std * n.sqrt())
}

/// `mean(r - rf) / sqrt(mean(min(r - rf, 0)^2)) * sqrt(bars a year)` (Sortino and Price 1994, target = rf).
///
/// # Errors
/// [`Undefined::TooFewReturns`] below 2, [`Undefined::NoDownside`], [`Undefined::NoBarsPerYear`].
pub fn sortino(returns: &[f64], bars_per_year: Option<f64>, yearly_risk_free: f64) -> Result<f64, Undefined> {
    at_least(returns, 2)?;
    let n = yearly(bars_per_year)?;
    let rate = rate_per_bar(yearly_risk_free, n);
    let squares: f64 = returns.iter().map(|r| (r - rate).min(0.0).powi(2)).sum();
    if squares == 0.0 {
        return Err(Undefined::NoDownside);
    }
    Ok((mean(returns)? - rate) / (squares / returns.len() as f64).sqrt() * n.sqrt())
}

/// Last equity over first, less 1. Defined also when equity ends below zero.
///
/// # Errors
/// [`Undefined::TooFewReturns`] below 1, [`Undefined::NonPositiveEquity`] for the start.
pub fn total_return(equity: &[f64]) -> Result<f64, Undefined> {
    match equity {
        [first, .., last] if *first > 0.0 => Ok(last / first - 1.0),
        [_, _, ..] => Err(Undefined::NonPositiveEquity { bar: 0 }),
        _ => Err(Undefined::TooFewReturns { have: 0, need: 1 }),
    }
}

/// Compound growth a year, `(last / first)^(bars a year / returns) - 1`.
///
/// # Errors
/// As [`total_return`], and [`Undefined::NonPositiveEquity`] for the end, [`Undefined::NoBarsPerYear`].
pub fn annual_growth(equity: &[f64], bars_per_year: Option<f64>) -> Result<f64, Undefined> {
    let growth = total_return(equity)?;
    let returns = equity.len() - 1;
    if growth <= -1.0 {
        return Err(Undefined::NonPositiveEquity { bar: returns });
    }
    Ok((growth.ln_1p() * yearly(bars_per_year)? / returns as f64).exp_m1())
}

/// The deepest and the longest fall below a former peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drawdown {
    /// Deepest fall as a share of the peak before it, >= 0; above 1 when equity went below zero (case F26).
    pub depth: f64,
    /// Place of that peak in the series.
    pub peak: usize,
    /// Place of the deepest point in the series.
    pub trough: usize,
    /// Bars of the longest time below a peak, up to the bar that reached it again or to the end.
    pub longest_bars: usize,
}

/// Drawdown against the running peak, which starts at the start equity (case F24). No fall gives zeros (case F27).
#[must_use]
pub fn max_drawdown(equity: &[f64]) -> Drawdown {
    let mut worst = Drawdown::default();
    let mut peak = 0;
    for (t, &value) in equity.iter().enumerate() {
        if value >= equity[peak] {
            // Time under water ends when the peak is reached again.
            if t - peak > 1 {
                worst.longest_bars = worst.longest_bars.max(t - peak);
            }
            peak = t;
        } else {
            worst.longest_bars = worst.longest_bars.max(t - peak);
            let depth = (equity[peak] - value) / equity[peak];
            if depth > worst.depth {
                worst = Drawdown { depth, peak, trough: t, ..worst };
            }
        }
    }
    worst
}

/// Annual growth over the depth of the deepest drawdown (Young 1991).
///
/// # Errors
/// As [`annual_growth`], and [`Undefined::NoDrawdown`].
pub fn calmar(equity: &[f64], bars_per_year: Option<f64>) -> Result<f64, Undefined> {
    let growth = annual_growth(equity, bars_per_year)?;
    match max_drawdown(equity).depth {
        0.0 => Err(Undefined::NoDrawdown),
        depth => Ok(growth / depth),
    }
}

#[cfg(test)]
mod tests;
