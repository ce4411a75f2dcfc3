//! The CPU twin of the Q monitor.

use super::QRange;
use crate::tree_sum::{TreeSum, tree_sum};

/// Running sum of max-Q over decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MaxQSums {
    /// Sum of finite max-Q values.
    pub sum: f64,
    /// Rows in the sum.
    pub rows: u64,
    /// Rows left out because their max-Q was not finite.
    pub non_finite_rows: u64,
}

impl MaxQSums {
    /// Adds every row of `q`, f32 `[B, sum of branches]`, row-major; `branches` are the widths in order. The rows of one
    /// call are summed in the tree of [`crate::tree_sum`], a row that is left out as 0.
    ///
    /// # Panics
    /// When `q` is no whole number of rows.
    pub fn accumulate(&mut self, q: &[f32], branches: &[usize]) {
        let width: usize = branches.iter().sum();
        assert!(width > 0 && q.len().is_multiple_of(width), "q must be [rows, {width}]");
        let mut sum = TreeSum::default();
        for row in q.chunks_exact(width) {
            let value = max_q(row, branches);
            sum.add(if value.is_finite() { value } else { 0.0 });
            self.rows += u64::from(value.is_finite());
            self.non_finite_rows += u64::from(!value.is_finite());
        }
        self.sum += sum.total();
    }

    /// Mean of max-Q; `None` over no rows.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }
}

/// Largest value that is not NaN; NaN when there is none.
fn largest(values: &[f32]) -> f32 {
    // f32::max returns the operand that is a number.
    values.iter().fold(f32::NAN, |top, &value| top.max(value))
}

/// Range of `q`, and whether it passed `threshold`. Of two zeros, -0 is the smaller.
#[must_use]
pub fn divergence(q: &[f32], threshold: f32) -> QRange {
    let RowRange { low, high, finite, non_finite, .. } = row_range(q);
    let sum = tree_sum(q, |value| if value.is_finite() { value } else { 0.0 });
    let (min, max, mean) = match finite {
        0 => (f32::NAN, f32::NAN, f32::NAN),
        _ => (from_order_key(low), from_order_key(high), (sum / f64::from(finite)) as f32),
    };
    let diverged = non_finite > 0 || max > threshold || min < -threshold;
    QRange { min, max, mean, finite, non_finite, diverged }
}

/// Order of f32 without NaN as an order of integers; -0 stands below +0.
#[must_use]
pub fn order_key(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The value whose [`order_key`] this is.
#[must_use]
pub fn from_order_key(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & 0x7fff_ffff } else { !key })
}

/// One row's finite values, and how many are not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowRange {
    /// Sum of the finite values, in order.
    pub sum: f64,
    /// Smallest as an [`order_key`]; `u32::MAX` without one.
    pub low: u32,
    /// Largest as an [`order_key`]; 0 without one.
    pub high: u32,
    /// Finite values.
    pub finite: u32,
    /// Values that are NaN or infinite.
    pub non_finite: u32,
}

/// The range of a row; the row of a collector, whose groups of rows add up in a fixed tree.
#[must_use]
pub fn row_range(q: &[f32]) -> RowRange {
    let mut range = RowRange { sum: 0.0, low: u32::MAX, high: 0, finite: 0, non_finite: 0 };
    for &value in q {
        if value.is_finite() {
            range.low = range.low.min(order_key(value));
            range.high = range.high.max(order_key(value));
            range.sum += f64::from(value);
            range.finite += 1;
        } else {
            range.non_finite += 1;
        }
    }
    range
}

/// Mean over branches of the largest Q-value of a row that is not NaN; `branches` are the widths in order.
#[must_use]
pub fn max_q(row: &[f32], branches: &[usize]) -> f64 {
    let mut start = 0;
    let mut total = 0.0_f64;
    for &len in branches {
        total += f64::from(largest(&row[start..start + len]));
        start += len;
    }
    total / branches.len() as f64
}
