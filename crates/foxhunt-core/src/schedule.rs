//! Schedules as data: a value that moves linearly from a start to an end and then stays.
//!
//! A schedule is asked with an absolute count, so nothing has to be restored on resume and the GPU can hold it
//! in its step state. What the count is (env steps, updates, samples) is the business of whoever owns it.

use serde::{Deserialize, Serialize};

/// Linear from `start` to `end` over `steps`, then `end` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearSchedule {
    /// Value at count 0.
    pub start: f64,
    /// Value from count `steps` on.
    pub end: f64,
    /// Length of the ramp; 0 means `end` at once.
    pub steps: u64,
}

impl LinearSchedule {
    /// A schedule that never moves.
    #[must_use]
    pub const fn constant(value: f64) -> Self {
        Self { start: value, end: value, steps: 0 }
    }

    /// The value at `count`; always between `start` and `end`.
    #[must_use]
    pub fn at(&self, count: u64) -> f64 {
        if count >= self.steps {
            return self.end;
        }
        self.start + (self.end - self.start) * (count as f64 / self.steps as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases A29, B15, B16, B18, B19: clamped at both ends, linear between, finite for zero steps.
    #[test]
    fn published_values() {
        let close = |schedule: LinearSchedule, count, want: f64| {
            let got = schedule.at(count);
            assert!((got - want).abs() < 1e-12, "{schedule:?} at {count}: {got}, not {want}");
        };
        let beta = LinearSchedule { start: 0.4, end: 1.0, steps: 100 };
        for (count, want) in [(0, 0.4), (50, 0.7), (100, 1.0), (250, 1.0)] {
            close(beta, count, want);
        }
        let epsilon = LinearSchedule { start: 1.0, end: 0.02, steps: 100 };
        for (count, want) in [(0, 1.0), (50, 0.51), (100, 0.02), (200, 0.02), (u64::MAX, 0.02)] {
            close(epsilon, count, want);
        }
        close(LinearSchedule { start: 1.0, end: 0.1, steps: 500_000 }, 600_000, 0.1);
        close(LinearSchedule { start: 1.0, end: 0.05, steps: 0 }, 0, 0.05);
        close(LinearSchedule { start: 1.0, end: 0.1, steps: 100 }, 50, 0.55);
        close(LinearSchedule { start: 0.06, end: 0.0, steps: 100 }, 50, 0.03);
    }
}
