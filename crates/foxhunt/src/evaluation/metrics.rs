//! The figures of one backtest, each defined or undefined with a reason.
//!
//! Ratios come from [`foxhunt_market::ratios`]; here they are put together with what the fills tell. How a figure is
//! written is the report's business.

use foxhunt_market::ratios;
use serde::{Deserialize, Serialize};

use super::{Backtest, CONFIDENCE, Costs, Measure, OrderCounts, daily_sharpe, round_trips};
use crate::statistics::SharpeEstimate;

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
    /// Lower end of its 95 % interval; see [`SharpeEstimate::interval`].
    pub sharpe_low: Measure,
    /// Upper end.
    pub sharpe_high: Measure,
    /// Sharpe ratio of daily returns; see [`Metrics::with_days`].
    pub sharpe_daily: Measure,
    /// Sortino ratio, a year.
    pub sortino: Measure,
    /// Probabilistic Sharpe ratio against zero; see [`SharpeEstimate::probabilistic`].
    pub psr: Measure,
    /// Deepest fall as a share of the peak before it.
    pub max_drawdown: Measure,
    /// Bars of the longest time below a former peak.
    pub drawdown_bars: usize,
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
        let drawdown = ratios::max_drawdown(equity);
        let rate = bars_per_year.map_or(0.0, |n| ratios::rate_per_bar(risk_free, n));
        let estimate = returns.as_ref().map_err(|e| *e).and_then(|returns| SharpeEstimate::of(returns, rate));
        let sharpe_of =
            |f: &dyn Fn(&SharpeEstimate) -> f64| Measure::from(estimate.as_ref().map(f).map_err(|e| *e));
        let root = Measure::of_option(bars_per_year.map(f64::sqrt), "bars a year are not known");
        Self {
            bars: equity.len(),
            start_equity: backtest.start_equity(),
            final_equity: backtest.final_equity(),
            net_return: ratios::total_return(equity).into(),
            annual_return: a_year(ratios::annual_growth(equity, bars_per_year)),
            volatility: over_returns(&|r| ratios::volatility(r, bars_per_year)),
            sharpe: over_returns(&|r| ratios::sharpe(r, bars_per_year, risk_free)),
            sortino: over_returns(&|r| ratios::sortino(r, bars_per_year, risk_free)),
            sharpe_low: sharpe_of(&|e| e.interval(CONFIDENCE).low).zip(&root, |ratio, root| ratio * root),
            sharpe_high: sharpe_of(&|e| e.interval(CONFIDENCE).high).zip(&root, |ratio, root| ratio * root),
            sharpe_daily: Measure::undefined("bar times are not known"),
            psr: sharpe_of(&|e| e.probabilistic(0.0)),
            max_drawdown: Measure::of(drawdown.depth),
            drawdown_bars: drawdown.longest_bars,
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

impl Metrics {
    /// The same with the figures that need the times of the bars, ns UTC, one a bar of the window.
    #[must_use]
    pub fn with_days(self, backtest: &Backtest, time: &[i64], risk_free: f64) -> Self {
        Self { sharpe_daily: daily_sharpe(&backtest.equity, time, risk_free), ..self }
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
