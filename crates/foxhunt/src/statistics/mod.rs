//! How much a Sharpe ratio can be trusted: its sampling error, its length, its luck, and its spread over seeds.
//!
//! [`SharpeEstimate`] holds what the sampling law of the ratio needs and answers with an interval, the probabilistic and
//! the deflated Sharpe ratio and the minimum track record length. [`interquartile_mean`] and
//! [`stratified_interval`] tell of several seeds. Every function takes numbers and gives numbers; which series is
//! judged, and against how many trials, is decided by [`crate::evaluation`] and [`crate::ledger`].

mod bootstrap;
mod daily;
mod sharpe;

pub use bootstrap::{Interval, interquartile_mean, percentile, stratified_interval};
pub use daily::{DailySeries, daily_series};
pub use sharpe::{SharpeEstimate, Trials, expected_best_ratio};

#[cfg(test)]
mod tests;
