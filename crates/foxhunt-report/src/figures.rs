//! The figures of a backtest as one table: key, name, unit, definition and where it is found.
//!
//! The JSON report, the page and its list of definitions are all made from it, so they cannot disagree.

use foxhunt::evaluation::{Measure, Metrics};

use crate::number::{count, grouped, percent, short};

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share, written as a signed percentage.
    SignedPercent,
    /// A share, written as a percentage without a plus sign.
    Percent,
    /// A ratio with two decimals.
    Ratio,
    /// Account currency.
    Money,
    /// A whole number.
    Count,
}

impl Unit {
    /// The number as text with its unit.
    #[must_use]
    pub fn write(self, value: f64) -> String {
        match self {
            Self::SignedPercent => format!("{}\u{a0}%", percent(value)),
            Self::Percent => format!("{}\u{a0}%", percent(value).trim_start_matches('+')),
            Self::Ratio if value.abs() >= 1e5 => short(value),
            Self::Ratio => grouped(value, 2),
            Self::Money => grouped(value, 2),
            Self::Count => count(value.max(0.0) as u64),
        }
    }
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Key in the JSON report.
    pub key: &'static str,
    /// Name on the page.
    pub label: &'static str,
    /// How it is written.
    pub unit: Unit,
    /// What it is.
    pub definition: &'static str,
    /// Where it is.
    pub of: fn(&Metrics) -> Measure,
}

macro_rules! figures {
    ($($key:ident, $label:literal, $unit:ident, $of:expr, $definition:literal;)*) => {
        /// Every figure, in the order of the page.
        pub const FIGURES: &[Figure] = &[$(Figure {
            key: stringify!($key), label: $label, unit: Unit::$unit, definition: $definition, of: $of,
        }),*];
    };
}

figures! {
    net_return, "Net return", SignedPercent, |m| m.net_return.clone(),
        "Final over start equity, less 1, after all costs.";
    annual_return, "Return a year", SignedPercent, |m| m.annual_return.clone(),
        "(1 + net return) to the power of bars a year over returns, less 1.";
    volatility, "Volatility a year", Percent, |m| m.volatility.clone(),
        "Sample standard deviation of the returns per bar, times the root of bars a year.";
    sharpe, "Sharpe ratio", Ratio, |m| m.sharpe.clone(),
        "Mean excess return per bar over its sample standard deviation, times the root of bars a year. \
         The risk-free rate is compounded down to a bar. Flat bars count.";
    sharpe_low, "Sharpe ratio, 95\u{a0}% from", Ratio, |m| m.sharpe_low.clone(),
        "Lower end of the central normal interval around the Sharpe ratio, with the standard error of independent returns \
         of any law with four moments (Mertens, 2002). Returns that follow each other make the true interval wider.";
    sharpe_high, "Sharpe ratio, 95\u{a0}% to", Ratio, |m| m.sharpe_high.clone(),
        "Upper end of that interval.";
    sharpe_daily, "Sharpe ratio of days", Ratio, |m| m.sharpe_daily.clone(),
        "The Sharpe ratio of the last equity of each UTC day, times the root of the days a year as observed.";
    sortino, "Sortino ratio", Ratio, |m| m.sortino.clone(),
        "As the Sharpe ratio, over the root mean square of the negative excess returns of all bars.";
    psr, "P(Sharpe > 0)", Percent, |m| m.psr.clone(),
        "Probabilistic Sharpe ratio against zero (Bailey and L\u{f3}pez de Prado, 2012): the chance that the true \
         Sharpe ratio is positive, given length, skewness and kurtosis of the returns. Not corrected for trials.";
    max_drawdown, "Max drawdown", Percent, |m| m.max_drawdown.clone(),
        "Largest fall from a peak of equity as a share of that peak; the start equity is the first peak.";
    drawdown_bars, "Longest drawdown, bars", Count, |m| Measure::of(m.drawdown_bars as f64),
        "Bars of the longest time below a former peak of equity.";
    calmar, "Calmar ratio", Ratio, |m| m.calmar.clone(),
        "Return a year over max drawdown.";
    turnover, "Turnover", Ratio, |m| Measure::of(m.turnover),
        "Traded value over the equity it was decided on, summed over all fills. In and out again is 2.";
    turnover_per_year, "Turnover a year", Ratio, |m| m.turnover_per_year.clone(),
        "Turnover times bars a year over bars.";
    trades, "Round trips", Count, |m| Measure::of(m.trades as f64),
        "Positions opened and closed again; turning round closes one and opens the next.";
    win_rate, "Win rate", Percent, |m| m.win_rate.clone(),
        "Share of round trips with a profit after costs.";
    profit_factor, "Profit factor", Ratio, |m| m.profit_factor.clone(),
        "Sum of profits over sum of losses of the round trips, after costs.";
    mean_trade, "Mean round trip", Money, |m| m.mean_trade.clone(),
        "Mean profit of a round trip after costs, account currency.";
    time_in_market, "Time in the market", Percent, |m| m.time_in_market.clone(),
        "Share of bars with a position.";
    time_long, "Time long", Percent, |m| m.time_long.clone(),
        "Share of bars with a long position.";
    time_short, "Time short", Percent, |m| m.time_short.clone(),
        "Share of bars with a short position.";
    decisions, "Decisions", Count, |m| Measure::of(m.decisions as f64),
        "One a bar but the last, fewer after ruin.";
    holds, "Holds", Count, |m| Measure::of(m.holds as f64),
        "Decisions for the exposure already held.";
    fallbacks, "Fallbacks", Count, |m| Measure::of(m.fallbacks as f64),
        "Decisions that fell back to flat, because no Q-value to choose by was a number.";
    orders, "Orders", Count, |m| Measure::of(m.orders.total_sent() as f64),
        "Decisions that sent an order.";
    fee, "Fees", Money, |m| Measure::of(m.costs.fee),
        "Fees paid less rebates, account currency.";
    spread, "Spread paid", Money, |m| Measure::of(m.costs.spread),
        "Half spreads crossed, account currency.";
    impact, "Impact paid", Money, |m| Measure::of(m.costs.impact),
        "Impact of market orders, account currency.";
    cost_share, "Costs over start equity", Percent, |m| m.cost_share.clone(),
        "Fees, spread and impact over start equity.";
    start_equity, "Start equity", Money, |m| Measure::of(m.start_equity),
        "Account currency.";
    final_equity, "Final equity", Money, |m| Measure::of(m.final_equity),
        "Account currency, after an open position was closed with costs.";
}

/// The figure of that key. Only for keys written in this crate.
#[must_use]
pub fn figure(key: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_defined() {
        for (i, a) in FIGURES.iter().enumerate() {
            assert!(!a.definition.is_empty() && !a.label.is_empty());
            assert!(FIGURES[..i].iter().all(|b| b.key != a.key), "{} twice", a.key);
        }
        assert_eq!(Unit::SignedPercent.write(0.0123), "+1.23\u{a0}%");
        assert_eq!(Unit::Percent.write(0.0123), "1.23\u{a0}%");
        assert_eq!(Unit::Count.write(12_345.0), "12,345");
        assert_eq!(Unit::Ratio.write(2e7), "20,000,000");
    }
}
