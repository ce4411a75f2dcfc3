//! Judging a policy: backtests, metrics, baselines and the cost ladder.
//!
//! A backtest walks a window of bars with the same fills, money and holds as training, without episode limits,
//! and leaves one bar-indexed series of net equity. Every figure comes from that series and the list of fills.
//! A figure that does not exist for a run is undefined with a reason, never NaN. Nothing here learns, reads a
//! file or draws a plot.

mod record;

pub use record::{Backtest, Costs, EQUITY_FLOOR, FillRecord, OrderCounts};
