//! The figures of one backtest, each defined or undefined with a reason.
//!
//! Ratios come from [`foxhunt_market::ratios`]; here they are put together with what the fills tell. How a figure is
//! written is the report's business.

use foxhunt_market::ratios;
use serde::{Deserialize, Serialize};

use super::{Backtest, Costs, Measure, OrderCounts, round_trips};

/// Returns below which nothing is extrapolated to a year.
const LEAST_FOR_A_YEAR: usize = 20;

/// The figures of one backtest. Shares are of 1; money is account currency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Bars of the window.
    pub bars: usize,
    /// Equity at the first bar.
    pub start_equity: f64,
    /// Equity at the end, after closing with costs.
    pub final_equity: f64,
    /// Final over start equity, less 1.
    pub net_return: Measure,
    /// Compound growth a year; undefined below 20 returns.
    pub annual_return: Measure,
    /// Standard deviation of returns, a year.
    pub volatility: Measure,
    /// Sharpe ratio, a year.
    pub sharpe: Measure,
    /// Sortino ratio, a year.
    pub sortino: Measure,
    /// Probabilistic Sharpe ratio against zero; see [`probabilistic_sharpe`].
    pub psr: Measure,
    /// Deepest fall as a share of the peak before it.
    pub max_drawdown: Measure,
    /// Annual return over max drawdown; undefined below 20 returns.
    pub calmar: Measure,
    /// Traded value over the equity it was decided on, summed; see [`Backtest::turnover`].
    pub turnover: f64,
    /// `turnover` times bars a year over returns.
    pub turnover_per_year: Measure,
    /// Round trips closed.
    pub trades: usize,
    /// Share of round trips with a profit after costs.
    pub win_rate: Measure,
    /// Profits over losses of the round trips.
    pub profit_factor: Measure,
    /// Mean profit of a round trip after costs.
    pub mean_trade: Measure,
    /// Share of bars after the first with a position at their close.
    pub time_in_market: Measure,
    /// The same with a long position.
    pub time_long: Measure,
    /// The same with a short position.
    pub time_short: Measure,
    /// Fees, spread and impact.
    pub costs: Costs,
    /// All costs over start equity.
    pub cost_share: Measure,
    /// Orders by type and urgency.
    pub orders: OrderCounts,
    /// Decisions made.
    pub decisions: usize,
    /// Decisions among them that held.
    pub holds: u64,
    /// Decisions among them that fell back, because the policy had only NaN to choose from.
    #[serde(default)]
    pub fallbacks: u64,
    /// Whether trading ended in ruin.
    pub ruined: bool,
}

