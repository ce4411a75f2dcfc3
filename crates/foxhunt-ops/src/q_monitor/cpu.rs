//! The CPU twin of the Q monitor.

use super::QRange;

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
    /// Adds every row of `q`, f32 `[B, sum of branches]`, row-major; `branches` are the widths in order.
    ///
    /// # Panics
    /// When `q` is no whole number of rows.
    pub fn accumulate(&mut self, q: &[f32], branches: &[usize]) {
        let width: usize = branches.iter().sum();
        assert!(width > 0 && q.len().is_multiple_of(width), "q must be [rows, {width}]");
        for row in q.chunks_exact(width) {
            let mut start = 0;
            let mut total = 0.0_f64;
            for &len in branches {
                total += f64::from(largest(&row[start..start + len]));
                start += len;
            }
            let value = total / branches.len() as f64;
            if value.is_finite() {
                self.sum += value;
                self.rows += 1;
            } else {
                self.non_finite_rows += 1;
            }
        }
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

/// Range of `q`, and whether it passed `threshold`.
#[must_use]
pub fn divergence(q: &[f32], threshold: f32) -> QRange {
    let (mut min, mut max) = (f32::NAN, f32::NAN);
    let (mut sum, mut count, mut non_finite) = (0.0_f64, 0_u32, 0_u32);
    for &value in q {
        if value.is_finite() {
            min = min.min(value);
            max = max.max(value);
            sum += f64::from(value);
            count += 1;
        } else {
            non_finite += 1;
        }
    }
    let mean = if count > 0 { (sum / f64::from(count)) as f32 } else { f32::NAN };
    let diverged = non_finite > 0 || max > threshold || min < -threshold;
    QRange { min, max, mean, non_finite, diverged }
}
