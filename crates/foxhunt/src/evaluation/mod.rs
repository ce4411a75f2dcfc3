//! Judging a policy: backtests, metrics, baselines and the cost ladder.
//!
//! A backtest walks a window of bars with the same fills, money and holds as training, without episode limits,
//! and leaves one bar-indexed series of net equity. Every figure comes from that series and the list of fills.
//! A figure that does not exist for a run is undefined with a reason, never NaN. Nothing here learns, reads a
//! file or draws a plot.

mod actions;
mod backtest;
mod baselines;
mod foresight;
mod measure;
mod metrics;
mod record;
mod trades;
mod verdict;
mod windows;

pub use actions::ActionTable;
pub use backtest::{PolicyFn, backtest};
pub use baselines::{Fixed, RandomBaseline, Summary, fixed, random};
pub use foresight::{MOST_BARS, foresight};
pub use measure::Measure;
pub use metrics::Metrics;
pub use record::{Backtest, Costs, Decision, FillRecord, OrderCounts};
pub use trades::{Trade, round_trips};
pub use verdict::{CONFIDENCE, Verdict, daily_sharpe, estimate};
pub use windows::{
    Evaluation, LADDER, LadderRung, PolicyResult, RunAgent, WindowEvaluation, decisions, evaluate_window,
    evaluate_windows,
};

#[cfg(test)]
mod tests;