impl Metrics {
    /// The figures of `backtest`. `bars_per_year` is that of the window as observed; `risk_free` is a yearly
    /// rate as a share.
    #[must_use]
    pub fn of(backtest: &Backtest, bars_per_year: Option<f64>, risk_free: f64) -> Self {
        let equity = &backtest.equity;
        let returns = ratios::simple_returns(equity);
        let over_returns = |f: &dyn Fn(&[f64]) -> Result<f64, ratios::Undefined>| -> Measure {
            returns.as_ref().map_err(|e| *e).and_then(|r| f(r)).into()
        };
        let n_returns = equity.len().saturating_sub(1);
        let a_year = |measure: Result<f64, ratios::Undefined>| -> Measure {
            if n_returns < LEAST_FOR_A_YEAR {
                return Measure::undefined(format!("fewer than {LEAST_FOR_A_YEAR} returns"));
            }
            measure.into()
        };
        let per_return =
            |count: f64| Measure::of_option(share(count, n_returns as f64), "fewer than 1 returns");
        let held = |side: fn(f64) -> bool| {
            let bars = backtest.position.iter().skip(1).filter(|p| side(**p)).count();
            per_return(bars as f64)
        };
        let trades = TradeFigures::of(backtest);
        Self {
            bars: equity.len(),
            start_equity: backtest.start_equity(),
            final_equity: backtest.final_equity(),
            net_return: ratios::total_return(equity).into(),
            annual_return: a_year(ratios::annual_growth(equity, bars_per_year)),
            volatility: over_returns(&|r| ratios::volatility(r, bars_per_year)),
            sharpe: over_returns(&|r| ratios::sharpe(r, bars_per_year, risk_free)),
            sortino: over_returns(&|r| ratios::sortino(r, bars_per_year, risk_free)),
            psr: over_returns(&probabilistic_sharpe),
            max_drawdown: Measure::of(ratios::max_drawdown(equity).depth),
            calmar: a_year(ratios::calmar(equity, bars_per_year)),
            turnover: backtest.turnover(),
            turnover_per_year: per_return(backtest.turnover())
                .zip(&Measure::of_option(bars_per_year, "bars a year are not known"), |t, n| t * n),
            trades: trades.count,
            win_rate: trades.win_rate,
            profit_factor: trades.profit_factor,
            mean_trade: trades.mean,
            time_in_market: held(|p| p != 0.0),
            time_long: held(|p| p > 0.0),
            time_short: held(|p| p < 0.0),
            costs: backtest.costs,
            cost_share: Measure::of_option(
                share(backtest.costs.total(), backtest.start_equity()),
                "start equity was not positive",
            ),
            orders: backtest.orders,
            decisions: backtest.actions.len(),
            holds: backtest.holds,
            fallbacks: backtest.fallbacks,
            ruined: backtest.terminated,
        }
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

struct TradeFigures {
    count: usize,
    win_rate: Measure,
    profit_factor: Measure,
    mean: Measure,
}

impl TradeFigures {
    fn of(backtest: &Backtest) -> Self {
        let trades = round_trips(&backtest.fills);
        let count = trades.len();
        if count == 0 {
            let none = || Measure::undefined("no trade");
            return Self { count, win_rate: none(), profit_factor: none(), mean: none() };
        }
        let (mut wins, mut profits, mut losses) = (0_u64, 0.0, 0.0);
        for trade in &trades {
            if trade.profit > 0.0 {
                wins += 1;
                profits += trade.profit;
            } else {
                losses -= trade.profit;
            }
        }
        let profit_factor =
            if losses > 0.0 { Measure::of(profits / losses) } else { Measure::undefined("no losing trade") };
        Self {
            count,
            win_rate: Measure::of(wins as f64 / count as f64),
            profit_factor,
            mean: Measure::of((profits - losses) / count as f64),
        }
    }
}

/// The chance that the true Sharpe ratio is above zero:
/// `Phi(sr * sqrt(n - 1) / sqrt(1 - skew * sr + (kurt - 1) / 4 * sr^2))` with `sr` the ratio a bar and kurtosis 3
/// for a normal (Bailey and Lopez de Prado, "The Sharpe ratio efficient frontier", 2012). It knows nothing of how
/// many strategies were tried.
///
/// # Errors
/// [`ratios::Undefined`] for fewer than 3 returns or returns that do not vary.
pub fn probabilistic_sharpe(returns: &[f64]) -> Result<f64, ratios::Undefined> {
    const NEED: usize = 3;
    if returns.len() < NEED {
        return Err(ratios::Undefined::TooFewReturns { have: returns.len(), need: NEED });
    }
    let std = ratios::sample_std(returns)?;
    if std == 0.0 {
        return Err(ratios::Undefined::ZeroVariance);
    }
    let n = returns.len() as f64;
    let mean = ratios::mean(returns)?;
    let moment = |power: i32| returns.iter().map(|r| (r - mean).powi(power)).sum::<f64>() / n;
    let variance = moment(2);
    let (skew, kurtosis) = (moment(3) / variance.powf(1.5), moment(4) / (variance * variance));
    let sr = mean / std;
    let spread = 1.0 - skew * sr + (kurtosis - 1.0) / 4.0 * sr * sr;
    if spread.is_nan() || spread <= 0.0 {
        return Err(ratios::Undefined::NotFinite);
    }
    Ok(normal_cdf(sr * (n - 1.0).sqrt() / spread.sqrt()))
}

/// The standard normal distribution function by its series around zero (Marsaglia, "Evaluating the normal
/// distribution", JSS 11(4), 2004); beyond 8 standard deviations 0 or 1.
fn normal_cdf(x: f64) -> f64 {
    if x.abs() > 8.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut sum, mut term, mut k) = (x, x, 1.0);
    loop {
        k += 2.0;
        term *= x * x / k;
        let next = sum + term;
        if next == sum {
            break;
        }
        sum = next;
    }
    // 0.918... is ln(sqrt(2 pi)).
    (0.5 + sum * (-0.5 * x * x - 0.918_938_533_204_672_7).exp()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the normal distribution function from tables (Abramowitz and Stegun, 26.2).
    #[test]
    fn normal_cdf_known_values() {
        for (x, want) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (-1.96, 0.024_997_895_148_220),
            (3.0, 0.998_650_101_968_370),
        ] {
            assert!((normal_cdf(x) - want).abs() < 1e-12, "{x}: {}", normal_cdf(x));
        }
        assert_eq!((normal_cdf(40.0), normal_cdf(-40.0)), (1.0, 0.0));
    }

    /// Symmetric returns around a mean: the formula worked by hand.
    #[test]
    fn probabilistic_sharpe_by_hand() {
        // mean 0.01, deviations +-0.02: m2 = 4e-4, skew 0, kurtosis 1, sample std 0.02 * sqrt(4/3).
        let returns = [0.03, -0.01, 0.03, -0.01];
        let sr = 0.01 / (0.02 * (4.0_f64 / 3.0).sqrt());
        let want = normal_cdf(sr * 3.0_f64.sqrt());
        assert!((probabilistic_sharpe(&returns).unwrap() - want).abs() < 1e-12);
        assert!(probabilistic_sharpe(&[0.01, 0.01, 0.01]).is_err());
        assert!(probabilistic_sharpe(&[0.01]).is_err());
    }
}
