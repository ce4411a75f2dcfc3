//! Times of a piece of work done again and again. What is made of them is each bench's own business.

use std::time::Instant;

/// Wall-clock microseconds of single runs, ascending.
#[derive(Clone, Debug)]
pub struct Times(Vec<f64>);

impl Times {
    /// Times `runs` runs of `body`, at least one, after a tenth as many to warm up.
    pub fn of(runs: usize, mut body: impl FnMut()) -> Self {
        for _ in 0..runs.div_ceil(10) {
            body();
        }
        let one = |_| {
            let start = Instant::now();
            body();
            start.elapsed().as_secs_f64() * 1e6
        };
        let mut took: Vec<f64> = (0..runs.max(1)).map(one).collect();
        took.sort_by(f64::total_cmp);
        Self(took)
    }

    /// The time that `share` of the runs, in [0, 1], did not exceed: 0 is the shortest, 0.5 the median.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
        self.0[(share * (self.0.len() - 1) as f64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_and_sorted() {
        let mut runs = 0_u64;
        let times = Times::of(21, || {
            runs += 1;
            std::thread::sleep(std::time::Duration::from_micros(50 * (runs % 3)));
        });
        assert_eq!(runs, 24);
        assert!(times.at(0.0) <= times.at(0.5) && times.at(0.5) <= times.at(1.0) && times.at(1.0) >= 100.0);
    }
}
