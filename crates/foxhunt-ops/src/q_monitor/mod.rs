//! Statistics of Q-values: the mean of max-Q for early stopping, and the range for the divergence alarm.
//!
//! **Contract.**
//!
//! - `accumulate(q[B, n_outputs])` adds `mean over branches of max_a Q` of each row to an f64 sum and a count; the rows of a
//!   call add up in the tree of [`crate::tree_sum`], so that every engine gives the same bits. A NaN never wins a maximum; a row whose result is not finite is left out of the mean and counted apart.
//! - `divergence(q, threshold)` gives the smallest, mean and largest finite value, how many values are not finite,
//!   and `diverged` = some |q| > threshold, or some value is not finite. The mean is summed in f64 in the same tree.
//! - `row_range` and `max_q` are the same for one row; a collector adds rows by groups in a fixed tree, so that its sums
//!   have the same bits on every engine.
//!
//! On a device ([`mod@cuda`]) the sums stay there until an epoch boundary, and the range goes to pinned memory, where the
//! host reads it without a driver call.
//!
//! Source of the statistic: Mnih et al., *Human-level control through deep reinforcement learning*, Nature 518
//! (2015), figure 2 (average maximal Q). This module does not stop anything.

mod cpu;
pub mod cuda;
#[cfg(test)]
mod tests;

pub use cpu::{MaxQSums, RowRange, divergence, from_order_key, max_q, order_key, row_range};

/// CUDA twin of one row's statistics, for inclusion by kernels under the name `q_monitor.cuh`.
pub const Q_MONITOR_CUH: &str = include_str!("q_monitor.cuh");

/// The range of a set of Q-values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QRange {
    /// Smallest finite value; NaN when there is none.
    pub min: f32,
    /// Largest finite value; NaN when there is none.
    pub max: f32,
    /// Mean of the finite values; NaN when there is none.
    pub mean: f32,
    /// Finite values.
    pub finite: u32,
    /// Values that are NaN or infinite.
    pub non_finite: u32,
    /// Whether a value was beyond the threshold or not finite.
    pub diverged: bool,
}
